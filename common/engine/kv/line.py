"""The lines before KV memories: who waits, and whose turn it is."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from common.answer.request import AnswerFailed, NoPlace, RequestError

if TYPE_CHECKING:
    from common.engine.kv.memory import KvMemory


# Of the accounts of all memories and the lines before them: an answer's needs of several are decided together, and no
# two threads can wait for each other's. Held for microseconds, but where chunks go back to the system.
ACCOUNTS = threading.Lock()


class QueuedClaim(Protocol):
    """Somebody in line, as the memory sees him."""

    memories: frozenset[KvMemory]  # in whose lines he stands

    def place(self) -> bool:
        """Take all that is needed, if it is there. The caller holds `ACCOUNTS`."""
        ...

    def call(self) -> None:
        """Say that it is there. The caller holds no lock."""
        ...


def count_waiting(memories: Iterable[KvMemory]) -> int:
    """The number of those who wait, each counted once however many memories they need."""
    with ACCOUNTS:
        return len({id(each) for memory in memories for each in memory.line})


def grant_claims(memories: set[KvMemory]) -> list[QueuedClaim]:
    """Let those go who are first in all of their lines and whose needs are there. Returns them; they are to be called
    when the caller, who holds `ACCOUNTS`, has given it up.
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
# Reasons why there is no memory for the keys and values of an answer. Their texts are for users.

RETRY: Final = 5.0  # seconds until there may be memory that was waited for in vain


class KvMemoryFullError(RuntimeError):
    """The budget holds no more rows now; `needed` and `free` are bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(
            f"keys and values of this answer need {_mebibytes(needed)}, and {_mebibytes(free)} of the budget (kv_bytes)"
            " are free"
        )
        self.needed = needed
        self.free = free


class KvTooLargeError(RequestError):
    """The budget never holds such rows: `needed` bytes, with a limit of `free`."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(
            f"The answer does not fit into memory: keys and values of this answer need {_mebibytes(needed)}, and "
            f"{_mebibytes(limit)} are all that there is for running answers: ask with fewer or shorter documents or for"
            f" a shorter answer, or have kv_bytes set to {needed} or more.",
            "documents",
        )
        self.needed, self.free = needed, limit


class KvAllocationError(AnswerFailed):
    """The system has no memory for `needed` bytes, although the budget allows them; `reason` is a phrase for that."""

    def __init__(self, needed: int) -> None:
        self.reason = (
            f"the machine has no {_mebibytes(needed)} left for keys and values, although kv_bytes allows for them: set "
            "a smaller kv_bytes, or end what else takes memory"
        )
        super().__init__(f"The answer does not fit into memory: {self.reason}.")


class KvWaitError(NoPlace):
    """Others have had the memory for `seconds`, as long as somebody waits for it."""

    def __init__(self, needed: int, seconds: float) -> None:
        super().__init__(
            RETRY,
            f"There was no memory for the answer: keys and values of this answer need {_mebibytes(needed)}, and answers"
            f" that are under way have not left that of the budget (kv_bytes) for {seconds:.0f} seconds. Ask again "
            "later, or have kv_bytes raised.",
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.{0 if count >= 100 * 2**20 else 1}f} MiB"
