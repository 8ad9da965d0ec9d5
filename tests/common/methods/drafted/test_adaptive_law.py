"""Answers follow the verifier's law whatever chooses the lengths of proposals, and whatever that has learnt from.

Whole answers through both machines and the wire, with real seeds, by every policy, over a slow link under a virtual
clock. Seeds are fixed, so a test fails or it does not; over all seeds, a right implementation fails one of these with
probability 1e-6. Where the randomness of discarded drafts comes back, lengths that were learnt from them decide whether
a position is drafted, and its token has another law.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from common.methods.drafted.method import Scheme
from common.methods.rapid.rapid import RapidScheme
from common.sampling.compiled import Purpose, uniform
from common.sampling.rejection import augmented
from tests.common.methods.drafted.pump import Model, mixture
from tests.common.methods.drafted.schemes import scheme_and_request
from tests.common.methods.drafted.slow_link import SlowLink, answer

FALSE_ALARM = 1e-6
ONE_WAY = 0.016  # seconds
SLOW = 0.4  # seconds of a pass: of a verifier for which it is worth to draft
WIDE = 256  # tokens, so that an even distribution takes many bytes
COIN = 4  # position of the token that is looked at
TOKENS = 8
ANSWERS = 200


def certain(token: int) -> NDArray[np.float64]:
    law = np.zeros(WIDE)
    law[token] = 1.0
    return law


EVEN = np.full(WIDE, 1.0 / WIDE)
FAIR = (certain(0) + certain(1)) / 2


def coin_drafter(path: Sequence[int]) -> NDArray[np.float64]:
    """Wrong at first, so that all that is drafted behind is thrown away. What follows the coin is sure or even: on the
    coin depends how many bytes a proposal has, and so how long the next one is, which may reach the coin again, and
    then leaves it as it was drafted.
    """
    place = len(path)
    if place < COIN:
        return certain(5 if place == 0 else 7)
    if place == COIN:
        return FAIR
    return certain(9) if path[COIN] == 0 else EVEN


def coin_verifier(path: Sequence[int]) -> NDArray[np.float64]:
    place = len(path)
    if place < COIN:
        return certain(6 if place == 0 else 7)
    return FAIR if place == COIN else EVEN


def p_value_of_coins(method: str, rate: float, **fields: Any) -> float:
    """Probability of a share of heads as far from a half as this one. Each answer's policy begins without knowledge,
    and learns from its first rounds.
    """
    heads, lengths = 0, set[int]()
    for seed in range(ANSWERS):
        scheme, request = scheme_and_request(method, WIDE, TOKENS, draft_policy="goodput", seed=seed, **fields)
        link = SlowLink(ONE_WAY, rate / 8, SLOW)
        tokens, proposals = answer(scheme, request, coin_drafter, coin_verifier, link, link.history(), COIN + 1)
        heads += tokens[COIN] == 0
        lengths.add(proposals[1])
    assert len(lengths) > 1  # the second proposal's, which the first one has taught
    return float(stats.binomtest(heads, ANSWERS, 0.5).pvalue)


COINS: list[tuple[str, float, dict[str, Any]]] = [  # bits per second at which the lengths depend on the coin
    ("qsv", 5e3, {"resolution": 64}),
    ("dsd", 40e3, {"top_k": 0}),
    ("rapid", 40e3, {"top_k": 0, "eta": 0.0}),
]


class TestLengthsLearntFromDiscardedDrafts:
    """The power of these: heads at .75 where the right share is .5. 200 answers tell that with a p-value below 1e-6
    for 99 of 100 sets of seeds. What dssd sends has the same bytes for every draft.
    """

    @pytest.mark.parametrize(("method", "rate", "fields"), COINS)
    def test_leave_the_law_as_it_is(self, method: str, rate: float, fields: dict[str, Any]) -> None:
        assert p_value_of_coins(method, rate, **fields) > FALSE_ALARM

    @pytest.mark.parametrize(("method", "rate", "fields"), COINS[:2])
    def test_mutant_drafts_drawn_by_position_alone(
        self, method: str, rate: float, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A draft behind another prefix is drawn by the uniform that was drawn by before."""

        def by_position(seed: int, position: int, purpose: Purpose, prefix: int) -> float:
            return uniform(seed, position, purpose, 0 if purpose == Purpose.PROPOSE else prefix)

        monkeypatch.setattr("common.sampling.compiled.uniform", by_position)
        assert p_value_of_coins(method, rate, **fields) < FALSE_ALARM


# --- answers of all methods by all policies, whose history goes on from answer to answer

NARROW = 8
LONG = 24  # tokens
MANY = 30  # answers


def state(path: Sequence[int]) -> tuple[int, int]:
    """The state that the distributions behind `path` depend on."""
    return len(path) % 2, path[-1] % 3 if path else 3


def chain(bent: bool) -> Model:
    """A model that has forgotten all but `state`; `bent`: half of its tokens are twice as probable, the others rare."""
    random = np.random.default_rng(1)
    rows = random.dirichlet(np.full(NARROW, 4.0), size=(2, 4))
    if bent:
        rows *= np.where(random.permuted(np.tile(np.arange(NARROW), (2, 4, 1)), axis=-1) % 2, 2.0, 0.1)
        rows /= rows.sum(axis=-1, keepdims=True)

    def model(path: Sequence[int]) -> NDArray[np.float64]:
        row: NDArray[np.float64] = rows[state(path)]
        return row

    return model


