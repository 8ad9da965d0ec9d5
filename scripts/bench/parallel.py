"""Work of a suite in as many processes as the machine has cores, where nothing of it is a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


def in_processes(function: Callable[..., T], *arguments: Sequence[object]) -> Iterator[T]:
    """As `map`. Fresh processes: torch's threads do not survive a fork."""
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(arguments[0])), get_context("spawn")) as pool:
        yield from pool.map(function, *arguments)
