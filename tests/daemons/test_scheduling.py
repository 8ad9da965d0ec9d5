"""The schedulers of real daemons follow the link as it changes, move the aggregation with it, and take no token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.transport.faulty import FaultyProxy, Line
from scripts.daemons import Pair, free_port
from tests.daemons.streaming import Stream, wait_until

QUESTION = "What is the best-selling game of the kind I like?"
NEAR, FAR = 0.02, 0.1  # seconds, one way
SOON = 5.0  # seconds after a change of the link when the measured round trip must be right

# Hot enough that the two sides often disagree: only then it matters who aggregates.
FIELDS = {"temperature": 2.0, "max_tokens": 48}


@pytest.fixture(scope="module")
def link() -> Iterator[FaultyProxy]:
    line = Line(delay=NEAR)
    with FaultyProxy(free_port(), up=line, down=line) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def slow_cloud(link: FaultyProxy, fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    """A cloud that needs 60 ms for a token, and a device that needs a tenth of that."""
    port = free_port()
    link.set_target(port)
    settings = {"privacy": "balanced", "patience": 60.0}
    cloud = {"emulate_decode_ms": 60.0}
    between = int(link.address.rpartition(":")[2])
    with Pair(fresh_data(), device=settings, cloud=cloud, between=between, cloud_port=port) as pair:
        yield pair


def test_the_round_trip_is_right_soon_after_a_change(slow_cloud: Pair, link: FaultyProxy) -> None:
    def error(one_way: float) -> float:
        measured = slow_cloud.status()["cloud"]["rtt_ms"]
        return 1.0 if measured is None else abs(measured / (2000 * one_way) - 1)

    wait_until(lambda: error(NEAR) < 0.1, "the first round trip")
    for one_way in (0.15, NEAR):
        link.set_delay(one_way)
        assert error(one_way) > 0.1
        wait_until(lambda: error(one_way) < 0.1, f"{2 * one_way} s measured", SOON)  # noqa: B023 - called at once


def test_greedy_moves_with_the_link_and_keeps_the_tokens(slow_cloud: Pair, link: FaultyProxy) -> None:
    """On a short way it is the same who aggregates; on a long one the side that decodes slowly should."""
    with Stream(slow_cloud.url, QUESTION, **FIELDS, seed=1, placement="greedy") as stream:
        stream.read(4)
        link.set_delay(FAR)
        stream.read(28)
        link.set_delay(0.0)
        report = stream.finish()
    assert report["switches"] >= 1
    assert report["degraded"] == []
    still = slow_cloud.complete(QUESTION, **FIELDS, seed=1, placement="device", synchronous=True)
    assert still["dragon"]["switches"] == 0
    assert stream.text == still["choices"][0]["message"]["content"]
