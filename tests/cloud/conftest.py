"""A cloud with its devices in this process, and their libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cloud.town import Resident, Town
from tests.daemons.conftest import fresh_data, libraries

__all__ = ["device", "fresh_data", "libraries", "town"]


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data()) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("laptop")
