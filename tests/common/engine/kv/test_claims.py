"""Claims of KV memory: all or nothing, in order, without a cycle, for a bounded time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common.engine.kv.line import KvTooLargeError, KvWaitError
from common.engine.kv.memory import Claim, KvMemory, LayerShape, Layout, Need

LAYOUT = Layout((LayerShape(1, 1, 1),), torch.float32, torch.device("cpu"))
SLOT = 64 * LAYOUT.token_bytes
PARTS = st.tuples(st.integers(0, 1), st.integers(1, 8), st.sampled_from((64, 96, 128)))  # memory, rows, tokens


def memory(slots: int, lazy: bool = True) -> KvMemory:
    return KvMemory(LAYOUT, 1024, slots * SLOT, lazy=lazy)


def claim(*needs: tuple[KvMemory, int]) -> Claim:
    """A claim of so many slots of each memory."""
    return Claim([Need(each, slots, 64) for each, slots in needs])


def nobody() -> None:
    """A thread that has nothing to do."""


def has_all(claim: Claim) -> bool:
    return all(part.rows(nobody) is not None for part in claim.parts)


class Calls:
    """Counts how often a thread was woken."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class TestClaims:
    def test_both_parts_or_none(self) -> None:
        one = memory(10)
        first = claim((one, 6))
        second = claim((one, 3), (one, 2))  # 3 would fit
        assert has_all(first)
        assert [part.rows(nobody) for part in second.parts] == [None, None]
        assert one.used_bytes == 6 * SLOT
        first.parts[0].leave()
        assert has_all(second)
        assert one.used_bytes == 5 * SLOT

    def test_of_two_memories(self) -> None:
        one, other = memory(10), memory(10)
        held = claim((other, 8))
        both = claim((one, 5), (other, 5))
        assert (one.used_bytes, other.used_bytes) == (0, 8 * SLOT)
        held.parts[0].leave()
        assert has_all(both)
        assert (one.used_bytes, other.used_bytes) == (5 * SLOT, 5 * SLOT)

    def test_two_that_want_the_same_in_the_other_order(self) -> None:
        one, other = memory(10), memory(10)
        first, second = claim((one, 6), (other, 6)), claim((other, 6), (one, 6))
        assert has_all(first)
        assert not has_all(second)
        first.withdraw()
        assert one.used_bytes == 6 * SLOT, "what jobs have taken is theirs to give back"
        for part in first.parts:
            part.leave()
        assert has_all(second)

    def test_a_large_one_has_its_turn(self) -> None:
        one = memory(10)
        running = [claim((one, 5)), claim((one, 5))]
        large, small = claim((one, 10)), claim((one, 1))
        running[0].parts[0].leave()
        assert not has_all(large)
        assert not has_all(small), "it came later"
        running[1].parts[0].leave()
        assert has_all(large)
        assert not has_all(small)
        large.parts[0].leave()
        assert has_all(small)

    def test_whoever_leaves_the_line_holds_nobody_up(self) -> None:
        one, other = memory(10), memory(10)
        running = claim((one, 5))
        large, small = claim((one, 10), (other, 10)), claim((other, 1))
        assert not has_all(small)
        large.withdraw()
        assert has_all(small)
        assert [part.rows(nobody) for part in large.parts] == [None, None]
        running.parts[0].leave()
        assert (one.used_bytes, len(one.line), len(other.line)) == (0, 0, 0)

    def test_what_never_fits_is_refused_at_once(self) -> None:
        one = memory(10)
        with pytest.raises(KvTooLargeError, match=f"set kv_bytes to {11 * SLOT} or more") as caught:
            claim((one, 6), (one, 5))
        assert (caught.value.needed, caught.value.free) == (11 * SLOT, 10 * SLOT)
        assert (one.used_bytes, len(one.line)) == (0, 0)

    def test_those_who_wait_are_woken(self) -> None:
        one = memory(10)
        first, second = claim((one, 10)), claim((one, 10))
        calls = Calls()
        assert second.parts[0].rows(calls) is None
        assert calls.count == 0
        first.parts[0].leave()
        assert calls.count == 1
        assert second.waited >= 0.0

    def test_a_wait_is_bounded(self) -> None:
        one = memory(10)
        claim((one, 10))
        late = claim((one, 1))
        assert late.parts[0].rows(nobody) is None
        one.patience = 0.0
        with pytest.raises(KvWaitError, match="kv_bytes"):
            late.parts[0].rows(nobody)
        late.parts[0].leave()
        assert not one.line

    def test_spare_slots_keep_nobody_from_what_there_is(self) -> None:
        """A chunk that is kept has slots for others, which an answer of two parts may need elsewhere."""
        one = memory(40, lazy=False)
        one.give_back(one.take(1, 64))
        assert one.committed_bytes > SLOT
        assert has_all(claim((one, 1), (one, 39)))

    def test_it_is_left_once(self) -> None:
        one = memory(10)
        only = claim((one, 4))
        for _ in range(3):
            only.parts[0].leave()
            only.withdraw()
        assert one.used_bytes == 0


