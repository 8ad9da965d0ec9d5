"""The end of an answer on the device: its report is made when nothing more of it is to be waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from common.answer.patience import ProgressTimeout, WaitLimits
from common.answer.report import AnswerRecord
from common.daemon.model_runtime import Rereading, SecondReading, longest
from common.engine.jobs import Prompt
from proto.messages import Closed

CLOSING_BYTES = 2**12  # of the cloud's part of a report that count as progress


class Ending:
    """Waits for the second reading, if there is one, and for the cloud's part of the report. For any thread.

    `make` is called once, with that part or None and when all tokens were decided (monotonic), unless the answer has
    failed: then never.
    """

    def __init__(
        self, begun: float, reread: Callable[[Rereading], object], make: Callable[[Closed | None, float], object]
    ) -> None:
        """`begun`: when the answer was; `reread` hands a second reading to the engine."""
        self.at: float | None = None  # when all tokens were decided
        self.over = False  # the report is being made, or there is none
        self._begun = begun
        self._second = SecondReading(reread)
        self._make = make
        self._silence = ProgressTimeout()
        self._closed: tuple[Closed | None] | None = None  # the cloud's part of the report, or that there is none
        self._lock = threading.Lock()

    @property
    def unread(self) -> bool:
        """Whether the second reading ended without a result."""
        return self._second.failed

    def behind(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Note what the second reading is behind; see `SecondReading`."""
        self._second.behind(apart, record)

    def begin(self, tokens: Sequence[int], failed: bool) -> None:
        """Note that nothing more is decided, and have `tokens` read again. To be called once."""
        with self._lock:  # who closes it now waits for the reading
            self.at, self.over = time.monotonic(), failed
            self._second.begin(tokens, self.at - self._begun, self._read_again)

    def close(self, closed: Closed | None) -> None:
        """Take the cloud's part of the report; None: there won't be one, unless it has come before."""
        with self._lock:
            if self.over or self.at is None:
                return
            if closed is not None or self._closed is None:
                self._closed = (closed,)
            part, at = self._closed[0], self.at
            if self._second.going:
                return  # it calls again
            self.over = True
        self._make(part, at)

    def give_up(self) -> None:
        """Do without all that is not there: nobody waits for the report any more."""
        self._second.stop()
        self.close(None)

    def tick(self, now: float, cloud: bool, reads: bool, come: int, limits: WaitLimits) -> None:
        """Do without what takes too long. `cloud`: it has this answer still; `reads`: as the device, it reads it
        again; `come`: bytes of its part so far.
        """
        self._second.tick(now)
        if self.over or self.at is None or self._closed is not None:
            return
        reading = reads and now - self.at <= longest(self.at - self._begun)
        if not cloud:
            self.close(None)  # whoever comes next has nothing to report
        elif not reading and self._silence.over(now, come // CLOSING_BYTES, None, True, False, limits):
            self.close(None)

    def _read_again(self) -> None:
        """Make the report, if nothing else lacks: what each document says of the answer is known."""
        if self._closed is not None:
            self.close(None)
