"""The greedy scheduler of real daemons moves the aggregation to the side that decodes slowly, and takes no token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.transport.faulty import FaultyProxy, Line
from scripts.daemons import Pair, free_port

QUESTION = "What is the best-selling game of the kind I like?"
ONE_WAY = 0.05  # seconds


@pytest.fixture(scope="module")
def slow_cloud(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    """A cloud that needs 60 ms for a token, behind a link of 100 ms, and a device that needs a tenth of that."""
    port = free_port()
    line = Line(delay=ONE_WAY)
    with FaultyProxy(port, up=line, down=line) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        settings = {"privacy": "balanced", "patience": 60.0}
        with Pair(
            fresh_data(), device=settings, cloud={"emulate_decode_ms": 60.0}, between=between, cloud_port=port
        ) as pair:
            yield pair


def test_the_round_trip_is_measured_in_band(slow_cloud: Pair) -> None:
    deadline = time.monotonic() + 10
    while slow_cloud.status()["cloud"]["rtt_ms"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert 2000 * ONE_WAY <= slow_cloud.status()["cloud"]["rtt_ms"] < 2000 * ONE_WAY + 50


def test_greedy_migrates_to_the_bottleneck_and_keeps_the_tokens(slow_cloud: Pair) -> None:
    switches = {"greedy": 0, "device": 0}
    for seed in range(3):
        answers = set()
        for placement in switches:
            # Hot enough that the two sides often disagree: only then it matters who aggregates.
            fields = {"temperature": 2.0, "seed": seed, "max_tokens": 24, "placement": placement}
            response = slow_cloud.complete(QUESTION, **fields)
            switches[placement] += response["dragon"]["switches"]
            answers.add(response["choices"][0]["message"]["content"])
            assert response["dragon"]["degraded"] == []
        assert len(answers) == 1
    assert switches["device"] == 0
    assert switches["greedy"] >= 1
