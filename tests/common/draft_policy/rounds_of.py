"""Outcomes for tests of policies and estimators."""

from __future__ import annotations

from common.draft_policy.times import RoundOutcome


def outcome(
    length: int,
    accepted: int,
    *,
    resolution: int | None = None,
    draft: float = 0.005,
    verify: float = 0.032,
    rtt: float = 0.0,
    size: int = 90,
    rate: float = float("inf"),
    confidences: tuple[float, ...] = (),
    rested: bool = False,
) -> RoundOutcome:
    """A synchronous round with these times: `size` bytes a token, `rate` bytes per second."""
    verdict = rtt + verify + length * size / rate
    return RoundOutcome(
        length=length,
        accepted=accepted,
        tokens=accepted + 1,
        seconds=length * draft + verdict,
        verdict_seconds=verdict,
        verify_seconds=verify,
        bytes_up=length * size,
        bytes_down=0,
        resolution=resolution,
        confidences=confidences,
        rested=rested,
    )
