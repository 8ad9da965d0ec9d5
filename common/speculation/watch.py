"""When a session that waits for the other side asks again, and when the device stops waiting."""

from __future__ import annotations

from dataclasses import dataclass

from common.speculation.session import Session
from common.speculation.values import Action


@dataclass(frozen=True, slots=True)
class Limits:
    """Both in seconds."""

    resync: float  # silence after which the committed prefix is sent again
    patience: float  # silence after which the device carries on alone


class Watch:
    """Times how long a session has been waiting at its present position. The caller's clock, any origin."""

    def __init__(self) -> None:
        self._position = -1
        self._since = 0.0  # waiting at this position since then
        self._asked = 0.0  # last time the other side was asked again

    def poll(self, session: Session, now: float, limits: Limits) -> list[Action]:
        """To be called at every event and from time to time; returns what the session wants done."""
        if not session.waiting and not session.away:
            self._position = -1
            return []
        if session.position != self._position and not session.away:
            self._position, self._since, self._asked = session.position, now, now
            return []
        actions: list[Action] = []
        if now - self._asked >= limits.resync:
            self._asked = now
            actions += session.stalled()
        if not session.away and now - self._since >= limits.patience:
            self._since = now
            actions += session.out_of_patience()
        return actions
