"""Durations of decode steps and messages in a simulated answer. All times are seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.estimates.estimators import DecodeLine
from proto.messages import Draft, Message

SINUSOID_PERIOD = 20 * math.pi  # of §7.4
JITTER_SHARE = 0.2  # of the extra latency (§7.3)


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """Seconds of a decode step: one of `samples` at random, and a line in the context length on top of it (§5.2)."""

    samples: tuple[float, ...]
    slope: float = 0.0  # seconds per token of context
    prompt: int = 256  # tokens of context before the answer

    def __post_init__(self) -> None:
        if not self.samples or not all(0.0 < sample < math.inf for sample in self.samples):
            raise ValueError("a decode step takes a positive number of seconds")
        if not 0.0 <= self.slope < math.inf or self.prompt < 1:
            raise ValueError(f"a step can't take {self.slope} s more per token after a prompt of {self.prompt} tokens")

    @classmethod
    def constant(cls, seconds: float) -> DecodeTime:
        return cls((seconds,))

    @property
    def line(self) -> DecodeLine:
        """The decode line that profiling this side offline would find."""
        return DecodeLine.of(self.slope, float(np.mean(self.samples)), self.prompt)

    def mean(self, tokens: int) -> float:
        """Seconds of the average step of an answer."""
        return self.line.predict(self.prompt + 0.5 * (tokens - 1))

    def seconds(self, position: int, random: np.random.Generator) -> float:
        sample = self.samples[0] if len(self.samples) == 1 else self.samples[int(random.integers(len(self.samples)))]
        return sample + self.slope * (self.prompt + position)


@dataclass(frozen=True, slots=True)
class Sinusoid:
    """Jitter that swings the extra latency by `share` of it, as in §7.4; `phase` in radians."""

    share: float = JITTER_SHARE
    period: float = SINUSOID_PERIOD
    phase: float = 0.0

    def factor(self, now: float, random: np.random.Generator) -> float:
        return 1.0 + self.share * math.sin(2 * math.pi * now / self.period + self.phase)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Jitter that is drawn anew for every message, evenly within `share` of the extra latency on either side."""

    share: float = JITTER_SHARE

    def factor(self, now: float, random: np.random.Generator) -> float:
        return 1.0 + self.share * float(random.uniform(-1.0, 1.0))


Jitter = Sinusoid | Scatter


@dataclass(frozen=True, slots=True)
class Way:
    """The network between the sides, alike in both directions; messages keep their order."""

    rtt: float = 0.0  # of the network as it is
    extra: float = 0.0  # added to the round trip; half of it on either way
    jitter: Jitter | None = None  # of the extra latency
    rate: float | None = None  # bytes per second and direction
    draft_bytes: int = 170
    other_bytes: int = 24

    def __post_init__(self) -> None:
        if not all(0.0 <= seconds < math.inf for seconds in (self.rtt, self.extra)):
            raise ValueError(f"round trips must not be negative, got {self.rtt} s and {self.extra} s more")
        if self.rate is not None and not self.rate > 0.0:
            raise ValueError(f"a link can't carry {self.rate} bytes/s")
        if self.jitter is not None and not 0.0 <= self.jitter.share <= 1.0:
            raise ValueError(f"jitter is a share of the extra latency, 0 to 1, not {self.jitter.share}")

    def one_way(self, now: float, random: np.random.Generator) -> float:
        """Seconds that a small message is under way when sent at `now`."""
        factor = 1.0 if self.jitter is None else self.jitter.factor(now, random)
        return 0.5 * (self.rtt + self.extra * factor)


class Sending:
    """One direction of a `Way`: when what is sent now arrives. Messages queue where the rate is limited."""

    def __init__(self, way: Way, now: Callable[[], float], random: np.random.Generator, handling: float) -> None:
        """`handling`: seconds of work beside the network that a message takes at its ends."""
        self._way = way
        self._now = now
        self._random = random
        self._handling = handling
        self._free = 0.0  # the link is busy with earlier messages until then

    def delay(self, message: Message | None) -> float:
        """Seconds until `message`, or a probe, is there."""
        now, way = self._now(), self._way
        if way.rate is not None and message is not None:
            size = way.draft_bytes if isinstance(message, Draft) else way.other_bytes
            self._free = max(self._free, now) + size / way.rate
        return max(self._free - now, 0.0) + way.one_way(now, self._random) + self._handling
