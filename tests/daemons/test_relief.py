"""A cloud that goes away while the device has the same model: coupled answers do not change by a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.transport.faulty import FaultyProxy
from scripts.daemons import Pair, free_port
from tests.daemons.streaming import Stream
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class, and what could help me with my health problem?"
STEP_MS = 20.0  # of all models of the device
TOKENS = 120
FIELDS: dict[str, Any] = {"method": "coupled", "seed": 11, "temperature": 1.0, "draft_temperature": 0.5}


@pytest.fixture(scope="module")
def proxy_and_pair(fresh_data: Callable[[], Path]) -> Iterator[tuple[FaultyProxy, Pair]]:
    data, port = fresh_data(), free_port()
    model = str(make_wordy_model(data / "model"))
    both = {"model": model, "scorer": SCORER}
    device = both | {"local_target": model, "patience": 0.5, "emulate_decode_ms": STEP_MS}
    with FaultyProxy(port) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        with Pair(data, device, both, between=between, cloud_port=port) as pair:
            yield proxy, pair


def test_cloud_killed_and_started_again(proxy_and_pair: tuple[FaultyProxy, Pair]) -> None:
    proxy, pair = proxy_and_pair
    pair.wait_for_cloud("connected")
    expected = pair.complete(QUESTION, max_tokens=TOKENS, **FIELDS)
    assert expected["dragon"]["degraded"] == []
    with Stream(pair.url, QUESTION, max_tokens=TOKENS, **FIELDS) as stream:
        stream.read(5)
        proxy.black_hole(True)
        try:
            stream.read_for(1.5)
        finally:
            proxy.black_hole(False)
        report = stream.finish()
    degraded = report["degraded"]
    assert degraded, "the cloud was away for too short a time"
    assert degraded[-1] < TOKENS - 1, "the cloud did not come back"
    assert f"From token {degraded[0]} on local_target decides, as long as the cloud takes no part." in report["notes"]
    assert report["pieces"] == expected["dragon"]["pieces"]

    with Stream(pair.url, QUESTION, max_tokens=TOKENS, **FIELDS) as stream:
        stream.read(5)
        pair.cloud.kill()
        report = stream.finish()
    degraded = report["degraded"]
    assert degraded == list(range(degraded[0], TOKENS))
    assert report["pieces"] == expected["dragon"]["pieces"]
    alone = pair.complete(QUESTION, max_tokens=TOKENS, documents=0, **FIELDS)["dragon"]
    assert alone["degraded"] == list(range(TOKENS))
    pair.cloud.start()
    pair.wait_for_cloud("connected")
    verified = pair.complete(QUESTION, max_tokens=TOKENS, documents=0, **FIELDS)["dragon"]
    assert verified["degraded"] == []
    assert alone["pieces"] == verified["pieces"] != expected["dragon"]["pieces"]
