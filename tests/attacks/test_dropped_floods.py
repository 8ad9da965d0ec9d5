"""A flood must neither end the process when its connection ends, nor fill its memory; see `dropped_floods`."""

from __future__ import annotations

import pytest

from tests.attacks.dropped_floods import attack_cloud, attack_device, busy_loops, flood

TRIES = 6  # without the mend one or two are enough; `python -m tests.attacks.dropped_floods` makes 200
LOOKS = 8  # that a busy machine may leave out; a tenth of a flood that is not cut
FLOODS = 3  # beside one of which it must not leave out more


def test_connections_that_end_in_a_flood_leave_the_cloud_alive() -> None:
    with busy_loops():
        attack_cloud(TRIES)


def test_connections_that_end_in_a_flood_leave_the_device_alive() -> None:
    with busy_loops():
        attack_device(TRIES)


@pytest.mark.parametrize("size", [0, 20, 60_000])
def test_a_flood_at_full_speed_costs_bounded_memory(size: int) -> None:
    for _ in range(FLOODS):
        flooded = flood(bytes(size))
        print(flooded)
        if flooded.most < flooded.allowed(LOOKS):
            return
    pytest.fail(f"{FLOODS} times more than {flooded.allowed(LOOKS) / 2**20:.0f} MiB")
