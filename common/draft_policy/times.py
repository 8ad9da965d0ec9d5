"""Times of rounds of drafting and verifying: the formulas that predictions and the policy `goodput` share.

Seconds and bytes. Every position is accepted with the same probability α, independently of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.draft_policy.values import RoundTimes


def expected_tokens(acceptance: float, length: int) -> float:
    """E, the tokens that a round of `length` proposed ones decides: accepted + 1.

    (1 - α^(γ+1)) / (1 - α); γ + 1 at α = 1. Raises `ValueError` for an α outside [0, 1] or a negative length.
    """
    _check(acceptance, length)
    return sum(acceptance**accepted for accepted in range(length + 1))


def expected_tokens_of(acceptances: Sequence[float]) -> float:
    """E for positions of unlike acceptance: g(x) of QSV Eq. 15."""
    expected, whole = 0.0, 1.0
    for place, acceptance in enumerate(acceptances, start=1):
        _check(acceptance, place)
        expected += place * whole * (1.0 - acceptance)
        whole *= acceptance
    return expected + (len(acceptances) + 1) * whole


def tokens_per_error(acceptance: float) -> float:
    """N = 1 / (1 - α), tokens from one that is not what the drafter proposed to the next; inf at α = 1."""
    _check(acceptance, 1)
    return 1.0 / (1.0 - acceptance) if acceptance < 1.0 else float("inf")


def up_seconds(times: RoundTimes, length: int, token_bytes: float) -> float:
    """Seconds that a proposal of `length` tokens of `token_bytes` each occupies the uplink."""
    return (times.up_overhead + length * token_bytes) / times.up_rate


def round_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """A synchronous round: γ T_S + T_L + RTT + B_up / R_up + B_down / R_down, with the expected B_down."""
    _check(acceptance, length)
    down = times.down_overhead + (1.0 - acceptance**length) * times.down_rejected
    work = length * (times.draft + times.verify_token) + times.verify
    return work + times.rtt + up_seconds(times, length, token_bytes) + down / times.down_rate


def synchronous_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token of rounds one after the other: a round's over E."""
    return round_seconds(times, acceptance, length, token_bytes) / expected_tokens(acceptance, length)


def keeps_up(times: RoundTimes, length: int, token_bytes: float) -> bool:
    """Whether chunks of `length` tokens leave no later than they are drafted: serialisation <= γ T_S."""
    return up_seconds(times, length, token_bytes) <= length * times.draft


def pass_wait(times: RoundTimes, length: int) -> float:
    """Seconds that a chunk waits for the pass under way: half of what a pass takes longer than a chunk is drafted."""
    return max(0.0, times.verify + length * times.verify_token - length * times.draft) / 2


def ahead_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token while the drafter goes on behind what it proposed, in chunks of `length` tokens.

    A wrong token costs what it takes to learn of it: the rest of its chunk ((γ - 1) / 2 steps on average), the chunk's
    way up, a pass, and the way back; so t ≈ max(T_S, (N T_S + (γ-1)/2 T_S + T_L + RTT + serialisation) / N). Added to
    it is `pass_wait`, without which simulations at γ = 1 and T_L = 6 T_S take up to 13 % longer. Where chunks can't
    keep up (`keeps_up`), the pace is the link's instead of T_S; what is queued when an error becomes known is not in
    the formula, which is far too low there.
    """
    sent = up_seconds(times, length, token_bytes)
    pace = max(times.draft, sent / length)
    back = (times.down_overhead + times.down_rejected) / times.down_rate
    work = (length - 1) / 2 * times.draft + times.verify + length * times.verify_token
    wait = work + pass_wait(times, length) + times.rtt + sent + back
    return pace + wait / tokens_per_error(acceptance)


def undrafted_seconds(times: RoundTimes) -> float:
    """Seconds per token that the verifier decides by itself and tells at once: a pass each."""
    return max(times.verify + times.verify_token, times.down_overhead / times.down_rate)


def eager_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token of a verifier that decodes on while it waits for chunks of `length` tokens (ours).

    t = T_L - α^k (T_L - pace). Behind a wrong draft the verifier decides k tokens by itself until the drafts behind it
    are there, and so it does anew where one of those k is not what was drafted: (α^-k - 1) N tokens on average, N from
    one error to the next, of which the drafts then bring N at their own pace.
    """
    _check(acceptance, length)
    alone, sent = undrafted_seconds(times), up_seconds(times, length, token_bytes)
    pace = min(alone, max(times.draft, sent / length))
    if pace == alone:
        return alone
    wait = times.rtt + sent + length * times.draft + pass_wait(times, length)
    caught_up: float = acceptance ** (wait / alone)
    return alone - caught_up * (alone - pace)


def coupled_acceptance(variation: float) -> tuple[float, float]:
    """Least and largest acceptance of coupled draws of two distributions with this total variation distance.

    (1 - TV) / (1 + TV) and 1 - TV; the latter is what accepting min(1, p / q) reaches.
    """
    _check(variation, 1)
    return (1.0 - variation) / (1.0 + variation), 1.0 - variation


def _check(acceptance: float, length: int) -> None:
    if not 0.0 <= acceptance <= 1.0 or length < 0:
        raise ValueError(f"an acceptance is in [0, 1] and a length not negative, got {acceptance} and {length}")
