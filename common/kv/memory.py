"""KV memory of running answers: slots in few large tensors, so that rows of many answers share an attention call.

An answer's rows take consecutive slots. Rows of several answers lie side by side, and the keys that a pass reads are
one view of a chunk's tensor, `[slots, kv_heads, capacity, dim]`: nothing is gathered or copied. A row's tokens fill
its slot from the start; what lies behind is never attended to and is overwritten by the next pass, so a roll-back is
an assignment. Of a tree of tokens one path is kept: its keys and values are moved together.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Sequence
from itertools import pairwise

import torch

from common.kv.layout import DocumentStates, Layout
from common.model.errors import ContextError

CHUNK_SLOTS = 64  # slots that share a tensor; memory is taken from the system when a slot is first written to
SMALLEST_CAPACITY = 64  # tokens


class KvMemoryFullError(RuntimeError):
    """The budget holds no more rows now; `needed` and `free` are bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(
            f"keys and values of this answer need {needed / 2**20:.0f} MiB, and {free / 2**20:.0f} MiB of the budget "
            "(kv_bytes) are free"
        )
        self.needed = needed
        self.free = free


def slot_capacity(tokens: int, max_context: int) -> int:
    """Tokens of the slot that a row of `tokens` tokens gets: 64, 96, 128, 192, 256, ..., at most `max_context`.

    Few sizes, so that rows of different answers lie in the same chunk.
    """
    capacity = SMALLEST_CAPACITY
    while capacity < tokens:
        larger = capacity * 3 // 2 if capacity & (capacity - 1) == 0 else capacity * 4 // 3
        capacity = larger
    return min(capacity, max(max_context, tokens))


