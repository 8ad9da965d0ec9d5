"""The lines before KV memories: who waits, and whose turn it is."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from common.engine.kv.memory import KvMemory

# Of the accounts of all memories and the lines before them: an answer's needs of several are decided together, and no
# two threads can wait for each other's. Held for microseconds, but where chunks go back to the system.
ACCOUNTS = threading.Lock()


class Waiting(Protocol):
    """Somebody in line, as the memory sees him."""

    memories: frozenset[KvMemory]  # in whose lines he stands

    def place(self) -> bool:
        """Take all that is needed, if it is there. The caller holds `ACCOUNTS`."""
        ...

    def call(self) -> None:
        """Say that it is there. The caller holds no lock."""
        ...


def in_line(memories: Iterable[KvMemory]) -> int:
    """The number of those who wait, each counted once however many memories they need."""
    with ACCOUNTS:
        return len({id(each) for memory in memories for each in memory.line})


def serve(memories: set[KvMemory]) -> list[Waiting]:
    """Let those go who are first in all of their lines and whose needs are there. Returns them; they are to be called
    when the caller, who holds `ACCOUNTS`, has given it up.
    """
    served: list[Waiting] = []
    while memories:
        line = memories.pop().line
        while line and all(each.line[0] is line[0] for each in line[0].memories) and line[0].place():
            first = line[0]
            for each in first.memories:
                each.line.popleft()
            served.append(first)
            memories |= first.memories
    return served
