"""What the other threads tell the profiler."""

from __future__ import annotations

from dataclasses import dataclass

from proto.messages import Side


@dataclass(frozen=True, slots=True)
class Decoded:
    """A step of this side, at `context` tokens."""

    context: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RemoteDecoded:
    """A step of the other side."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """An aggregation: Eq. 5's expectations of (device, cloud) where the sampler has them, and what happened."""

    expected: tuple[float, float] | None
    accepted: dict[Side, bool]


Measurement = Decoded | RemoteDecoded | Judged