def _zeros(shape: tuple[int, ...], layout: Layout) -> torch.Tensor:
    """Zeros, not empty memory: attention multiplies masked columns by 0, and 0 * NaN is NaN.

    On a CPU, pages of an anonymous mapping take no memory before something is written to them. Allocators give that out
    again which was freed, and write the zeros.
    """
    if torch.device(layout.torch_device).type != "cpu":
        return torch.zeros(shape, dtype=layout.dtype, device=layout.torch_device)
    blank = mmap.mmap(-1, math.prod(shape) * layout.dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(blank, dtype=layout.dtype).view(shape)


class Chunk:
    """Slots of one capacity. Keys and values `[slots, kv_heads, capacity, dim]`, a tensor each per layer."""

    __slots__ = ("capacity", "free", "keys", "slots", "values")

    def __init__(self, layout: Layout, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.keys = [_zeros((slots, shape.kv_heads, capacity, shape.key_dim), layout) for shape in layout.layers]
        self.values = [_zeros((slots, shape.kv_heads, capacity, shape.value_dim), layout) for shape in layout.layers]
        self.free = [True] * slots

    def take(self, rows: int) -> int | None:
        """The first of `rows` consecutive free slots, the lowest there are; None without such a gap."""
        run = 0
        for slot, free in enumerate(self.free):
            run = run + 1 if free else 0
            if run == rows:
                start = slot + 1 - rows
                self.free[start : slot + 1] = [False] * rows
                return start
        return None

    def give_back(self, start: int, rows: int) -> None:
        self.free[start : start + rows] = [True] * rows

    @property
    def empty(self) -> bool:
        return all(self.free)


class Rows:
    """One answer's rows, one per document: `[document][query][answer so far]`. They get the same tokens after their
    documents and move together; row r holds `starts[r] + fed` tokens.
    """

    __slots__ = ("chunk", "fed", "query", "start", "starts")

    def __init__(self, chunk: Chunk, start: int, rows: int) -> None:
        self.chunk = chunk
        self.start = start  # first slot
        self.starts = [0] * rows  # tokens of the document, per row
        self.fed = 0  # tokens that every row got after its document
        self.query = 0  # how many of them are the query

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.starts)

    @property
    def answer(self) -> int:
        """Answer tokens whose keys and values are here; negative while the query is being read."""
        return self.fed - self.query

    @property
    def context(self) -> int:
        """Tokens in the longest row."""
        return max(self.starts) + self.fed

    @torch.inference_mode()
    def fill(self, row: int, states: DocumentStates) -> None:
        """Copy a document's keys and values, `[kv_heads, tokens, dim]` per layer, to the start of a row."""
        slot, tokens = self.start + row, states[0][0].shape[1]
        for layer, (key, value) in enumerate(states):
            self.chunk.keys[layer][slot, :, :tokens].copy_(key)
            self.chunk.values[layer][slot, :, :tokens].copy_(value)
        self.starts[row] = tokens

    def alone(self, row: int) -> Rows:
        """One row by itself, to read its document into; `starts[row]` is to be set when it is read."""
        return Rows(self.chunk, self.start + row, 1)

    @torch.inference_mode()
    def states(self, row: int) -> DocumentStates:
        """A copy of what a row holds, `[kv_heads, tokens, dim]` per layer."""
        slot, tokens = self.start + row, self.starts[row] + self.fed
        return tuple(
            (keys[slot, :, :tokens].clone(), values[slot, :, :tokens].clone())
            for keys, values in zip(self.chunk.keys, self.chunk.values, strict=True)
        )

    def crop(self, answer: int) -> None:
        """Roll back to `answer` answer tokens. O(1): nothing is moved or cleared."""
        if not 0 <= answer <= self.answer:
            raise ValueError(f"can't crop to {answer} answer tokens, there are {self.answer}")
        self.fed = self.query + answer

    @torch.inference_mode()
    def keep(self, fed: int, path: Sequence[int]) -> None:
        """Of a tree that was read when every row had got `fed` tokens, keep the tokens at the places `path` and drop
        the rest. Keys know their positions, so those of a path from the root may move together: O(path).

        Raises `ValueError` for places that are not there or don't increase.
        """
        nodes = self.fed - fed
        if fed < 0 or any(not before < place < nodes for before, place in pairwise((-1, *path))):
            raise ValueError(f"can't keep {list(path)} of {nodes} tokens: places must increase")
        still = next((index for index, place in enumerate(path) if place != index), len(path))
        if still < len(path):
            slots = torch.arange(self.start, self.start + len(self))[:, None]
            bases = torch.tensor(self.starts)[:, None] + fed
            sources, targets = bases + torch.tensor(path[still:]), bases + torch.arange(still, len(path))
            for states in (*self.chunk.keys, *self.chunk.values):
                states[slots, :, targets] = states[slots, :, sources]
        self.fed = fed + len(path)

    def check_room(self, tokens: int) -> None:
        """Raise `ContextError` unless `tokens` more fit into every row."""
        needed = self.context + tokens
        if needed > self.chunk.capacity:
            raise ContextError(
                f"a row of {needed} tokens exceeds the {self.chunk.capacity} that were reserved for it",
                needed=needed,
                limit=self.chunk.capacity,
            )


class KvMemory:
    """All rows of a process, within `limit_bytes` (None: unlimited). Rows are taken and freed by one thread; the
    account may be asked by any.
    """

    def __init__(self, layout: Layout, max_context: int, limit_bytes: int | None = None) -> None:
        if limit_bytes is not None and limit_bytes < 1:
            raise ValueError(f"kv_bytes must be positive, not {limit_bytes}")
        self.layout = layout
        self.limit_bytes = limit_bytes
        self._max_context = max_context
        self._chunks: list[Chunk] = []
        self._used = 0
        self._lock = threading.Lock()  # of `_used`

    @property
    def used_bytes(self) -> int:
        """Bytes of the slots that are taken."""
        return self._used

    def needed_bytes(self, rows: int, tokens: int) -> int:
        """Bytes that `rows` rows of up to `tokens` tokens take."""
        return rows * slot_capacity(tokens, self._max_context) * self.layout.token_bytes

    def free_bytes(self) -> int | None:
        """Bytes that are left of the budget; None where there is no limit."""
        return None if self.limit_bytes is None else max(self.limit_bytes - self._used, 0)

    def fits(self, needed: int) -> bool:
        """Whether `needed` bytes are free now."""
        return self.limit_bytes is None or self._used + needed <= self.limit_bytes

    def take(self, rows: int, tokens: int) -> Rows:
        """Empty rows with room for `tokens` tokens each. Raises `KvMemoryFullError`."""
        needed = self.needed_bytes(rows, tokens)
        with self._lock:
            if not self.fits(needed):
                raise KvMemoryFullError(needed, self.free_bytes() or 0)
            self._used += needed
        capacity = slot_capacity(tokens, self._max_context)
        for chunk in self._chunks:
            if chunk.capacity == capacity and (start := chunk.take(rows)) is not None:
                return Rows(chunk, start, rows)
        with torch.inference_mode():
            chunk = Chunk(self.layout, max(rows, CHUNK_SLOTS), capacity)
        self._chunks.append(chunk)
        return Rows(chunk, chunk.take(rows) or 0, rows)

    def give_back(self, rows: Rows) -> None:
        """Free the slots of `rows`, which are not to be used any more."""
        chunk = rows.chunk
        chunk.give_back(rows.start, len(rows))
        with self._lock:
            self._used -= len(rows) * chunk.capacity * self.layout.token_bytes
        # One empty chunk of a size is kept for the next answer.
        if chunk.empty and any(other.empty for other in self._alike(chunk)):
            self._chunks.remove(chunk)

    def _alike(self, chunk: Chunk) -> Sequence[Chunk]:
        return [other for other in self._chunks if other is not chunk and other.capacity == chunk.capacity]
