"""`POST /simulate`: the simulator over HTTP, with bounds."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from device.http.server import HttpServer
from tests.device.table_engine import WAIT

BODY: dict[str, Any] = {
    "accepted": [[True, True], [True, False], [False, True], [True, True]],
    "device_ms": 20,
    "cloud_ms": 10,
    "rtt_ms": 0,
}


def answer(server: HttpServer, **changes: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/simulate", json=BODY | changes, timeout=WAIT, trust_env=False)


def test_a_longer_round_trip_takes_longer(server: HttpServer) -> None:
    near, far = (answer(server, rtt_ms=rtt).json()["times"] for rtt in (0, 400))
    assert near[0] == far[0] == 0
    assert len(near) == len(BODY["accepted"])
    assert near == sorted(near)
    # The cloud's rejected draft at position 1 costs a round trip and a step: position 2 is decided after it.
    assert far[2] - far[1] >= 0.4
    assert far[3] > near[3]


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": []},
        {"accepted": [[True, True]] * 513},
        {"accepted": [[True, None]]},
        {"device_ms": 0},
        {"rtt_ms": -1},
        {"rtt_ms": 20_000},
        {"accepted": [[True, True]] * 512, "rtt_ms": 9_000},
        {"placement": "nowhere"},
    ],
)
def test_what_is_refused(server: HttpServer, changes: dict[str, Any]) -> None:
    refused = answer(server, **changes)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
