"""Both models of an answer ask the rule of growth, which is computed once for each draft step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.answer.driver import NullObserver
from common.answer.values import ROOT, SideDraft, TreeWork
from common.methods.edgellm.device import TreeDriver, TreeHistory
from common.methods.edgellm.growth import (
    AdaptiveGrowth,
    Agreement,
    BestFirst,
    Candidate,
    EvenGrowth,
    Growth,
    Threshold,
    TokenTree,
    TreeTimes,
    WholeTreeRule,
)
from common.methods.edgellm.rounds import TreeConfig, TreeRounds
from tests.common.methods.drafted.pump import table_model
from tests.common.methods.edgellm.table_rounds import VOCABULARY, Pair, alone
from tests.common.methods.edgellm.test_edgellm_threads import Idle


class Counted(BestFirst):
    """Counts how often it is asked."""

    asked = 0

    def leaf(self, tree: TokenTree) -> int | None:
        self.asked += 1
        return super().leaf(tree)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_draft_step_asks_the_rule_once(ahead: bool) -> None:
    chance, history = random.Random(3), TreeHistory(TreeTimes(0.001, 1.0))
    growth = Counted(16, TreeTimes(0.001, 1.0), Agreement())  # which learns no times
    rounds = TreeRounds(TreeConfig(frozenset(), 40, ahead), growth)
    driver = TreeDriver(rounds, history, Idle(), Idle(), NullObserver())

    def draft() -> bool:
        work = driver.drafter.work()
        if work is not None:
            tokens = chance.sample(range(50), 8)
            told = tuple(Candidate(token, 0.5 / 2**rank) for rank, token in enumerate(tokens))
            driver.drafter.drawn(work, drawn([SimpleNamespace(candidates=told)]), 0.001)
        return work is not None

    while not driver.over:
        while (asked := driver.verifier.work()) is None:
            assert draft()
        while draft():
            assert driver.verifier.work() == asked
        views = [SimpleNamespace(token=chance.randrange(50)) for _ in range(asked.count)]
        driver.verifier.drawn(asked, drawn(views), 1.0)
    counters = rounds.counters
    assert counters.late == 0
    assert counters.ahead > 0 or not ahead
    assert counters.drafted > 2 * counters.rounds
    assert growth.asked <= counters.drafted + (1 + ahead) * counters.rounds


def drawn(views: Sequence[Any]) -> Any:
    return [SideDraft(view, 0.0) for view in views]


class Fresh(TreeRounds):
    """Compares what it says with what the rule says now."""

    def draft(self) -> TreeWork | None:
        found, now = super().draft(), self._next_step()
        assert found == (None if now is None else now.reading)
        return found

    def verify(self) -> TreeWork | None:
        grows = not self._verifying and self._next_step() is not None
        found = super().verify()
        assert (found is None) == (grows or self.finished is not None)
        return found


@given(st.sampled_from(["best first", "adaptive", "width"]), st.integers(1, 30), st.integers(0, 2**20), st.booleans())
def test_what_is_remembered_is_what_the_rule_says(name: str, length: int, seed: int, ahead: bool) -> None:
    growth: dict[str, Growth] = {
        "best first": BestFirst(12, TreeTimes(0.01, 1.0, 0.001), Agreement()),
        "adaptive": AdaptiveGrowth(12, Threshold(0.01)),
        "width": EvenGrowth(3, 3),
    }
    target = table_model(VOCABULARY, seed, 4.0)
    drafter, config = table_model(VOCABULARY, seed + 1, 4.0, beside=target), TreeConfig(frozenset({0}), length, ahead)
    asked = Pair(config, growth[name], drafter, target, seed, 1.0, random.Random(seed))
    asked.rounds = Fresh(config, growth[name])
    assert asked.run() == alone(target, config, seed, 1.0)


class Wavering(WholeTreeRule):
    """Wants no draft and then one, as a rule may when other answers tell of their times."""

    def __init__(self) -> None:
        self._said = 0

    def leaf(self, tree: TokenTree) -> int | None:
        self._said += 1
        return None if self._said % 2 else ROOT

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return ()


def test_a_tree_that_one_model_was_told_is_complete_is_so_for_the_other() -> None:
    """Or both would wait, and nobody would wake them."""
    rounds = TreeRounds(TreeConfig(frozenset(), 4), Wavering())
    assert rounds.draft() is None
    assert rounds.verify() is not None
