"""Five seconds from a question to its answer: every method has patience for it, on an encrypted link or a plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.daemons.streaming import complete_together, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class?"
ONE_WAY = 2.5  # seconds
STEP_MS = 50.0
LENGTH = 8
METHODS: dict[str, dict[str, Any]] = {
    "device": {"placement": "device"},
    "cloud": {"placement": "cloud"},
    "mirrored": {"placement": "mirrored"},
    "coupled": {"method": "coupled"},
    "dssd": {"method": "dssd", "draft_length": 4},
    "fetch-text": {"method": "fetch-text"},
}


@pytest.fixture(scope="module")
def afar(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    """Two daemons that have measured the way between them. The connection was made before it became so long."""
    port, data = free_port(), fresh_data()
    model = {"model": make_wordy_model(data / "model"), "scorer": SCORER, "curve": "off"}
    with FaultyProxy(port) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        device = model | {"emulate_decode_ms": STEP_MS, "privacy": "balanced"}
        with Pair(data, device, model, between=between, cloud_port=port) as pair:
            proxy.set_delay(ONE_WAY)

            def measured() -> bool:
                rtt = pair.status()["cloud"]["rtt_ms"]
                return rtt is not None and rtt / 1000 > 1.9 * ONE_WAY

            wait_until(measured, "the round trip is measured")
            yield pair


@pytest.fixture(scope="module")
def reports(afar: Pair) -> dict[str, dict[str, Any]]:
    """Of an answer by every method, all asked for at once: nearly all of their time is spent waiting."""

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        answer = complete_together(afar, QUESTION, max_tokens=LENGTH, temperature=1.0, seed=7, **fields)
        report: dict[str, Any] = answer["dragon"]
        return report

    with ThreadPoolExecutor(len(METHODS)) as pool:
        return dict(zip(METHODS, pool.map(ask, METHODS.values()), strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_no_position_is_degraded(reports: dict[str, dict[str, Any]], name: str) -> None:
    report = reports[name]
    assert (report["tokens"], report["degraded"], report["notes"]) == (LENGTH, [], [])
