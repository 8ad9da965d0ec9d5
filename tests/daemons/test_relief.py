"""A cloud that goes away while the device has the same model: coupled answers do not change by a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.daemons.streaming import Stream, complete_together
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class, and what could help me with my health problem?"
LONG, SHORT = 480, 240  # tokens
STEP_MS = 20.0  # of the device, so that there is time to do harm, and for the cloud to return
FIELDS: dict[str, Any] = {"method": "coupled", "seed": 11, "temperature": 1.0, "draft_temperature": 0.5}


@dataclass(frozen=True, slots=True)
class Place:
    """A device that has the cloud's model, too, and loses patience soon."""

    pair: Pair
    proxy: FaultyProxy

    def answer(self, tokens: int, **fields: Any) -> list[str]:
        """An answer that the cloud verifies from beginning to end."""
        self.pair.wait_for_cloud("connected")
        report = complete_together(self.pair, QUESTION, max_tokens=tokens, **FIELDS, **fields)["dragon"]
        pieces: list[str] = report["pieces"]
        return pieces


@pytest.fixture(scope="module")
def damaged(fresh_data: Callable[[], Path]) -> Iterator[Place]:
    data, port = fresh_data(), free_port()
    model = make_wordy_model(data / "model")
    both = {"model": model, "scorer": SCORER}
    with FaultyProxy(port) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        device = both | {"local_target": model, "patience": 0.5, "emulate_decode_ms": STEP_MS}
        with Pair(data, device, both, between=between, cloud_port=port) as pair:
            yield Place(pair, proxy)


@pytest.fixture
def place(damaged: Place) -> Place:
    """A place whose cloud runs, whatever the test before did to it."""
    damaged.pair.ensure_cloud()
    return damaged


def test_a_cloud_that_is_away_for_a_while(place: Place) -> None:
    expected = place.answer(LONG)
    with Stream(place.pair.url, QUESTION, max_tokens=LONG, **FIELDS) as stream:
        stream.read(5)
        place.proxy.black_hole(True)
        try:
            stream.read(80)  # more than are under way
        finally:
            place.proxy.black_hole(False)
        report = stream.finish()
    degraded = report["degraded"]
    assert degraded[-1] < LONG - 1, "the cloud did not come back"
    assert f"From token {degraded[0]} on, local_target decides while the cloud is away." in report["notes"]
    assert report["pieces"] == expected


def test_a_cloud_that_is_killed(place: Place) -> None:
    expected, without = place.answer(SHORT), place.answer(SHORT, documents=0)
    with Stream(place.pair.url, QUESTION, max_tokens=SHORT, **FIELDS) as stream:
        stream.read(5)
        place.pair.cloud.kill()
        report = stream.finish()
    degraded = report["degraded"]
    assert degraded == list(range(degraded[0], SHORT))
    assert report["pieces"] == expected
    alone = place.pair.complete(QUESTION, max_tokens=SHORT, documents=0, **FIELDS)["dragon"]
    assert alone["degraded"] == list(range(SHORT))
    assert alone["pieces"] == without != expected
