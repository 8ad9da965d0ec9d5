"""Acceptance of an answer's drafts: recorded from real answers, or modelled (DRAGON §7.4).

A record is a JSON list of answers; an answer is a list of positions; a position is `[device, cloud]`, 1 where that
side's draft after the right prefix is the target and 0 where it is not, or `[device, cloud, alpha_device, alpha_cloud]`
with what Eq. 5 expected.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Position:
    """One position: True for each side whose draft after the right prefix is the target."""

    device: bool
    cloud: bool
    expected: tuple[float, float] | None = None  # Eq. 5: alpha of (device, cloud)


Answer = tuple[Position, ...]


class AcceptanceModel(Protocol):
    """Source of the acceptance of an answer's drafts."""

    def draw(self, tokens: int, seed: int) -> Answer:
        """An answer of at most `tokens` positions, the same for the same seed."""
        ...


@dataclass(frozen=True, slots=True)
class Rates:
    """Every position alike and independent of the others: alpha of each side, and how often both are accepted."""

    device: float
    cloud: float
    both: float

    def __post_init__(self) -> None:
        lowest, highest = self.device + self.cloud - 1.0, min(self.device, self.cloud)
        if not all(0.0 <= rate <= 1.0 for rate in (self.device, self.cloud, self.both)):
            raise ValueError(f"acceptance rates must be in [0, 1], got {self.device}, {self.cloud} and {self.both}")
        if not lowest - _ROUNDING <= self.both <= highest + _ROUNDING:
            raise ValueError(
                f"with rates {self.device} and {self.cloud}, both drafts are accepted in {max(lowest, 0.0):g} to "
                f"{highest:g} of the positions, not in {self.both:g}"
            )

    @classmethod
    def independent(cls, device: float, cloud: float) -> Rates:
        """Rates of two sides whose acceptance is independent."""
        return cls(device, cloud, device * cloud)

    def draw(self, tokens: int, seed: int) -> Answer:
        uniform = np.random.default_rng(seed).random(tokens)
        # [0, both) both, [both, device) the device's alone, [device, device + cloud - both) the cloud's alone
        only_cloud = (uniform >= self.device) & (uniform < self.device + self.cloud - self.both)
        return tuple(
            Position(bool(device), bool(both or cloud))
            for device, both, cloud in zip(uniform < self.device, uniform < self.both, only_cloud, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Phases:
    """Rates that take turns every `length` positions: the documents' relevance changes along an answer.

    With `expectations`, the rates of its phase are a position's Eq. 5, which a sampler that knows both distributions
    tells the scheduler.
    """

    rates: tuple[Rates, ...]
    length: int
    expectations: bool = False

    def draw(self, tokens: int, seed: int) -> Answer:
        offset = int(np.random.default_rng((seed, 1)).integers(self.length * len(self.rates)))
        drawn = [rates.draw(tokens, seed) for rates in self.rates]
        phases = [(offset + position) // self.length % len(self.rates) for position in range(tokens)]
        return tuple(
            Position(
                (found := drawn[phase][position]).device,
                found.cloud,
                (self.rates[phase].device, self.rates[phase].cloud) if self.expectations else None,
            )
            for position, phase in enumerate(phases)
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Replays answers; the seed says which one."""

    answers: tuple[Answer, ...]

    def __post_init__(self) -> None:
        if not self.answers or not all(self.answers):
            raise ValueError("a record of acceptance needs at least one answer, and no empty ones")

    def draw(self, tokens: int, seed: int) -> Answer:
        return self.answers[seed % len(self.answers)][:tokens]


@dataclass(frozen=True, slots=True)
class InARow:
    """One long answer made of recorded ones, drawn at random and each begun at a random position."""

    answers: tuple[Answer, ...]

    def draw(self, tokens: int, seed: int) -> Answer:
        random = np.random.default_rng((seed, 3))
        drawn: list[Position] = []
        while len(drawn) < tokens:
            answer = self.answers[int(random.integers(len(self.answers)))]
            drawn += answer[int(random.integers(len(answer))) :]
        return tuple(drawn[:tokens])


def load_record(path: Path) -> Recorded:
    """Read a record. Raises `ValueError`, one sentence, for a file that isn't one, and `OSError`."""
    try:
        answers = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(f"{path} is not JSON: a record of acceptance is a list of answers") from None
    if not isinstance(answers, list) or not all(isinstance(answer, list) for answer in answers):
        raise ValueError(f"{path} must hold a list of answers, each a list of positions [device, cloud]")
    read = []
    for number, answer in enumerate(answers):
        try:
            read.append(tuple(_position(value) for value in answer))
        except ValueError as error:
            raise ValueError(f"{path}, answer {number}: {error}") from None
    try:
        return Recorded(tuple(read))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def save_record(path: Path, answers: Sequence[Answer]) -> None:
    """Write a record that `load_record` reads."""
    values = [[[int(p.device), int(p.cloud), *(p.expected or ())] for p in answer] for answer in answers]
    path.write_text(json.dumps(values) + "\n", "utf-8")


def _position(value: Any) -> Position:
    numbers = value if isinstance(value, list) else []
    right = all(isinstance(number, (int, float)) and 0 <= number <= 1 for number in numbers)
    if len(numbers) not in (2, 4) or not right or any(number not in (0, 1) for number in numbers[:2]):
        raise ValueError(f"a position is [device, cloud] with 0 or 1, perhaps with two rates, not {str(value)[:60]}")
    expected = (float(numbers[2]), float(numbers[3])) if len(numbers) == 4 else None
    return Position(bool(numbers[0]), bool(numbers[1]), expected)
