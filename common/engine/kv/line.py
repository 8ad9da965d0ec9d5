"""The lines of claims for KV memories."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from common.answer.request import AnswerFailed, NoPlace, RequestError

if TYPE_CHECKING:
    from common.engine.kv.memory import KvMemory


# Guards the accounts and lines of all memories: one decision covers an answer's needs, and one lock excludes deadlocks.
# Held for microseconds, except while chunks return to the system.
ACCOUNTS = threading.Lock()


class QueuedClaim(Protocol):
    memories: frozenset[KvMemory]  # it stands in the lines of these

    def place(self) -> bool:
        """Takes all needed memory if available. The caller holds `ACCOUNTS`."""
        ...

    def call(self) -> None:
        """Announces that the memory is there. The caller holds no lock."""
        ...


def count_waiting(memories: Iterable[KvMemory]) -> int:
    """Number of waiting claims, each counted once."""
    with ACCOUNTS:
        return len({id(each) for memory in memories for each in memory.line})


def grant_claims(memories: set[KvMemory]) -> list[QueuedClaim]:
    """Grants claims first in all of their lines, if they fit into free memory.

    Returns the granted claims. The caller holds `ACCOUNTS` and calls them after releasing it.
    """
    served: list[QueuedClaim] = []
    while memories:
        line = memories.pop().line
        while line and all(each.line[0] is line[0] for each in line[0].memories) and line[0].place():
            first = line[0]
            for each in first.memories:
                each.line.popleft()
            served.append(first)
            memories |= first.memories
    return served


# --- errors
# Reasons for missing memory, with texts for users.

RETRY: Final = 5.0  # seconds until a retry makes sense, after waiting without success


class KvMemoryFullError(RuntimeError):
    """No room for these rows now. `needed` and `free` are bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(
            f"keys and values of this answer need {_mebibytes(needed)}, and {_mebibytes(free)} of the budget (kv_bytes)"
            " are free"
        )
        self.needed = needed
        self.free = free


class KvTooLargeError(RequestError):
    """The budget never fits these rows. `needed` and `free`, the limit, are bytes."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(
            f"The answer does not fit into memory: its keys and values need {_mebibytes(needed)}, and all running "
            f"answers may use {_mebibytes(limit)} together. Use fewer or shorter documents, ask for a shorter "
            f"answer, or set kv_bytes to {needed} or more.",
            "documents",
        )
        self.needed, self.free = needed, limit


class KvAllocationError(AnswerFailed):
    """The system lacks `needed` bytes within the budget. `reason` is a phrase."""

    def __init__(self, needed: int) -> None:
        self.reason = (
            f"the machine has no {_mebibytes(needed)} of free memory for keys and values, although kv_bytes allows "
            "them: set a smaller kv_bytes, or end other programs"
        )
        super().__init__(f"The answer does not fit into memory: {self.reason}.")


class KvWaitError(NoPlace):
    """Other answers kept the memory for `seconds`, the longest wait."""

    def __init__(self, needed: int, seconds: float) -> None:
        super().__init__(
            RETRY,
            f"There was no memory for the answer: its keys and values need {_mebibytes(needed)}, and other "
            f"answers used too much of the budget (kv_bytes) for {seconds:.0f} seconds. Ask again later, or raise "
            "kv_bytes.",
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.{0 if count >= 100 * 2**20 else 1}f} MiB"
