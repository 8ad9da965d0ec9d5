"""A cloud that is a long way off takes part, whether it was so from the start or became so in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.daemons.streaming import Stream, complete_together, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class?"
PATIENCE = 1.0  # seconds
ONE_WAY = 0.7  # seconds: a round trip is longer than patience
NEAR = 0.5  # seconds that a busy machine may add to a measured round trip
STEP_MS = 50.0
SHORT, LONG = 12, 240
BEGUN = 5
MEANWHILE = 16  # pieces of text; tokens that are no whole character come with later ones
BUSY = 6.0  # seconds that a machine may have no time for the cloud; a fraction of a long answer
METHODS: tuple[dict[str, Any], ...] = (
    *({"placement": placement} for placement in ("device", "cloud", "mirrored")),
    {"method": "coupled"},
    {"method": "dssd", "draft_length": 4},
    {"method": "fetch-text"},
)
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7}


class Afar:
    """Two daemons with a proxy between them."""

    def __init__(self, data: Path, proxy: FaultyProxy, port: int) -> None:
        model = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
        device = model | {"emulate_decode_ms": STEP_MS, "patience": PATIENCE, "privacy": "balanced"}
        between = int(proxy.address.rpartition(":")[2])
        self.pair = Pair(data, device, model, between=between, cloud_port=port)
        self.proxy = proxy

    def settle(self, one_way: float) -> None:
        """The network is as slow as that, and the device has measured it."""
        self.proxy.set_delay(one_way)

        def measured() -> bool:
            rtt = self.pair.status()["cloud"]["rtt_ms"]
            return rtt is not None and abs(rtt / 1000 - 2 * one_way) < NEAR

        wait_until(measured, "the round trip is measured")


@pytest.fixture(scope="module")
def afar(fresh_data: Callable[[], Path]) -> Iterator[Afar]:
    port = free_port()
    with FaultyProxy(port) as proxy:
        afar = Afar(fresh_data(), proxy, port)
        with afar.pair:
            yield afar


def test_slow_from_the_start(afar: Afar) -> None:
    """Every method waits for it. All are asked at once: nearly all of their time is spent waiting."""
    afar.settle(ONE_WAY)

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        report: dict[str, Any] = complete_together(afar.pair, QUESTION, max_tokens=SHORT, **SAMPLED, **fields)["dragon"]
        return report

    with ThreadPoolExecutor(len(METHODS)) as pool:
        for fields, report in zip(METHODS, pool.map(ask, METHODS), strict=True):
            assert (report["tokens"], report["degraded"], report["notes"]) == (SHORT, [], []), fields


@pytest.mark.parametrize("placement", ["device", "cloud"])
def test_slow_from_the_middle_on(afar: Afar, placement: str) -> None:
    """Until its first word is there nobody can know that it lives; from then on it takes part."""
    afar.settle(0.0)
    with Stream(afar.pair.url, QUESTION, max_tokens=LONG, placement=placement, **SAMPLED) as stream:
        stream.read(BEGUN)
        afar.proxy.set_delay(ONE_WAY)
        stream.read(MEANWHILE)
        afar.proxy.set_delay(0.0)
        report = stream.finish()
    degraded = report["degraded"]
    assert len(degraded) < (2 * ONE_WAY + BUSY - PATIENCE) / (STEP_MS / 1000) < LONG / 1.5
    assert not degraded or degraded[-1] < LONG - BEGUN
    assert report["tokens"] == LONG
