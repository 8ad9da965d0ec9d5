"""The answer is the verifier's alone with the same seed, whatever is drafted, at every temperature."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.answer.values import ROOT, TreeWork
from common.methods.edgellm import rounds as rounds_module
from common.methods.edgellm.growth import (
    AdaptiveGrowth,
    Agreement,
    BestFirst,
    EvenGrowth,
    Growth,
    Match,
    NoGrowth,
    Threshold,
    TokenTree,
    TreeTimes,
    match,
)
from common.methods.edgellm.rounds import TreeConfig
from tests.common.methods.drafted.pump import table_model
from tests.common.methods.edgellm.table_rounds import VOCABULARY, Pair, alone

EOS = frozenset({0})
GROWTHS: dict[str, Callable[[float], Growth]] = {  # by the paper's threshold
    "best first": lambda alpha: BestFirst(12, TreeTimes(0.01, 1.0, 0.001), Agreement()),
    "best first, large": lambda alpha: BestFirst(64, TreeTimes(alpha / 100, 1.0), Agreement()),
    "best first, dear": lambda alpha: BestFirst(8, TreeTimes(0.1, 1.0, alpha), Agreement()),
    "adaptive": lambda alpha: AdaptiveGrowth(12, Threshold(alpha)),
    "tiny": lambda alpha: AdaptiveGrowth(2, Threshold(alpha)),
    "chain": lambda alpha: EvenGrowth(4),
    "width": lambda alpha: EvenGrowth(3, 3),
    "none": lambda alpha: NoGrowth(),
}


def pair(
    growth: str,
    likeness: str,
    length: int,
    temperature: float,
    seed: int,
    ahead: bool,
    alpha: float,
    eos: frozenset[int] = EOS,
) -> Pair:
    target = table_model(VOCABULARY, seed, 4.0)
    drafter = {
        "same": target,
        "near": table_model(VOCABULARY, seed + 1, 4.0, beside=target),
        "other": table_model(VOCABULARY, seed + 2, 4.0),
    }[likeness]
    config = TreeConfig(eos, length, ahead)
    chance = random.Random(seed)
    return Pair(config, GROWTHS[growth](alpha), drafter, target, seed, temperature, chance)


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(GROWTHS)),
    st.sampled_from(["same", "near", "other"]),
    st.integers(1, 30),
    st.sampled_from([0.0, 0.7, 1.0, 1.5]),
    st.integers(0, 2**20),
    st.booleans(),
    st.sampled_from([1e-4, 0.01, 0.3]),
)
def test_tokens_are_the_verifiers(
    growth: str, likeness: str, length: int, temperature: float, seed: int, ahead: bool, alpha: float
) -> None:
    asked = pair(growth, likeness, length, temperature, seed, ahead, alpha)
    assert asked.run() == alone(asked.target, asked.config, seed, temperature)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_drafter_that_is_the_verifier_is_believed(ahead: bool) -> None:
    passes, kept, rejected = [], 0, 0
    for seed in range(20):
        asked = pair("chain", "same", 30, 0.0, seed, ahead, 0.01, frozenset())
        tokens = asked.run()
        counters = asked.rounds.counters
        rejected += counters.rejected  # where two probabilities have the same code
        passes.append(counters.rounds / len(tokens))
        kept += counters.kept
        assert counters.kept <= counters.ahead
    assert sum(passes) / len(passes) < 0.4
    assert rejected <= 5
    assert (kept > 20) == ahead


def test_the_next_tree_begins_with_what_was_drafted_ahead() -> None:
    asked = pair("chain", "same", 30, 0.0, 3, True, 0.01, frozenset())
    while (wanted := asked.rounds.draft()) is not None:
        asked.draft(wanted)
    verification = asked.rounds.verify()
    assert verification is not None
    for _ in range(3):
        wanted = asked.rounds.draft()
        assert wanted is not None
        asked.draft(wanted)
    promised = asked.rounds.provisional
    asked.verify(verification)
    assert len(asked.tokens) == 5
    assert (*asked.tokens, *asked.rounds.provisional) == promised
    wanted = asked.rounds.draft()
    assert wanted is not None
    assert (*wanted.path, *wanted.tokens) == promised


class TestMutants:
    """Each changes one thing that the law rests on; the comparison above must notice."""

    @pytest.fixture(params=["adaptive", "best first"], autouse=True)
    def growth(self, request: pytest.FixtureRequest) -> None:
        self.chosen = request.param

    def differs(self) -> bool:
        def one(seed: int) -> bool:
            asked = pair(self.chosen, "near", 25, 1.0, seed, True, 0.01)
            try:
                return asked.run() != alone(asked.target, asked.config, seed, 1.0)
            except (AssertionError, KeyError):
                return True

        return any(one(seed) for seed in range(40))

    def test_unchanged(self) -> None:
        assert not self.differs()

    def test_a_child_is_taken_that_was_not_drawn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def hasty(tree: TokenTree, drawn: dict[int, int]) -> Match:
            found = match(tree, drawn)
            first = next((node for node, parent in enumerate(tree.parents) if parent == ROOT), None)
            if found.nodes or first is None or tree.ends(first):
                return found
            return Match((first,), drawn[first], found.whole)

        monkeypatch.setattr(rounds_module, "match", hasty)
        assert self.differs()

    def test_a_token_drawn_behind_another_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def confused(tree: TokenTree, drawn: dict[int, int]) -> Match:
            found = match(tree, drawn)
            return found if found.token is None else Match(found.nodes, drawn[ROOT], found.whole)

        monkeypatch.setattr(rounds_module, "match", confused)
        assert self.differs()

    def test_a_position_by_place_instead_of_depth(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The noise of a node's place in the tree: paths that are as long as all nodes before it."""

        def by_place(self: TreeWork) -> list[list[int]]:
            return [[*self.path, *self.tokens[:place]] for place in range(self.count)]

        monkeypatch.setattr(TreeWork, "paths", property(by_place))
        assert self.differs()

    def test_fresh_noise_for_every_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        verify = Pair.verify

        def fresh(self: Pair, reading: Any) -> None:
            self.seed += 1
            verify(self, reading)

        monkeypatch.setattr(Pair, "verify", fresh)
        assert self.differs()


def test_what_comes_too_late_changes_nothing() -> None:
    asked = pair("chain", "near", 20, 1.0, 5, False, 0.01)
    wanted = asked.rounds.draft()
    assert wanted is not None
    while (later := asked.rounds.draft()) is not None:
        asked.draft(later)
    verification = asked.rounds.verify()
    assert verification is not None
    asked.verify(verification)
    before = list(asked.tokens)
    asked.rounds.drafted(wanted, [])
    outcome = asked.rounds.verified(verification, [1] * verification.count)
    assert outcome.actions == ()
    assert asked.rounds.counters.late == 1
    assert asked.rounds.position == len(before)
