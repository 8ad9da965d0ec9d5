"""A cloud with its devices in this process, and their libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cloud.admission import LONGEST_WAIT
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.town import AT_ONCE, Resident, Town
from tests.daemons.conftest import fresh_data, libraries

__all__ = ["device", "fresh_data", "libraries", "town"]


@pytest.fixture(autouse=True)
def towns_as_before() -> Iterator[None]:
    """A test leaves nothing to the next one in the town that they share."""
    with ExitStack() as stack:
        for town in Town.standing:
            stack.enter_context(town.as_before())
        yield


@pytest.fixture(autouse=True)
def unhurried(towns_as_before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports wait for the cloud's part as long as a busy machine may be late with it."""
    monkeypatch.setattr("device.cloud_connection.CLOSING_PATIENCE", AT_ONCE)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that a first token waits for a place: less than the longest wait that a cloud may ask for."""
    seconds = LONGEST_WAIT - 1.0
    monkeypatch.setattr("device.active_request.BUSY_PATIENCE", seconds)
    return seconds


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data()) as town:
        yield town


@pytest.fixture(scope="module")
def proxy(town: Town) -> Iterator[FaultyProxy]:
    with FaultyProxy(int(town.link.address.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("laptop")
