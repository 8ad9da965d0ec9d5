"""Slots of KV memory that share tensors, and what the system has given for them.

On a CPU, memory is given when a slot is first written to, and what free slots have can be given back; elsewhere a chunk
is allocated as a whole.
"""

from __future__ import annotations

import math
import mmap
from itertools import groupby

import torch

from common.engine.kv.errors import KvAllocationError
from common.engine.kv.layout import Layout


class Chunk:
    """Slots of one capacity. Keys and values `[slots, kv_heads, capacity, dim]`, a tensor each per layer, once they are
    allocated. `lazy`: the system gives memory when a slot is first written to.
    """

    __slots__ = ("_layout", "_lazy", "_maps", "_written", "capacity", "free", "keys", "values")

    def __init__(self, layout: Layout, slots: int, capacity: int, lazy: bool) -> None:
        self._layout, self._lazy, self.capacity = layout, lazy, capacity
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.free = [True] * slots
        self._written = [False] * slots  # since the system has them back
        self._maps: list[mmap.mmap] = []

    @property
    def slots(self) -> int:
        return len(self.free)

    @property
    def empty(self) -> bool:
        return all(self.free)

    @property
    def committed(self) -> int:
        """Slots whose memory the system has given, or has to give to those who took them."""
        return sum(self._written) if self._lazy else self.slots

    def gap(self, rows: int) -> int | None:
        """The first of `rows` consecutive free slots, the lowest there are; None without such a gap."""
        run = 0
        for slot, free in enumerate(self.free):
            run = run + 1 if free else 0
            if run == rows:
                return slot + 1 - rows
        return None

    def cost(self, start: int, rows: int) -> int:
        """Slots by which `committed` grows when `rows` slots from `start` on are taken."""
        return self._written[start : start + rows].count(False) if self._lazy else 0

    def take(self, start: int, rows: int) -> None:
        self.free[start : start + rows] = [False] * rows
        self._written[start : start + rows] = [True] * rows

    def give_back(self, start: int, rows: int) -> None:
        self.free[start : start + rows] = [True] * rows

    def widen(self, slots: int) -> None:
        """Add free slots to a chunk that is not allocated yet."""
        self.free += [True] * slots
        self._written += [False] * slots

    @property
    def allocated(self) -> bool:
        return bool(self.keys)

    def allocate(self) -> None:
        """Make the tensors. Raises `KvAllocationError`; then there are none."""
        if self.allocated:
            return
        layers, slots, capacity = self._layout.layers, self.slots, self.capacity
        maps: list[mmap.mmap] = []
        try:
            keys = [self._zeros((slots, each.kv_heads, capacity, each.key_dim), maps) for each in layers]
            values = [self._zeros((slots, each.kv_heads, capacity, each.value_dim), maps) for each in layers]
        except (OSError, RuntimeError, MemoryError):  # of a mapping, of torch on its device
            raise KvAllocationError(slots * capacity * self._layout.token_bytes) from None
        self.keys, self.values, self._maps = keys, values, maps

    def shed(self) -> None:
        """Give the memory of free slots back to the system, where that is possible: they read as zeros then."""
        if not self._lazy:
            return
        for (free, written), run in groupby(range(self.slots), lambda slot: (self.free[slot], self._written[slot])):
            if free and written:
                slots = list(run)
                for each in self._maps:
                    _discard(each, len(each) // self.slots * slots[0], len(each) // self.slots * (slots[-1] + 1))
                self._written[slots[0] : slots[-1] + 1] = [False] * len(slots)

    def _zeros(self, shape: tuple[int, ...], maps: list[mmap.mmap]) -> torch.Tensor:
        """Zeros, not empty memory: attention multiplies masked columns by 0, and 0 * NaN is NaN.

        On a CPU, pages of an anonymous mapping take no memory before something is written to them. Allocators give that
        out again which was freed, and write the zeros.
        """
        dtype = self._layout.dtype
        if not self._lazy:
            return torch.zeros(shape, dtype=dtype, device=self._layout.torch_device)
        blank = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        maps.append(blank)
        return torch.frombuffer(blank, dtype=dtype).view(shape)


def _discard(mapping: mmap.mmap, start: int, stop: int) -> None:
    """Give the whole pages between two bytes of a mapping back to the system."""
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
