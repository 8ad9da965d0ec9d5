"""Measurements of a connection that other threads hand to the profiler."""

from __future__ import annotations

from dataclasses import dataclass

from proto.fields import Side


@dataclass(frozen=True, slots=True)
class RemoteDecoded:
    """A decode step of the other side."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A decided position: Eq. 5's acceptance of (device, cloud), if the sampler has it, and the actual one."""

    expected: tuple[float, float] | None
    accepted: dict[Side, bool]


Measurement = RemoteDecoded | Judged
