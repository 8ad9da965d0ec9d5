"""KV memory of running answers: slots in few large tensors, so that rows of many answers share an attention call.

An answer's rows take consecutive slots. Rows of several answers lie side by side, and the keys that a pass reads are
one view of a chunk's tensor, `[slots, kv_heads, capacity, dim]`: nothing is gathered or copied. A row's tokens fill
its slot from the start; what lies behind is never attended to and is overwritten by the next pass, so a roll-back is
an assignment. Of a tree of tokens one path is kept: its keys and values are moved together.

What counts against the budget is what the system has given: of a chunk on a CPU the slots that were written to, of one
elsewhere all of them. Free slots are reused, and given back to the system when others need their bytes.
"""

from __future__ import annotations

import math
import mmap
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import torch
from torch import Tensor

from common.engine.kv.line import (
    ACCOUNTS,
    KvAllocationError,
    KvMemoryFullError,
    KvTooLargeError,
    KvWaitError,
    QueuedClaim,
    grant_claims,
)
from common.engine.model.errors import ContextError

# --- layout
# Layout of a model's KV cache: shapes of keys and values, and the states of one document.

DocumentStates = tuple[tuple[Tensor, Tensor], ...]  # per layer: keys, values, [kv_heads, tokens, dim]


def states_bytes(states: DocumentStates) -> int:
    """Bytes that a document's keys and values take."""
    return sum(part.numel() * part.itemsize for layer in states for part in layer)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A layer's KV cache per token: keys `[kv_heads, key_dim]` and values `[kv_heads, value_dim]`. A token attends to
    the last `window` tokens, itself included, or to all.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, type and place of a model's KV cache."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    torch_device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes that one token of one row takes in all layers."""
        numbers = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in self.layers)
        return numbers * self.dtype.itemsize


# --- chunk
# Slots of KV memory that share tensors, and what the system has given for them.
#
# On a CPU, memory is given when a slot is first written to, and what free slots have can be given back; elsewhere a
# chunk is allocated as a whole.


class SlotChunk:
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


# --- memory

CHUNK_SLOTS: Final = 64  # slots that share a tensor where memory is given as it is written to
BLOCK_SLOTS: Final = 16  # and elsewhere at most, unless one answer has more rows;
SPARE_SHARE: Final = 8  # there, slots that nobody has yet take no more than this part of what is free,
SPARE_BYTES: Final = 2**28  # nor more than this
GPU_SHARE: Final = 4  # the part of what a GPU has free beside a model that is left to passes: a quarter
SMALLEST_CAPACITY: Final = 64  # tokens
LONGEST_WAIT: Final = 60.0  # seconds for memory; as long as a request waits for its turn before it is refused


def slot_capacity(tokens: int, max_context: int) -> int:
    """Tokens of the slot that a row of `tokens` tokens gets: 64, 96, 128, 192, 256, ..., at most `max_context`.

    Few sizes, so that rows of different answers lie in the same chunk.
    """
    capacity = SMALLEST_CAPACITY
    while capacity < tokens:
        larger = capacity * 3 // 2 if capacity & (capacity - 1) == 0 else capacity * 4 // 3
        capacity = larger
    return min(capacity, max(max_context, tokens))


