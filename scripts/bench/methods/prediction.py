"""What the formulas of rounds give for an answer: the true link and floors, its own acceptance and lengths."""

from __future__ import annotations

import math
from typing import Final

from common.draft_policy.times import ahead_seconds, expected_tokens, round_seconds
from common.draft_policy.values import RoundTimes
from scripts.bench.methods.measure import Answered
from scripts.bench.methods.plan import DRAFT, TARGET, Mode, Plan

ENCRYPTED: Final = 33  # bytes more of a message that CurveZMQ carries: command's name, nonce, authenticator, flags
FRAME: Final = 27.0  # bytes of a coupled proposal without its tokens, on the average
TOKEN: Final = 11 / 8  # bytes of a token of the pair's vocabulary in it


def predicted(answer: Answered, mode: Mode, plan: Plan) -> float:
    """Milliseconds per token between the first and the last.

    The tokens of the first verdict arrive with the first token, so that what follows it has fewer to wait for.
    """
    if mode in (TARGET, DRAFT):
        return plan.verify_ms if mode == TARGET else plan.draft_ms
    alpha = answer.acceptance or 0.0
    messages = proposals(answer, mode)
    length = chunk(answer, mode)
    times = RoundTimes(
        draft=plan.draft_ms / 1e3,
        verify=plan.verify_ms / 1e3,
        rtt=2 * answer.delay / 1e3,
        up_rate=answer.network.bytes_per_second,
    )
    token_bytes = (answer.sent / messages + ENCRYPTED) / length
    short, long = math.floor(length), math.ceil(length)
    part = length - short  # of the rounds that are `long`, as if there were no other lengths
    rounds = ((short, 1.0 - part), (long, part))
    if mode.ahead:
        seconds = sum(share * ahead_seconds(times, alpha, each, token_bytes) for each, share in rounds)
        first = sum(share * (expected_tokens(alpha, each) - alpha**each) for each, share in rounds)
    else:
        first = sum(share * expected_tokens(alpha, each) for each, share in rounds)
        seconds = sum(share * round_seconds(times, alpha, each, token_bytes) for each, share in rounds) / first
    return 1e3 * seconds * max(0.0, answer.tokens - first) / (answer.tokens - 1)


def proposals(answer: Answered, mode: Mode) -> float:
    """Proposals that were sent. Drafting ahead there are more than verdicts; their bytes tell how many."""
    if not mode.ahead:
        return float(max(1, answer.rounds))
    return max(1.0, (answer.sent - TOKEN * answer.drafted) / FRAME)


def chunk(answer: Answered, mode: Mode) -> float:
    """Mean tokens of a proposal."""
    if mode.ahead:
        return max(1.0, answer.drafted / proposals(answer, mode))
    return max(1.0, answer.proposed)
