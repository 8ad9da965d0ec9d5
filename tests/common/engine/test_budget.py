"""Times of passes: what a further row of a step costs, which decides whether branches are decoded."""

from __future__ import annotations

import pytest

from common.engine.batcher import PassTimes

STEP, ROW = 0.04, 0.004  # seconds


def measured() -> PassTimes:
    """Times of a process that has made steps of one row and of three, in turns."""
    times = PassTimes(STEP)
    for number in range(400):
        times.observe(STEP + 2 * ROW * (number % 2), True, 0, 2 * (number % 2))
    return times


def test_what_a_row_takes_is_measured_and_stays_while_it_is() -> None:
    times = measured()
    assert (times.step, times.row) == pytest.approx((STEP, ROW))
    for number in range(400):  # seldom, too
        times.observe(STEP + ROW * (number % 60 == 0), True, 0, int(number % 60 == 0))
    assert times.row == pytest.approx(ROW)


def test_an_accident_costs_no_row_a_step() -> None:
    times = measured()
    times.observe(2.0, True, 0, 1)
    assert times.row < 0.3 * STEP


def test_a_row_that_was_dear_is_tried_again() -> None:
    """One that is worth nothing is not decoded: nothing else would tell that it is cheap by now."""
    times = measured()
    for _ in range(40):
        times.observe(STEP + 0.1, True, 0, 1)
    assert times.row > 0.9 * STEP
    for _ in range(200):
        times.observe(STEP, True, 0)
    assert times.row < 0.2 * STEP
