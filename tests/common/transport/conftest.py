from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Every link and proxy of a test must be gone afterwards, with its threads and descriptors."""
    threads = set(threading.enumerate())
    descriptors = len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.exists() else 0
    yield
    assert set(threading.enumerate()) <= threads
    if _DESCRIPTORS.exists():
        assert len(os.listdir(_DESCRIPTORS)) <= descriptors
