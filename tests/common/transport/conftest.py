from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.common.transport.support import RawPeer, RawPeers

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


@pytest.fixture
def raw_peers() -> Iterator[RawPeers]:
    """Makes raw peers, and closes those that are left."""
    made: list[RawPeer] = []

    def make(address: str) -> RawPeer:
        made.append(RawPeer(address))
        return made[-1]

    yield make
    for peer in made:
        peer.close()
