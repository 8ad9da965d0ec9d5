"""Waking other threads last: behind all that a thread hands out, where it has something for each of many.

A thread that is woken wants the interpreter at once, and gets it when the one that wakes it writes to a socket. Who
hands out sixteen drafts, and wakes behind each, stops sixteen times for a thread that could send them together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _PutOff(threading.local):
    calls: dict[Callable[[], None], None] | None = None  # in their order; None: nothing is put off


_here = _PutOff()


@contextmanager
def waking_last() -> Iterator[None]:
    """Put off what this thread wakes inside (`put_off`) to the end, however that comes; each is woken once."""
    if _here.calls is not None:
        yield
        return
    _here.calls = {}
    try:
        yield
    finally:
        calls, _here.calls = _here.calls, None
        for call in calls:
            call()


def put_off(wake: Callable[[], None]) -> bool:
    """Whether `wake` will be called at the end of `waking_last`; False outside of it: the caller has to. It must not
    raise.
    """
    if _here.calls is None:
        return False
    _here.calls[wake] = None
    return True
