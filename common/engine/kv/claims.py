"""A claim of the KV memory that an answer's jobs need, of all models: made at once, met at once or not at all.

Claims that wait stand in line before each memory that they need, in one order for all memories, and hold nothing. The
first of all is first in each of its lines, so it waits for none but those who have what they need: there is no cycle.
And no claim goes before one that came earlier, so that a large one gets its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from common.engine.kv.errors import KvTooLargeError, KvWaitError
from common.engine.kv.line import ACCOUNTS, serve
from common.engine.kv.memory import KvMemory, Need, Rows

Wake = Callable[[], None]


class Claim:
    """All that an answer needs; `parts` are its jobs', in the order of the needs. From any thread."""

    def __init__(self, needs: Sequence[Need]) -> None:
        """Stand in line, or have it already. Raises `KvTooLargeError` for what will never be there."""
        self.memories = frozenset(need.memory for need in needs)
        self.parts = [Part(self, need) for need in needs]
        self.began = time.monotonic()
        self.ended: float | None = None  # when the memory was there
        for memory in self.memories:
            needed = sum(need.bytes for need in needs if need.memory is memory)
            if memory.limit_bytes is not None and needed > memory.limit_bytes:
                raise KvTooLargeError(needed, memory.limit_bytes)
        with ACCOUNTS:
            for memory in self.memories:
                memory.line.append(self)
            served = serve(set(self.memories))
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

    # --- from the lines; see `Waiting`

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


class Part:
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
                served = serve({memory})
            elif all(part.left for part in claim.parts):
                for other in claim.memories:
                    other.line.remove(claim)
                served = serve(set(claim.memories))
            else:
                served = []
        for each in served:
            each.call()