def limit_on(place: torch.device, kv_bytes: int | None) -> int | None:
    """The limit `kv_bytes` of a model that is loaded: on a GPU no more than it can give to this process, so that
    answers wait for each other rather than fail.
    """
    if place.type != "cuda":
        return kv_bytes
    torch.cuda.empty_cache()  # of what has been computed so far
    free, whole = torch.cuda.mem_get_info(place)
    # It takes no device without an index; None is the current one, as such a device is.
    share = torch.cuda.get_per_process_memory_fraction(place.index)
    own = int(whole * share) - torch.cuda.memory_reserved(place)
    most = max(1, min(free, own) * (GPU_SHARE - 1) // GPU_SHARE)
    return most if kv_bytes is None else min(kv_bytes, most)


class Rows:
    """One answer's rows, one per document: `[document][query][answer so far]`. They get the same tokens after their
    documents and move together; row r holds `starts[r] + fed` tokens.
    """

    __slots__ = ("chunk", "fed", "query", "start", "starts")

    def __init__(self, chunk: SlotChunk, start: int, rows: int) -> None:
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
    def fill(self, row: int, states: DocumentStates, behind: int = 0) -> None:
        """Copy a document's keys and values, `[kv_heads, tokens, dim]` per layer, to a row, whose document part ends
        with them: `behind` its first tokens.
        """
        slot, stop = self.start + row, behind + states[0][0].shape[1]
        for layer, (key, value) in enumerate(states):
            self.chunk.keys[layer][slot, :, behind:stop].copy_(key)
            self.chunk.values[layer][slot, :, behind:stop].copy_(value)
        self.starts[row] = stop

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


@dataclass(frozen=True, slots=True)
class Need:
    """Rows that are needed of one memory, with room for `tokens` tokens each."""

    memory: KvMemory
    rows: int
    tokens: int

    @property
    def bytes(self) -> int:
        return self.memory.needed_bytes(self.rows, self.tokens)


class KvMemory:
    """All rows of a model's answers, within `limit_bytes` (None: unlimited). Rows may be placed and given back from any
    thread; the thread that owns the decoder fills them.
    """

    def __init__(
        self, layout: Layout, max_context: int, limit_bytes: int | None = None, lazy: bool | None = None
    ) -> None:
        """`lazy`: the system gives memory when it is first written to; None: as it is on the layout's device."""
        if limit_bytes is not None and limit_bytes < 1:
            raise ValueError(f"kv_bytes must be positive, not {limit_bytes}")
        self.layout = layout
        self.limit_bytes = limit_bytes
        self.patience = LONGEST_WAIT  # seconds that somebody stands in line
        self.line: deque[QueuedClaim] = deque()
        self._max_context = max_context
        self._lazy = torch.device(layout.torch_device).type == "cpu" if lazy is None else lazy
        self._chunks: list[SlotChunk] = []
        self._used = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of the slots that are taken."""
        return self._used

    @property
    def committed_bytes(self) -> int:
        """Bytes that the system has given, those of free slots included; never more than the limit."""
        return sum(self._bytes(chunk.committed, chunk.capacity) for chunk in self._chunks)

    def needed_bytes(self, rows: int, tokens: int) -> int:
        """Bytes that `rows` rows of up to `tokens` tokens take."""
        return self._bytes(rows, slot_capacity(tokens, self._max_context))

    def take(self, rows: int, tokens: int) -> Rows:
        """Empty rows with room for `tokens` tokens each, now, before all who are in line. Raises `KvMemoryFullError`,
        `KvAllocationError`.
        """
        need = Need(self, rows, tokens)
        with ACCOUNTS:
            placed = self.place([need])
            free = 0 if self.limit_bytes is None else max(self.limit_bytes - self._used, 0)
        if placed is None:
            raise KvMemoryFullError(need.bytes, free)
        try:
            self.allocate(placed[0])
        except KvAllocationError:
            self.give_back(placed[0])
            raise
        return placed[0]

    def allocate(self, rows: Rows) -> None:
        """Make rows that were placed usable, on the thread that owns the decoder. Raises `KvAllocationError`: they are
        to be given back then.
        """
        with torch.inference_mode():
            with suppress(KvAllocationError):
                rows.chunk.allocate()
                return
            with ACCOUNTS:
                self._shed()  # what nobody uses may be what the machine lacks
            rows.chunk.allocate()

    def give_back(self, rows: Rows) -> None:
        """Free the slots of `rows`, which are not to be used any more, and serve those who wait for them."""
        with ACCOUNTS:
            self.free([rows])
            served = grant_claims({self})
        for each in served:
            each.call()

    # --- under the lock

    def place(self, needs: Sequence[Need]) -> list[Rows] | None:
        """Slots for all `needs`, or for none of them. The caller holds `ACCOUNTS`."""
        if self.limit_bytes is not None and self._used + sum(need.bytes for need in needs) > self.limit_bytes:
            return None
        before = set(self._chunks)
        placed = self._placed(needs)
        if placed is None:
            # Free slots may be of other sizes. Without them, an empty memory holds whatever the limit allows.
            self._shed()
            placed = self._placed(needs)
        if not self._lazy:
            for chunk in {rows.chunk for rows in placed or ()} - before:
                self._widen(chunk)
        return placed

    def free(self, placed: Sequence[Rows]) -> None:
        """Free slots. The caller holds `ACCOUNTS`."""
        for rows in placed:
            chunk = rows.chunk
            chunk.give_back(rows.start, len(rows))
            self._used -= self._bytes(len(rows), chunk.capacity)
            # One empty chunk of a size is kept for the next answer.
            alike = (other for other in self._chunks if other is not chunk and other.capacity == chunk.capacity)
            if chunk.empty and (not chunk.allocated or any(other.empty for other in alike)):
                self._chunks.remove(chunk)

    def _placed(self, needs: Sequence[Need]) -> list[Rows] | None:
        placed: list[Rows] = []
        for need in needs:
            rows = self._place(need)
            if rows is None:
                self.free(placed)
                return None
            placed.append(rows)
        return placed

    def _place(self, need: Need) -> Rows | None:
        capacity = slot_capacity(need.tokens, self._max_context)
        for chunk in self._chunks:
            if chunk.capacity != capacity or (start := chunk.gap(need.rows)) is None:
                continue
            if self._fits(self._bytes(chunk.cost(start, need.rows), capacity)):
                return self._taken(chunk, start, need.rows)
        if not self._fits(self._bytes(need.rows, capacity)):
            return None
        slots = max(need.rows, CHUNK_SLOTS) if self._lazy else need.rows
        self._chunks.append(SlotChunk(self.layout, slots, capacity, self._lazy))
        return self._taken(self._chunks[-1], 0, need.rows)

    def _taken(self, chunk: SlotChunk, start: int, rows: int) -> Rows:
        chunk.take(start, rows)
        self._used += self._bytes(rows, chunk.capacity)
        return Rows(chunk, start, rows)

    def _fits(self, more: int) -> bool:
        return self.limit_bytes is None or self.committed_bytes + more <= self.limit_bytes

    def _shed(self) -> None:
        """Give the system back what nobody uses."""
        self._chunks = [chunk for chunk in self._chunks if not chunk.empty]
        for chunk in self._chunks:
            chunk.shed()

    def _widen(self, chunk: SlotChunk) -> None:
        """Let a new chunk have slots for rows of other answers, as far as they don't take others' memory."""
        spare = SPARE_BYTES
        if self.limit_bytes is not None:
            spare = min(spare, (self.limit_bytes - self.committed_bytes) // SPARE_SHARE)
        chunk.widen(max(0, min(BLOCK_SLOTS - chunk.slots, spare // self._bytes(1, chunk.capacity))))

    def _bytes(self, slots: int, capacity: int) -> int:
        return slots * capacity * self.layout.token_bytes


# --- claims
# A claim of the KV memory that an answer's jobs need, of all models: made at once, met at once or not at all.
#
# Claims that wait stand in line before each memory that they need, in one order for all memories, and hold nothing. The
# first of all is first in each of its lines, so it waits for none but those who have what they need: there is no cycle.
# And no claim goes before one that came earlier, so that a large one gets its turn.

Wake = Callable[[], None]


class Claim:
    """All that an answer needs; `parts` are its jobs', in the order of the needs. From any thread."""

    def __init__(self, needs: Sequence[Need]) -> None:
        """Stand in line, or have it already. Raises `KvTooLargeError` for what will never be there."""
        self.memories = frozenset(need.memory for need in needs)
        self.parts = [Reservation(self, need) for need in needs]
        self.began = time.monotonic()
        self.ended: float | None = None  # when the memory was there
        for memory in self.memories:
            needed = sum(need.bytes for need in needs if need.memory is memory)
            if memory.limit_bytes is not None and needed > memory.limit_bytes:
                raise KvTooLargeError(needed, memory.limit_bytes)
        with ACCOUNTS:
            for memory in self.memories:
                memory.line.append(self)
            served = grant_claims(set(self.memories))
        for each in served:
            each.call()

    @property
    def waited(self) -> float:
        """Seconds in line, so far."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    def withdraw(self) -> None:
        """Want nothing that no job has taken yet."""
        for part in self.parts:
            part.drop()

    # --- from the lines; see `QueuedClaim`

    def place(self) -> bool:
        wanted = [part for part in self.parts if not part.left]
        placed: list[tuple[KvMemory, list[Rows]]] = []
        for memory in self.memories:
            rows = memory.place([part.need for part in wanted if part.need.memory is memory])
            if rows is None:
                for other, taken in placed:
                    other.free(taken)
                return False
            placed.append((memory, rows))
        for memory, taken in placed:
            own = [part for part in wanted if part.need.memory is memory]
            for part, each in zip(own, taken, strict=True):
                part.placed = each
        self.ended = time.monotonic()
        return True

    def call(self) -> None:
        for part in self.parts:
            if part.wake is not None:
                part.wake()


class Reservation:
    """One job's part of a claim. Its rows are taken on the thread that owns the memory's decoder."""

    __slots__ = ("_claim", "_taken", "left", "need", "placed", "wake")

    def __init__(self, claim: Claim, need: Need) -> None:
        self.need = need
        self.placed: Rows | None = None
        self.wake: Wake | None = None
        self.left = False
        self._claim = claim
        self._taken = False

    @property
    def waited(self) -> float:
        """Seconds that the claim has stood in line."""
        return self._claim.waited

    def rows(self, wake: Wake) -> Rows | None:
        """The rows, empty; None while the claim stands in line: `wake` is called, from any thread, when that is over.

        Raises `KvWaitError` after too long a wait, `KvAllocationError`.
        """
        with ACCOUNTS:
            if self.left:
                return None
            if self.placed is None:
                self.wake = wake
                if self.waited > self.need.memory.patience:
                    raise KvWaitError(self.need.bytes, self.waited)
                return None
            self._taken = True
        self.need.memory.allocate(self.placed)
        return self.placed

    def leave(self) -> None:
        """Give back what there is, which is not to be used any more, or leave the line."""
        self._end(even_if_taken=True)

    def drop(self) -> None:
        """The same, but what a job has taken is its own to give back."""
        self._end(even_if_taken=False)

    def _end(self, even_if_taken: bool) -> None:
        claim, memory = self._claim, self.need.memory
        with ACCOUNTS:
            if self.left or (self._taken and not even_if_taken):
                return
            self.left = True
            if self.placed is not None:
                memory.free([self.placed])
                served = grant_claims({memory})
            elif all(part.left for part in claim.parts):
                for other in claim.memories:
                    other.line.remove(claim)
                served = grant_claims(set(claim.memories))
            else:
                served = []
        for each in served:
            each.call()