VERIFIER = chain(bent=False)
DRAFTER = chain(bent=True)
POLICIES: list[tuple[str, str, dict[str, Any]]] = [
    *((method, policy, {"top_k": 0}) for method in ("dsd", "dssd", "qsv") for policy in ("goodput", "heuristic")),
    *((method, "confidence", {"top_k": 0}) for method in ("dssd", "qsv")),
    *((method, "goodput", {"top_k": 0, "ahead": True}) for method in ("dssd", "qsv")),
    ("dsd", "fixed", {"top_k": 5, "top_p": 0.95, "temperature": 0.8, "draft_temperature": 1.3}),
    ("qsv", "ddqn", {}),
    ("rapid", "goodput", {"top_k": 0, "eta": 5.0}),
    ("rapid", "heuristic", {"top_k": 0, "eta": 5.0, "draft_codec": "lattice", "resolution": 16}),
]


def promised(scheme: Scheme, path: Sequence[int]) -> NDArray[np.float64]:
    """The law of the token behind `path`, `[vocab]`."""
    at = len(path)
    law = scheme.verifier.drafted(at, mixture(VERIFIER, path), None).distribution  # type: ignore[attr-defined]
    if isinstance(scheme, RapidScheme):
        drafter: Any = scheme.drafter.drafted(at, mixture(DRAFTER, path), None)
        law = augmented(law, drafter.distribution, scheme.judge.eta)
    whole: NDArray[np.float64] = law.at(np.arange(NARROW))
    return whole


def p_value_of_answers(method: str, policy: str, verify: float = SLOW, **fields: Any) -> tuple[float, set[int]]:
    """Of a G-test of all tokens behind what they depend on; and the lengths that there were, 0 where nobody drafted."""
    link = SlowLink(0.05, 40e3 / 8, verify)
    history = link.history()
    counts: dict[tuple[int, int], NDArray[np.int64]] = defaultdict(lambda: np.zeros(NARROW, np.int64))
    laws: dict[tuple[int, int], NDArray[np.float64]] = {}
    lengths: Counter[int] = Counter()
    for seed in range(MANY):
        scheme, request = scheme_and_request(method, NARROW, LONG, draft_policy=policy, seed=seed, **fields)
        tokens, proposals = answer(scheme, request, DRAFTER, VERIFIER, link, history)
        lengths.update(proposals)
        for place, token in enumerate(tokens):
            before = tokens[:place]
            counts[state(before)][token] += 1
            if state(before) not in laws:
                laws[state(before)] = promised(scheme, before)
    statistic, freedom = 0.0, 0
    for key, found in counts.items():
        law = laws[key]
        assert found[law == 0].sum() == 0
        expected = found.sum() * law[law > 0]
        seen = found[law > 0]
        statistic += 2 * float(np.sum(np.where(seen > 0, seen * np.log(np.maximum(seen, 1) / expected), 0.0)))
        freedom += len(seen) - 1
    return float(stats.chi2.sf(statistic, freedom)), set(lengths)


class TestEveryPolicy:
    """The power is what the mutant shows: a token in place of a rejected one is wrong, which a third of the answers
    would tell with a p-value below 1e-6.
    """

    @pytest.mark.parametrize(("method", "policy", "fields"), POLICIES)
    def test_answers_follow_the_law(self, method: str, policy: str, fields: dict[str, Any]) -> None:
        found, lengths = p_value_of_answers(method, policy, **fields)
        assert found > FALSE_ALARM
        assert len(lengths) > 1

    @pytest.mark.parametrize("method", ["dsd", "dssd"])
    def test_mutant_a_residual_from_the_uniform_of_acceptance(
        self, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is known to be large, or the token would not have been rejected."""

        def one_for_both(seed: int, position: int, purpose: Purpose, prefix: int) -> float:
            return uniform(seed, position, Purpose.ACCEPT if purpose == Purpose.RESIDUAL else purpose, prefix)

        monkeypatch.setattr("common.sampling.compiled.uniform", one_for_both)
        assert p_value_of_answers(method, "goodput", top_k=0)[0] < FALSE_ALARM


class TestReproducible:
    """Ahead, every token is proposed, and drawn by the uniforms of its prefix: lengths don't decide by which."""

    def answers(self, method: str, seed: int, **fields: Any) -> set[tuple[int, ...]]:
        """Those of one seed by several lengths, which are fixed or learnt."""
        found = set()
        link = SlowLink(0.05, 40e3 / 8)
        history = link.history()
        for policy, length in (("fixed", 1), ("fixed", 2), ("fixed", 5), ("goodput", 6), ("heuristic", 6)):
            given = {"draft_policy": policy, "draft_length": length, "seed": seed} | fields
            scheme, request = scheme_and_request(method, NARROW, LONG, (7,), **given)
            found.add(tuple(answer(scheme, request, DRAFTER, VERIFIER, link, history)[0]))
        return found

    @pytest.mark.parametrize("method", ["dsd", "dssd", "qsv"])
    def test_drafting_ahead_the_seed_alone_tells_the_answer(self, method: str) -> None:
        assert [len(self.answers(method, seed, ahead=True)) for seed in range(12)] == [1] * 12

    @pytest.mark.parametrize("method", ["dsd", "dssd", "qsv"])
    def test_with_a_bonus_the_ends_of_proposals_do_too(self, method: str) -> None:
        assert any(len(self.answers(method, seed)) > 1 for seed in range(6))
