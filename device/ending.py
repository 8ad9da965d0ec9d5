"""The end of an answer on the device, until its report is made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from common.answer.patience import ProgressTimeout, WaitLimits
from common.answer.report import AnswerRecord
from common.daemon.model_runtime import Rereading, SecondReading, longest
from common.engine.jobs import Prompt
from proto.messages import Closed

CLOSING_BYTES = 2**12  # bytes of the cloud's part of the report that count as progress


class Ending:
    """Waits for the second reading and the cloud's part of the report. For any thread.

    `make` is called once with that part or None, and with the time of the last decision (monotonic). For a failed
    answer it is never called.
    """

    def __init__(
        self, begun: float, reread: Callable[[Rereading], object], make: Callable[[Closed | None, float], object]
    ) -> None:
        """`begun` is the answer's start; `reread` submits a second reading to the engine."""
        self.at: float | None = None  # time of the last decision
        self.over = False  # the report is being made, or there is none
        self._begun = begun
        self._second = SecondReading(reread)
        self._make = make
        self._silence = ProgressTimeout()
        self._closed: tuple[Closed | None] | None = None  # the cloud's part of the report; (None,): there is none
        self._lock = threading.Lock()

    @property
    def unread(self) -> bool:
        return self._second.failed

    def behind(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Sets the documents of the second reading; see `SecondReading`."""
        self._second.behind(apart, record)

    def begin(self, tokens: Sequence[int], failed: bool) -> None:
        """Notes the last decision, and has `tokens` read again. Call once."""
        with self._lock:  # a concurrent close waits for the reading
            self.at, self.over = time.monotonic(), failed
            self._second.begin(tokens, self.at - self._begun, self._read_again)

    def close(self, closed: Closed | None) -> None:
        """Takes the cloud's part of the report. None: none will come, and an earlier one counts."""
        with self._lock:
            if self.over or self.at is None:
                return
            if closed is not None or self._closed is None:
                self._closed = (closed,)
            part, at = self._closed[0], self.at
            if self._second.going:
                return  # the reading calls again
            self.over = True
        self._make(part, at)

    def give_up(self) -> None:
        """Stops waiting: nobody needs the report any more."""
        self._second.stop()
        self.close(None)

    def tick(self, now: float, cloud: bool, reads: bool, come: int, limits: WaitLimits) -> None:
        """Stops waiting for a part that takes too long.

        `cloud`: the cloud still has this answer. `reads`: the cloud reads it again, as the device does. `come`:
        received bytes of its part.
        """
        self._second.tick(now)
        if self.over or self.at is None or self._closed is not None:
            return
        reading = reads and now - self.at <= longest(self.at - self._begun)
        if not cloud:
            self.close(None)  # a later cloud has nothing to report
        elif not reading and self._silence.over(now, come // CLOSING_BYTES, None, True, False, limits):
            self.close(None)

    def _read_again(self) -> None:
        """Makes the report if the cloud's part is settled."""
        if self._closed is not None:
            self.close(None)
