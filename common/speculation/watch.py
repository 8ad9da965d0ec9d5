"""When a session that waits for the other side asks again, and when the device stops waiting."""

from __future__ import annotations

from dataclasses import dataclass

from common.scheduling.policy import Estimates
from common.speculation.session import Session
from common.speculation.values import Action, Stage

SHORTEST_RESYNC = 0.5  # seconds
# A verdict and a draft after it, a question and its answer, and what the estimates lag behind.
PATIENCE_TRIPS = 3
PATIENCE_STEPS = 4
RESYNC_TRIPS = 4
RESYNC_STEPS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Both in seconds."""

    resync: float  # silence after which the committed prefix is sent again
    patience: float  # silence after which the device carries on alone

    @classmethod
    def of(cls, estimates: Estimates, longest: float | None, patience: float) -> Limits:
        """As the link and the cloud's steps allow: not before a living cloud can be heard.

        `longest` is a round trip that is seldom exceeded, None before the first; `patience` the least wanted.
        """
        steps = estimates.cloud_decode
        resync = RESYNC_TRIPS * estimates.rtt + RESYNC_STEPS * steps
        heard = PATIENCE_TRIPS * (longest or estimates.rtt) + PATIENCE_STEPS * steps
        return cls(max(SHORTEST_RESYNC, resync), max(patience, heard))


class Watch:
    """Times how long a session has been waiting at its present stage. The caller's clock, any origin."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._since = 0.0  # waiting at this stage since then
        self._asked = 0.0  # last time the other side was asked again

    def poll(self, session: Session, now: float, limits: Limits) -> list[Action]:
        """To be called at every event and from time to time; returns what the session wants done."""
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
