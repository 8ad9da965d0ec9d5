"""What the other threads tell the profiler about a connection."""

from __future__ import annotations

from dataclasses import dataclass

from proto.messages import Side


@dataclass(frozen=True, slots=True)
class RemoteDecoded:
    """A step of the other side."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision: Eq. 5's expectations of (device, cloud) where the sampler has them, and what happened."""

    expected: tuple[float, float] | None
    accepted: dict[Side, bool]


Measurement = RemoteDecoded | Judged
