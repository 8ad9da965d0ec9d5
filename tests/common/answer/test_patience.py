"""Bounds of what a cloud says of its prompt."""

from __future__ import annotations

import pytest

from common.answer.patience import FIRST_READING, MOST_HALVINGS, MOST_READING, TRUSTED, ReadingTrust

MOST = 2**24 - 1  # tokens that `Ready` may claim
AGES = 1e9  # seconds that `Hello` may claim for a step
STEP = 0.02


def test_a_modest_claim_counts_at_the_profiled_speed() -> None:
    assert ReadingTrust().seconds(500, 0, STEP) == pytest.approx(500 * STEP)


@pytest.mark.parametrize(("prompt", "tokens", "step"), [(MOST, 0, STEP), (10, 1024, AGES), (MOST, 2**16, AGES)])
def test_no_claim_of_a_new_cloud_counts_beyond_the_first_bound(prompt: int, tokens: int, step: float) -> None:
    assert ReadingTrust().seconds(prompt, tokens, step) == FIRST_READING


def test_a_measured_speed_replaces_the_profile() -> None:
    trust = ReadingTrust()
    trust.ended(1000, 2.0)
    assert trust.seconds(3000, 0, AGES) == pytest.approx(TRUSTED * 3000 * 0.002)
    trust.ended(1000, 8.0)  # the slowest of the latest readings counts
    assert trust.seconds(1000, 0, STEP) == pytest.approx(TRUSTED * 8.0)


def test_a_long_reading_that_ended_is_waited_for_again() -> None:
    trust = ReadingTrust()
    trust.ended(30_000, 60.0)
    assert trust.seconds(30_000, 0, STEP) == TRUSTED * 60.0
    trust.ended(30_000, 280.0)
    assert trust.seconds(MOST, 0, STEP) == MOST_READING


def test_each_reading_in_vain_halves_the_bound_until_one_ends() -> None:
    trust = ReadingTrust()
    bounds = []
    for _ in range(MOST_HALVINGS + 3):
        bounds.append(trust.seconds(MOST, 0, STEP))
        trust.in_vain()
    assert bounds == [FIRST_READING / 2 ** min(count, MOST_HALVINGS) for count in range(len(bounds))]
    trust.ended(0, 1.0)
    assert trust.seconds(MOST, 0, STEP) == FIRST_READING
