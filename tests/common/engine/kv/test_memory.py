"""The budget of KV memory holds for what the system gives, whatever comes and goes; a failure costs nothing."""

from __future__ import annotations

import mmap
import resource
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common.engine.kv.line import KvAllocationError, KvMemoryFullError
from common.engine.kv.memory import KvMemory, LayerShape, Layout, Rows, SlotChunk, limit_on, slot_capacity

CONTEXT = 1024
TOKEN = 2 * 2 * (4 + 2) * 4  # bytes, of `small`


def small(torch_device: str = "cpu") -> Layout:
    return Layout((LayerShape(2, 4, 2),) * 2, torch.float32, torch.device(torch_device))


def allocated(memory: KvMemory) -> int:
    """Bytes of all tensors there are."""
    tensors = [each for chunk in memory._chunks for each in (*chunk.keys, *chunk.values)]
    return sum(each.numel() * each.element_size() for each in tensors)


def slots_of(rows: Rows) -> set[tuple[int, int]]:
    return {(id(rows.chunk), slot) for slot in range(rows.start, rows.start + len(rows))}


class Taking(RuleBasedStateMachine):
    """Rows of all sizes come and go."""

    lazy: bool

    @initialize(slots=st.integers(8, 200))
    def begin(self, slots: int) -> None:
        self.limit = slots * 64 * TOKEN
        self.memory = KvMemory(small(), CONTEXT, self.limit, lazy=self.lazy)
        self.held: list[Rows] = []

    @rule(rows=st.integers(1, 20), tokens=st.integers(1, CONTEXT))
    def take(self, rows: int, tokens: int) -> None:
        needed = rows * slot_capacity(tokens, CONTEXT) * TOKEN
        free = self.limit - self.memory.used_bytes
        try:
            self.held.append(self.memory.take(rows, tokens))
        except KvMemoryFullError:
            assert needed > free or (not self.lazy and self.held), "what is free is there for whoever asks"
        else:
            assert needed <= free

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.held:
            self.memory.give_back(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @invariant()
    def within_the_budget(self) -> None:
        assert self.memory.used_bytes == sum(len(rows) * rows.chunk.capacity for rows in self.held) * TOKEN
        assert self.memory.used_bytes <= self.memory.committed_bytes <= self.limit
        if not self.lazy:
            assert allocated(self.memory) == self.memory.committed_bytes

    @invariant()
    def nobody_shares_a_slot(self) -> None:
        assert len(set().union(*map(slots_of, self.held))) == sum(map(len, self.held))


class TakingLazily(Taking):
    lazy = True


class TakingAtOnce(Taking):
    lazy = False


TestTakingLazily = TakingLazily.TestCase
TestTakingAtOnce = TakingAtOnce.TestCase


class TestAllocatedAtOnce:
    """Memory that the system gives when it is asked for, as on a GPU."""

    def test_a_large_model_stays_within_its_budget(self) -> None:
        layout = Layout((LayerShape(5, 64, 64),) * 32, torch.bfloat16, torch.device("meta"))
        memory = KvMemory(layout, 8192, 2**30)
        for rows, tokens in ((5, 700), (1, 6000), (1, 70), (5, 700)):
            taken = memory.take(rows, tokens)
            assert allocated(memory) == memory.committed_bytes <= 2**30
            memory.give_back(taken)

    def test_rows_of_several_answers_share_a_chunk(self) -> None:
        memory = KvMemory(small("meta"), CONTEXT, 2**24)
        one, other = memory.take(2, 60), memory.take(3, 60)
        assert one.chunk is other.chunk
        assert other.start == 2

    def test_what_is_kept_for_the_next_answer_makes_room_for_another_size(self) -> None:
        memory = KvMemory(small(), CONTEXT, 8 * 64 * TOKEN, lazy=False)
        memory.give_back(memory.take(8, 64))
        kept = allocated(memory)
        assert kept == 8 * 64 * TOKEN
        memory.take(4, 128)
        assert allocated(memory) == kept


@torch.inference_mode()
def test_free_slots_go_back_to_the_system() -> None:
    """Answers of one size after another take nearly all there is; of each size, one with a single row stays."""
    layout = Layout((LayerShape(4, 64, 64),), torch.float32, torch.device("cpu"))
    memory = KvMemory(layout, 8192, 72 * 2**20)
    before = resident()
    for capacity in (512, 768, 1024, 1536):
        memory.take(1, capacity)
        rows = memory.take(60 * 2**20 // (capacity * layout.token_bytes), capacity)
        for each in (*rows.chunk.keys, *rows.chunk.values):
            each[rows.start : rows.start + len(rows)].fill_(1.0)
        assert memory.committed_bytes <= 72 * 2**20
        assert resident() - before < 90 * 2**20
        memory.give_back(rows)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@contextmanager
def short_of_memory(spare: int) -> Iterator[None]:
    """This process may have so many bytes more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("place", "wanted", "share", "limit"),
    [
        ("cpu", 7, 1.0, 7),
        ("cpu", None, 1.0, None),
        ("cuda", 10**12, 1.0, 3000),
        ("cuda", 7, 1.0, 7),
        ("cuda", None, 1.0, 3000),
        ("cuda", None, 0.25, 1500),  # 4000, of which its weights have 2000
        ("cuda", None, 0.0625, 1),
    ],
)
def test_a_gpu_limits_it(
    place: str, wanted: int | None, share: float, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it has free, of the part that this process may have."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (4000, 16_000))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda.memory, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_getMemoryFraction", lambda index: (share, 1.0)[index], raising=False)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2000)
    assert limit_on(torch.device(place), wanted) == limit


class TestFailures:
    LAYOUT = Layout((LayerShape(4, 64, 64),) * 4, torch.float32, torch.device("cpu"))

    @pytest.mark.parametrize("lazy", [True, False])
    def test_what_the_machine_does_not_have_is_not_counted(self, lazy: bool) -> None:
        memory = KvMemory(self.LAYOUT, 8192, 2**31, lazy=lazy)
        with short_of_memory(2**26):
            for _ in range(5):
                with pytest.raises(KvAllocationError, match="kv_bytes"):
                    memory.take(16, 8192)
        assert (memory.used_bytes, memory.committed_bytes) == (0, 0)
        assert len(memory.take(2, 4096)) == 2

    def test_what_is_kept_for_the_next_answer_makes_room_where_the_machine_has_no_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And so does what was made of the chunk before the machine had no more."""
        memory, zeros, made = KvMemory(self.LAYOUT, 8192, 2**31, lazy=False), torch.zeros, list[Any]()
        kept = memory.take(1, 64)
        room = 2 * len(kept.chunk.free) * 64 * self.LAYOUT.token_bytes  # for a chunk of twice the capacity, alone

        def limited(*arguments: Any, **options: Any) -> torch.Tensor:
            tensor = zeros(*arguments, **options)
            made.append(weakref.ref(tensor))
            if sum(each.nbytes for reference in made if (each := reference()) is not None) > room:
                raise RuntimeError("out of memory")
            return tensor

        made += [weakref.ref(each) for each in (*kept.chunk.keys, *kept.chunk.values)]
        memory.give_back(kept)
        del kept
        monkeypatch.setattr(torch, "zeros", limited)
        assert len(memory.take(2, 128)) == 2

    def test_part_of_a_chunk_is_not_kept(self) -> None:
        chunk = SlotChunk(self.LAYOUT, 64, 4096, lazy=True)
        with short_of_memory(2**30), pytest.raises(KvAllocationError):
            chunk.allocate()
        assert not chunk.allocated
        assert (chunk.keys, chunk.values) == ([], [])
