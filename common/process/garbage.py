"""Spares the collector of garbage what stays: modules, and what libraries keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import inside what has many modules. The collector would go through all of them again and again as they become
    more: a fifth of the seconds that torch and transformers take.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_loaded() -> None:
    """Have nothing looked at again that there is now: half a million objects of libraries.

    Each of the collector's full turns looks at all others, and no thread decodes meanwhile: 0.2 s, a second on a busy
    machine.
    """
    gc.collect()
    gc.freeze()
