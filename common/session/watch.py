"""Limits on a session's wait for the other side: until it asks again, and until the device carries on alone."""

from __future__ import annotations

from dataclasses import dataclass

from common.placement.estimates import Estimates
from common.session.session import Session
from common.session.values import Action, Stage

SHORTEST_RESYNC = 0.5  # seconds
# Enough for a verdict and the draft after it, a question and its answer, and estimates that lag behind.
PATIENCE_TRIPS = 3
PATIENCE_STEPS = 4
RESYNC_TRIPS = 4
RESYNC_STEPS = 4


@dataclass(frozen=True, slots=True)
class Patience:
    """Both in seconds."""

    resync: float  # silence after which the committed prefix is sent again
    patience: float  # silence after which the device carries on alone

    @classmethod
    def of(cls, estimates: Estimates, longest: float | None, patience: float) -> Patience:
        """Limits from the link and the cloud's steps: no shorter than a working cloud may take to be heard.

        `longest` is a round trip that is seldom exceeded, None before the first; `patience` the least for the device.
        """
        steps = estimates.cloud_decode
        resync = RESYNC_TRIPS * estimates.rtt + RESYNC_STEPS * steps
        heard = PATIENCE_TRIPS * (longest or estimates.rtt) + PATIENCE_STEPS * steps
        return cls(max(SHORTEST_RESYNC, resync), max(patience, heard))


class Watch:
    """Measures how long a session has been waiting at its present stage, by the caller's clock (any origin)."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._since = 0.0  # waiting at this stage since then
        self._asked = 0.0  # last time the other side was asked again

    def poll(self, session: Session, now: float, limits: Patience) -> list[Action]:
        """Apply exceeded limits; returns the session's actions. To be called at every event and periodically."""
        if not session.waiting and not session.away:
            self._stage = None
            return []
        if session.stage != self._stage and not session.away:
            self._stage, self._since, self._asked = session.stage, now, now
            return []
        actions: list[Action] = []
        if now - self._asked >= limits.resync:
            self._asked = now
            actions += session.stalled()
        if not session.away and now - self._since >= limits.patience:
            self._since = now
            actions += session.out_of_patience()
        return actions
