"""The clock of a session: when the other side is asked again, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from common.answer.patience import Patience, Silence
from common.methods.aggregate.drafts import Action
from common.methods.aggregate.session import Session


class Watch:
    """Looks at the clock for a session."""

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        """`waited`: as of `Silence`."""
        self._silence = Silence(waited)
        self._stage: Hashable = None
        self._asked = 0.0  # last time the other side was asked again

    def poll(self, session: Session, now: float, limits: Patience) -> tuple[list[Action], bool]:
        """Apply exceeded limits: the session's actions, and whether patience has ended. To be called at every event
        and periodically; `now` is of any clock, in seconds.
        """
        waiting, stage = session.waiting, session.stage
        by_both = session.position - len(session.counters.degraded)
        over = self._silence.over(now, by_both, stage, waiting, session.away, limits)
        actions: list[Action] = []
        if not waiting and not session.away:
            self._stage = None
        elif stage != self._stage and not session.away:
            self._stage, self._asked = stage, now
        elif now - self._asked >= limits.resync:
            self._asked = now
            actions += session.stalled()
        if over:
            actions += session.out_of_patience()
        return actions, over