class Line(RuleBasedStateMachine):
    """Answers of one or two jobs on two memories come, begin, and go, or give up before they begin."""

    lazy: bool

    @initialize()
    def begin(self) -> None:
        self.memories = [memory(12, self.lazy), memory(8, self.lazy)]
        self.waiting: list[Claim] = []
        self.running: list[Claim] = []

    @rule(
        parts=st.lists(
            st.tuples(st.integers(0, 1), st.integers(1, 8), st.sampled_from((64, 96, 128))), min_size=1, max_size=3
        )
    )
    def claim(self, parts: list[tuple[int, int, int]]) -> None:
        needs = [Need(self.memories[which], rows, tokens) for which, rows, tokens in parts]
        try:
            made = Claim(needs)
        except KvTooLargeError:
            return
        self.waiting.append(made)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """One leaves, wherever it stands."""
        if known := [*self.waiting, *self.running]:
            gone = data.draw(st.sampled_from(known))
            (self.running if gone in self.running else self.waiting).remove(gone)
            for part in gone.parts:
                part.leave()

    @invariant()
    def all_or_nothing(self) -> None:
        for each in list(self.waiting):
            placed = [part.rows(nobody) is not None for part in each.parts]
            assert all(placed) or not any(placed)
            if all(placed):
                self.waiting.remove(each)
                self.running.append(each)

    @invariant()
    def in_order_and_within_the_budget(self) -> None:
        for each in self.memories:
            wanting = [one for one in self.waiting if each in one.memories]
            assert list(each.line) == wanting
            assert each.used_bytes <= each.committed_bytes <= (each.limit_bytes or 0)

    @invariant()
    def the_first_waits_for_nobody_who_waits(self) -> None:
        """Whoever came first of all waits for what running answers hold, and for nothing else."""
        if self.waiting:
            assert all(each.line[0] is self.waiting[0] for each in self.waiting[0].memories)
            assert self.running

    def teardown(self) -> None:
        """Running answers end: all get what they want, one after the other."""
        while self.running:
            for part in self.running.pop(0).parts:
                part.leave()
            self.all_or_nothing()
        assert not self.waiting
        assert all(each.used_bytes == 0 for each in self.memories)


class LazyLine(Line):
    lazy = True


class AllocatedLine(Line):
    lazy = False


TestLazyLine = LazyLine.TestCase
TestAllocatedLine = AllocatedLine.TestCase


def test_mutant_parts_by_themselves() -> None:
    """Parts that are claimed one after the other, as if they were answers: two answers wait for each other for ever."""
    one = memory(10)
    verifiers = [claim((one, 4)), claim((one, 4))]
    drafters = [claim((one, 4)), claim((one, 4))]
    assert all(map(has_all, verifiers))
    assert not any(map(has_all, drafters))
    assert len(one.line) == 2
