"""Patience by a clock of its own: what ends it, and what does not count."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from common.answer.patience import (
    MOST_ARRIVING,
    MOST_COUNTED,
    MOST_STEP,
    MOST_TRIP,
    MOST_WAIT,
    PATIENCE_STEPS,
    PATIENCE_TRIPS,
    PATIENCE_WAITS,
    STAGES,
    ProgressTimeout,
    WaitLimits,
)
from common.estimates.policy import Estimates

LOOK = 0.02  # seconds between two looks
LIMITS = WaitLimits(0.5, 2.0)
FAR = 1000.0  # seconds


@dataclass
class Waiting:
    """A device that waits for a cloud."""

    told: list[float] = field(default_factory=list)
    now: float = 0.0
    progress: int = 0
    stage: int = 0
    away: bool = False
    limits: WaitLimits = LIMITS

    def __post_init__(self) -> None:
        self._silence = ProgressTimeout(self.told.append)

    def look(self, seconds: float = LOOK) -> bool:
        self.now += seconds
        return self._silence.over(self.now, self.progress, self.stage, True, self.away, self.limits)

    def until_over(self, restless: bool = False) -> float:
        """Seconds until patience ends; a `restless` cloud gives a hopeful sign with every look."""
        begun = self.now
        while not self.look():
            self.stage += restless
            assert self.now - begun < FAR
        return self.now - begun


def test_patience_ends_when_nothing_comes() -> None:
    assert Waiting().until_over() == pytest.approx(LIMITS.patience, abs=0.1)


def test_progress_starts_it_anew() -> None:
    waiting = Waiting()
    for _ in range(10):
        for _ in range(80):  # 1.6 s
            assert not waiting.look()
        waiting.progress += 1
    assert waiting.told[1:] == pytest.approx([1.6] * 8, abs=0.1)


def test_hopeful_signs_are_not_worth_any_time() -> None:
    assert Waiting().until_over(restless=True) == pytest.approx(STAGES * LIMITS.patience, abs=0.2)


def test_ones_own_sleep_is_not_counted() -> None:
    waiting = Waiting()
    waiting.look()
    assert not waiting.look(FAR)
    assert waiting.until_over() == pytest.approx(LIMITS.patience - MOST_COUNTED, abs=0.1)


def test_a_message_that_comes_in_is_waited_for_within_a_bound() -> None:
    waiting = Waiting(limits=replace(LIMITS, arriving=True))
    assert waiting.until_over() == pytest.approx(MOST_ARRIVING + LIMITS.patience, abs=0.2)


def test_a_cloud_that_only_says_that_it_is_back_is_believed_less_and_less() -> None:
    """It says so with every look: it gets a full patience at times that are twice as far from each other."""
    waiting, held = Waiting(), 0.0
    while waiting.now < 100 * LIMITS.patience:
        if waiting.look():
            waiting.away = True
        elif waiting.away:
            waiting.away = False
        else:
            held += LOOK
    assert held < 8 * LIMITS.patience
    waiting.progress += 1  # and is waited for again when it has brought something
    waiting.away = False
    assert waiting.until_over() == pytest.approx(LIMITS.patience, abs=0.1)


def test_what_a_peer_says_is_believed_within_bounds() -> None:
    lying = Estimates(0.01, 1e9, 1e6, 0.5, 0.5)
    most = PATIENCE_TRIPS * MOST_TRIP + PATIENCE_STEPS * MOST_STEP
    assert WaitLimits.of(lying, 1e6, 2.0).patience == most
    measured = Estimates(0.01, 1e9, 0.02, 0.5, 0.5)
    assert WaitLimits.of(measured, 0.02, 2.0, usual=0.1).patience == 2.0
    assert WaitLimits.of(measured, 0.02, 2.0, usual=1.0).patience == pytest.approx(PATIENCE_STEPS + 0.06)
    assert WaitLimits.of(measured, 0.02, 2.0, usual=1e6).patience == PATIENCE_WAITS * MOST_WAIT


def test_five_seconds_of_round_trip_are_within_them() -> None:
    far = Estimates(0.05, 0.05, 5.0, 0.5, 0.5)
    assert WaitLimits.of(far, 7.0, 2.0).patience > 3 * 7.0
