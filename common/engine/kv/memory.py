"""KV memory of running answers: slots in few large tensors, so that rows of many answers share an attention call.

An answer's rows take consecutive slots. Rows of several answers lie side by side, and the keys that a pass reads are
one view of a chunk's tensor, `[slots, kv_heads, capacity, dim]`: nothing is gathered or copied. A row's tokens fill
its slot from the start; what lies behind is never attended to and is overwritten by the next pass, so a roll-back is
an assignment. Of a tree of tokens one path is kept: its keys and values are moved together.

What counts against the budget is what the system has given: of a chunk on a CPU the slots that were written to, of one
elsewhere all of them. Free slots are reused, and given back to the system when others need their bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

from common.engine.kv.chunk import Chunk
from common.engine.kv.errors import KvAllocationError, KvMemoryFullError
from common.engine.kv.layout import DocumentStates, Layout
from common.engine.kv.line import ACCOUNTS, Waiting, serve
from common.engine.model.errors import ContextError

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
        self.line: deque[Waiting] = deque()
        self._max_context = max_context
        self._lazy = torch.device(layout.torch_device).type == "cpu" if lazy is None else lazy
        self._chunks: list[Chunk] = []
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
            served = serve({self})
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
        self._chunks.append(Chunk(self.layout, slots, capacity, self._lazy))
        return self._taken(self._chunks[-1], 0, need.rows)

    def _taken(self, chunk: Chunk, start: int, rows: int) -> Rows:
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

    def _widen(self, chunk: Chunk) -> None:
        """Let a new chunk have slots for rows of other answers, as far as they don't take others' memory."""
        spare = SPARE_BYTES
        if self.limit_bytes is not None:
            spare = min(spare, (self.limit_bytes - self.committed_bytes) // SPARE_SHARE)
        chunk.widen(max(0, min(BLOCK_SLOTS - chunk.slots, spare // self._bytes(1, chunk.capacity))))

    def _bytes(self, slots: int, capacity: int) -> int:
        return slots * capacity * self.layout.token_bytes
