"""KV memory of running answers: slots in a few large tensors.

An answer's rows take consecutive slots, beside other answers' rows. A pass reads keys as one view of a chunk's tensor,
`[slots, kv_heads, capacity, dim]`, without copying. A row's tokens fill its slot from the start. Later positions are
never attended to, so a roll-back is an assignment. Of a token tree one path is kept, by moving its keys and values
together.

The budget counts committed memory: slots written to on a CPU, whole chunks elsewhere. Free slots are reused, and
returned to the system when others need their bytes.
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
# Shapes of keys and values, and the states of one document.

DocumentStates = tuple[tuple[Tensor, Tensor], ...]  # per layer: keys, values, [kv_heads, tokens, dim]


def states_bytes(states: DocumentStates) -> int:
    return sum(part.numel() * part.itemsize for layer in states for part in layer)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A layer's KV cache per token: keys `[kv_heads, key_dim]`, values `[kv_heads, value_dim]`.

    A token attends to the last `window` tokens, itself included, or to all.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    torch_device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes of one token of one row in all layers."""
        numbers = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in self.layers)
        return numbers * self.dtype.itemsize


# --- chunk
# Slots of KV memory that share tensors, and their committed memory.
#
# On a CPU the system commits a slot at its first write, and free slots can return their memory. Elsewhere a chunk is
# allocated as a whole.


