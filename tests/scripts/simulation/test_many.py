"""The run of many simulated answers: right ones are right, and it sees one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from common.methods.aggregate.drafts import DraftWork, PrefixTree
from tests.scripts.simulation.many import answer, batch


def test_answers_are_those_of_one_process() -> None:
    told = batch(3, 0, 25)
    assert (told.wrong, told.tokens > 100, told.simulated > 10) == ((), True, True)


def test_a_branch_that_passes_for_another_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    work = PrefixTree._work

    def confused(tree: PrefixTree, epoch: int, committed: Sequence[int]) -> DraftWork:
        found = work(tree, epoch, committed)
        return replace(found, prefixes=found.prefixes[::-1])

    monkeypatch.setattr(PrefixTree, "_work", confused)
    told = batch(3, 0, 25)
    assert told.wrong
    number = int(told.wrong[0].split()[1].rstrip(":"))
    assert f"--first {number} --sessions 1" in told.wrong[0]
    assert answer(3, number)[2] is not None
