"""A fleet whose workers are links in this process, and a gateway with two of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.gateway import fleet as fleet_module
from cloud.gateway.channel import ChannelKeys
from cloud.gateway.fleet import Fleet
from tests.cloud.gateway.house import House
from tests.cloud.gateway.launch import PATIENCE, Launch
from tests.daemons.streaming import wait_until


@pytest.fixture(params=["ipc", "tcp"])
def launch(request: pytest.FixtureRequest, tmp_path: Path) -> Launch:
    if request.param == "ipc":
        return Launch(f"ipc://{tmp_path / 's'}")
    return Launch("tcp://127.0.0.1:*", ChannelKeys.new())


@pytest.fixture
def fleet(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(fleet_module, "_FIRST_PAUSE", 0.05)
    fleet = Fleet(2, launch, PATIENCE)
    fleet.start()
    assert fleet.until_one_serves()
    wait_until(lambda: fleet.serving == 2, "both serve")
    yield fleet
    fleet.close()
    assert launch.closed


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()
