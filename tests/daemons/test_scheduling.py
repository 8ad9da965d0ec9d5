"""The scheduler of real daemons moves the aggregation with the link, and takes no token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.daemons.streaming import Stream, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "What is the best-selling game of the kind I like?"
NEAR = 0.3  # seconds, one way; long enough that the delays of a busy machine are no tenth of them
STEP_MS = 200.0  # of the cloud; a busy device takes a fraction of that

# Hot enough that the two sides disagree, and with a seed that has the cloud wrong early: it matters who aggregates.
FIELDS = {"temperature": 2.0, "max_tokens": 50, "seed": 14}


@pytest.fixture(scope="module")
def link() -> Iterator[FaultyProxy]:
    line = Line(delay=NEAR)
    with FaultyProxy(free_port(), up=line, down=line) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def slow_cloud(link: FaultyProxy, fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    """A cloud that needs long for a token, and a device that needs a few milliseconds."""
    port = free_port()
    link.set_target(port)
    data = fresh_data()
    model: dict[str, object] = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
    device = model | {"privacy": "balanced", "patience": 60.0}
    cloud = model | {"emulate_decode_ms": STEP_MS}
    between = int(link.address.rpartition(":")[2])
    with Pair(data, device=device, cloud=cloud, between=between, cloud_port=port) as pair:
        yield pair


def test_greedy_moves_with_the_link_and_keeps_the_tokens(slow_cloud: Pair, link: FaultyProxy) -> None:
    """On a long way, the side that decodes slowly should aggregate once its draft was wrong, which some are; with no
    way in between it does not matter.
    """
    link.set_delay(NEAR)
    wait_until(lambda: (slow_cloud.status()["cloud"]["rtt_ms"] or 0) > 1500 * NEAR, "the way to be long")
    with Stream(slow_cloud.url, QUESTION, **FIELDS, placement="greedy") as stream:
        stream.read(30)
        link.set_delay(0.0)
        report = stream.finish()
    assert report["switches"] >= 1
    assert report["degraded"] == []
    still = slow_cloud.complete(QUESTION, **FIELDS, method="token-wise")
    assert still["dragon"]["switches"] == 0
    assert stream.text == still["choices"][0]["message"]["content"]
