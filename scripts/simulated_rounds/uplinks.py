"""Uplinks of a rate that is constant, or that changes between two states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

KILOBIT: Final = 125.0  # bytes
LOW, HIGH = 40 * KILOBIT, 400 * KILOBIT  # bytes per second: the uplinks of quantize-sample-verify's section V-A
SLOT: Final = 0.1  # seconds between chances to change


class Uplink(Protocol):
    """A model of an uplink: it tells the time at which bytes have left."""

    def finish(self, start: float, size: float) -> float:
        """Seconds at which `size` bytes have left if they begin to at `start`; starts never decrease."""
        ...


class UplinkModel(Protocol):
    """Source of uplinks."""

    def draw(self, seed: int) -> Uplink:
        """An uplink from second 0 on, the same for the same seed."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Bytes per second that never change; inf: unlimited."""

    rate: float

    def __post_init__(self) -> None:
        if not self.rate > 0.0:
            raise ValueError(f"a rate must be positive, got {self.rate}")

    def draw(self, seed: int) -> Uplink:
        return self

    def finish(self, start: float, size: float) -> float:
        return start + size / self.rate


@dataclass(frozen=True, slots=True)
class TwoStateRate:
    """A Markov chain of two rates: at the end of every slot it may change, and a message may see several slots.

    The paper leaves both probabilities open, and changes its chain once per round. Time is what real channels go by;
    with .1 of each, a state lasts ten slots on average, about twenty rounds.
    """

    rise: float = 0.1  # probability of low to high, per slot
    fall: float = 0.1  # of high to low
    low: float = LOW  # bytes per second
    high: float = HIGH
    slot: float = SLOT  # seconds

    def __post_init__(self) -> None:
        if not (0.0 < self.rise <= 1.0 and 0.0 < self.fall <= 1.0 and self.low > 0.0 < self.high and self.slot > 0.0):
            raise ValueError(f"probabilities must be in (0, 1], rates and slot positive, got {self}")

    def draw(self, seed: int) -> Uplink:
        return _TwoStateUplink(self, np.random.default_rng((seed, 3)))


@dataclass(slots=True)
class _TwoStateUplink:
    model: TwoStateRate
    random: np.random.Generator
    states: list[bool] = field(default_factory=list)  # whether slot i is one of the high rate

    def finish(self, start: float, size: float) -> float:
        now, left = start, float(size)
        index = int(now / self.model.slot)
        while True:
            rate = self.model.high if self._is_high(index) else self.model.low
            end = (index + 1) * self.model.slot
            if left <= rate * (end - now):
                return now + left / rate
            left -= rate * max(0.0, end - now)
            now, index = end, index + 1

    def _is_high(self, index: int) -> bool:
        model = self.model
        while len(self.states) <= index:
            if not self.states:
                self.states.append(bool(self.random.random() < model.rise / (model.rise + model.fall)))
                continue
            before = self.states[-1]
            self.states.append(before ^ bool(self.random.random() < (model.fall if before else model.rise)))
        return self.states[index]
