"""The scheduler thread looks at the clock often where something is under way, and goes on whatever happens."""

from __future__ import annotations

import time
from itertools import pairwise

from common.daemon.start import IDLE, PERIOD, Ticker
from tests.daemons.streaming import wait_until

WATCHED = 10 * IDLE
SOON = 30.0  # seconds


def test_where_nothing_is_under_way_it_looks_seldom() -> None:
    looks: list[float] = []

    def tick(now: float) -> bool:
        looks.append(now)
        return False

    ticker = Ticker(tick)
    began = time.monotonic()
    ticker.start()
    time.sleep(WATCHED)
    ticker.close()
    assert 1 <= len(looks) <= (time.monotonic() - began) / IDLE + 1
    assert all(later - earlier >= IDLE for earlier, later in pairwise(looks))


def test_it_looks_often_and_after_a_failure_as_often() -> None:
    looks: list[float] = []

    def tick(now: float) -> bool:
        looks.append(now)
        if len(looks) == 3:
            raise ValueError
        return True

    ticker = Ticker(tick)
    ticker.start()
    wait_until(lambda: len(looks) >= 50, "it goes on", SOON)
    ticker.close()
    between = sorted(later - earlier for earlier, later in pairwise(looks))
    assert PERIOD <= between[0] < IDLE