class SlotChunk:
    """Slots of one capacity: tensors `[slots, kv_heads, capacity, dim]` per layer, once allocated.

    `lazy`: the system commits memory at the first write to a slot.
    """

    __slots__ = ("_layout", "_lazy", "_maps", "_written", "capacity", "free", "keys", "values")

    def __init__(self, layout: Layout, slots: int, capacity: int, lazy: bool) -> None:
        self._layout, self._lazy, self.capacity = layout, lazy, capacity
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.free = [True] * slots
        self._written = [False] * slots  # since their memory was last returned
        self._maps: list[mmap.mmap] = []

    @property
    def slots(self) -> int:
        return len(self.free)

    @property
    def empty(self) -> bool:
        return all(self.free)

    @property
    def committed(self) -> int:
        """Slots with committed memory, or taken and about to be written."""
        return sum(self._written) if self._lazy else self.slots

    def gap(self, rows: int) -> int | None:
        """The first of `rows` consecutive free slots, or None."""
        run = 0
        for slot, free in enumerate(self.free):
            run = run + 1 if free else 0
            if run == rows:
                return slot + 1 - rows
        return None

    def cost(self, start: int, rows: int) -> int:
        """Growth of `committed` if `rows` slots from `start` on are taken."""
        return self._written[start : start + rows].count(False) if self._lazy else 0

    def take(self, start: int, rows: int) -> None:
        self.free[start : start + rows] = [False] * rows
        self._written[start : start + rows] = [True] * rows

    def give_back(self, start: int, rows: int) -> None:
        self.free[start : start + rows] = [True] * rows

    def widen(self, slots: int) -> None:
        """The chunk must not be allocated yet."""
        self.free += [True] * slots
        self._written += [False] * slots

    @property
    def allocated(self) -> bool:
        return bool(self.keys)

    def allocate(self) -> None:
        """Makes the tensors. Raises `KvAllocationError` and then has none."""
        if self.allocated:
            return
        layers, slots, capacity = self._layout.layers, self.slots, self.capacity
        maps: list[mmap.mmap] = []
        try:
            keys = [self._zeros((slots, each.kv_heads, capacity, each.key_dim), maps) for each in layers]
            values = [self._zeros((slots, each.kv_heads, capacity, each.value_dim), maps) for each in layers]
        except (OSError, RuntimeError, MemoryError):  # from a mapping, or from torch
            raise KvAllocationError(slots * capacity * self._layout.token_bytes) from None
        self.keys, self.values, self._maps = keys, values, maps

    def shed(self) -> None:
        """Returns the memory of free slots to the system if possible. They then read as zeros."""
        if not self._lazy:
            return
        for (free, written), run in groupby(range(self.slots), lambda slot: (self.free[slot], self._written[slot])):
            if free and written:
                slots = list(run)
                for each in self._maps:
                    _discard(each, len(each) // self.slots * slots[0], len(each) // self.slots * (slots[-1] + 1))
                self._written[slots[0] : slots[-1] + 1] = [False] * len(slots)

    def _zeros(self, shape: tuple[int, ...], maps: list[mmap.mmap]) -> torch.Tensor:
        """Zeros: attention multiplies masked columns by 0, and 0 * NaN is NaN.

        An anonymous mapping takes no memory before the first write. An allocator would write zeros to reused memory.
        """
        dtype = self._layout.dtype
        if not self._lazy:
            return torch.zeros(shape, dtype=dtype, device=self._layout.torch_device)
        blank = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        maps.append(blank)
        return torch.frombuffer(blank, dtype=dtype).view(shape)


def _discard(mapping: mmap.mmap, start: int, stop: int) -> None:
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


# --- memory

CHUNK_SLOTS: Final = 64  # slots per tensor with lazy memory
BLOCK_SLOTS: Final = 16  # most slots otherwise, unless one answer has more rows;
SPARE_SHARE: Final = 8  # there, spare slots take at most this part of the free memory,
SPARE_BYTES: Final = 2**28  # and at most this many bytes
GPU_SHARE: Final = 4  # the part of a GPU's free memory left to passes: a quarter
SMALLEST_CAPACITY: Final = 64  # tokens
LONGEST_WAIT: Final = 60.0  # seconds for memory, equal to a request's longest wait in the queue


def slot_capacity(tokens: int, max_context: int) -> int:
    """Slot size for `tokens` tokens: 64, 96, 128, 192, ..., at most `max_context`.

    Few sizes, so that rows of different answers share a chunk.
    """
    capacity = SMALLEST_CAPACITY
    while capacity < tokens:
        larger = capacity * 3 // 2 if capacity & (capacity - 1) == 0 else capacity * 4 // 3
        capacity = larger
    return min(capacity, max(max_context, tokens))


def limit_on(place: torch.device, kv_bytes: int | None) -> int | None:
    """Reduces `kv_bytes` on a GPU to the memory available to this process.

    So answers wait for each other instead of failing.
    """
    if place.type != "cuda":
        return kv_bytes
    torch.cuda.empty_cache()  # of what has been computed so far
    free, whole = torch.cuda.mem_get_info(place)
    # `place.index` None is the current device.
    share = torch.cuda.get_per_process_memory_fraction(place.index)
    own = int(whole * share) - torch.cuda.memory_reserved(place)
    most = max(1, min(free, own) * (GPU_SHARE - 1) // GPU_SHARE)
    return most if kv_bytes is None else min(kv_bytes, most)


class Rows:
    """One answer's rows, one per document: `[document][query][answer so far]`.

    All get the same tokens after their documents. Row r has `starts[r] + fed` tokens.
    """

    __slots__ = ("chunk", "fed", "query", "start", "starts")

    def __init__(self, chunk: SlotChunk, start: int, rows: int) -> None:
        self.chunk = chunk
        self.start = start  # first slot
        self.starts = [0] * rows  # tokens of the document, per row
        self.fed = 0  # tokens after each document
        self.query = 0  # of them, the query

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def answer(self) -> int:
        """Answer tokens with keys and values; negative while the query is being read."""
        return self.fed - self.query

    @property
    def context(self) -> int:
        return max(self.starts) + self.fed

    @torch.inference_mode()
    def fill(self, row: int, states: DocumentStates, behind: int = 0) -> None:
        """Copies a document's states, `[kv_heads, tokens, dim]` per layer, into a row.

        They follow the first `behind` tokens and end the document part.
        """
        slot, stop = self.start + row, behind + states[0][0].shape[1]
        for layer, (key, value) in enumerate(states):
            self.chunk.keys[layer][slot, :, behind:stop].copy_(key)
            self.chunk.values[layer][slot, :, behind:stop].copy_(value)
        self.starts[row] = stop

    def alone(self, row: int) -> Rows:
        """One row by itself, for reading its document. The caller sets `starts[row]` afterwards."""
        return Rows(self.chunk, self.start + row, 1)

    @torch.inference_mode()
    def states(self, row: int) -> DocumentStates:
        """A copy of a row's states, `[kv_heads, tokens, dim]` per layer."""
        slot, tokens = self.start + row, self.starts[row] + self.fed
        return tuple(
            (keys[slot, :, :tokens].clone(), values[slot, :, :tokens].clone())
            for keys, values in zip(self.chunk.keys, self.chunk.values, strict=True)
        )

    def crop(self, answer: int) -> None:
        """Rolls back to `answer` answer tokens in O(1)."""
        if not 0 <= answer <= self.answer:
            raise ValueError(f"can't crop to {answer} answer tokens, there are {self.answer}")
        self.fed = self.query + answer

    @torch.inference_mode()
    def keep(self, fed: int, path: Sequence[int]) -> None:
        """Keeps the nodes `path` of a tree read after `fed` tokens; drops the others.

        Keys include their positions, so a path from the root can move together: O(path). Raises `ValueError` for
        missing or unordered nodes.
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
        needed = self.context + tokens
        if needed > self.chunk.capacity:
            raise ContextError(
                f"a row of {needed} tokens exceeds the {self.chunk.capacity} that were reserved for it",
                needed=needed,
                limit=self.chunk.capacity,
            )


@dataclass(frozen=True, slots=True)
class Need:
    memory: KvMemory
    rows: int
    tokens: int

    @property
    def bytes(self) -> int:
        return self.memory.needed_bytes(self.rows, self.tokens)


class KvMemory:
    """All rows of a model's answers, within `limit_bytes` (None: unlimited).

    Any thread may place and give back rows. The thread that owns the decoder fills them.
    """

    def __init__(
        self, layout: Layout, max_context: int, limit_bytes: int | None = None, lazy: bool | None = None
    ) -> None:
        """`lazy`: the system commits memory at the first write. None: true on a CPU."""
        if limit_bytes is not None and limit_bytes < 1:
            raise ValueError(f"kv_bytes must be positive, not {limit_bytes}")
        self.layout = layout
        self.limit_bytes = limit_bytes
        self.patience = LONGEST_WAIT  # longest wait of a claim, in seconds
        self.line: deque[QueuedClaim] = deque()
        self._max_context = max_context
        self._lazy = torch.device(layout.torch_device).type == "cpu" if lazy is None else lazy
        self._chunks: list[SlotChunk] = []
        self._used = 0

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def committed_bytes(self) -> int:
        """Includes free slots; never more than the limit."""
        return sum(self._bytes(chunk.committed, chunk.capacity) for chunk in self._chunks)

    def needed_bytes(self, rows: int, tokens: int) -> int:
        return self._bytes(rows, slot_capacity(tokens, self._max_context))

    def take(self, rows: int, tokens: int) -> Rows:
        """Takes empty rows at once, ahead of the line.

        Raises `KvMemoryFullError`, `KvAllocationError`.
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
        """Allocates placed rows, on the decoder's thread.

        Raises `KvAllocationError`; the caller must then give the rows back.
        """
        with torch.inference_mode():
            with suppress(KvAllocationError):
                rows.chunk.allocate()
                return
            with ACCOUNTS:
                self._shed()  # the machine may lack exactly this memory
            rows.chunk.allocate()

    def give_back(self, rows: Rows) -> None:
        """Frees `rows` for waiting claims. They must not be used afterwards."""
        with ACCOUNTS:
            self.free([rows])
            served = grant_claims({self})
        for each in served:
            each.call()

    # --- under the lock

    def place(self, needs: Sequence[Need]) -> list[Rows] | None:
        """Returns slots for all `needs`, or None. The caller holds `ACCOUNTS`."""
        if self.limit_bytes is not None and self._used + sum(need.bytes for need in needs) > self.limit_bytes:
            return None
        before = set(self._chunks)
        placed = self._placed(needs)
        if placed is None:
            # Free slots may be of other sizes. Without them, an empty memory fits anything within the limit.
            self._shed()
            placed = self._placed(needs)
        if not self._lazy:
            for chunk in {rows.chunk for rows in placed or ()} - before:
                self._widen(chunk)
        return placed

    def free(self, placed: Sequence[Rows]) -> None:
        """The caller holds `ACCOUNTS`."""
        for rows in placed:
            chunk = rows.chunk
            chunk.give_back(rows.start, len(rows))
            self._used -= self._bytes(len(rows), chunk.capacity)
            # One empty chunk of each size is kept for the next answer.
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
        self._chunks = [chunk for chunk in self._chunks if not chunk.empty]
        for chunk in self._chunks:
            chunk.shed()

    def _widen(self, chunk: SlotChunk) -> None:
        """Adds slots for other answers, from a small part of the free memory."""
        spare = SPARE_BYTES
        if self.limit_bytes is not None:
            spare = min(spare, (self.limit_bytes - self.committed_bytes) // SPARE_SHARE)
        chunk.widen(max(0, min(BLOCK_SLOTS - chunk.slots, spare // self._bytes(1, chunk.capacity))))

    def _bytes(self, slots: int, capacity: int) -> int:
        return slots * capacity * self.layout.token_bytes


# --- claims
# A claim of all KV memory that an answer's jobs need, of all models: granted as a whole or not at all.
#
# A waiting claim has no memory and stands in line for each, in one global order. The oldest is first in all of its
# lines and waits only for granted claims, so there is no deadlock. No claim overtakes an older one, so a large claim
# gets its turn.

Wake = Callable[[], None]


class Claim:
    """The memory of one answer. From any thread.

    `parts` are in the order of the needs.
    """

    def __init__(self, needs: Sequence[Need]) -> None:
        """Joins the lines, or is granted at once. Raises `KvTooLargeError` if the limit is too small."""
        self.memories = frozenset(need.memory for need in needs)
        self.parts = [Reservation(self, need) for need in needs]
        self.began = time.monotonic()
        self.ended: float | None = None  # when it was granted
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
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    def withdraw(self) -> None:
        """Gives up every part not taken by a job."""
        for part in self.parts:
            part.drop()

    # --- called by the lines; see `QueuedClaim`

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
    """One job's part of a claim, taken on the decoder's thread."""

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
        return self._claim.waited

    def rows(self, wake: Wake) -> Rows | None:
        """Returns the empty rows, or None while the claim waits.

        Any thread calls `wake` when the wait is over. Raises `KvWaitError` after too long a wait, and
        `KvAllocationError`.
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
        """Gives the rows back, or leaves the line. They must not be used afterwards."""
        self._end(even_if_taken=True)

    def drop(self) -> None:
        """Leaves the line, or gives back rows not taken by a job."""
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
