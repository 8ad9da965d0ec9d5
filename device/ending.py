"""The end of an answer on the device, until its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from common.answer.patience import ProgressTimeout, WaitLimits
from common.answer.report import AnswerRecord
from common.daemon.model_runtime import Rereading, SecondReading, longest
from common.engine.jobs import Prompt
from proto.messages import Closed

CLOSING_BYTES = 2**12  # of the cloud's part; counted as progress


class Ending:
    """Waits for the second reading and the cloud's part of the report. For any thread.

    `make` is called once, unless the answer failed, with that part or None, and the time of the last decision
    (monotonic).
    """

    def __init__(
        self, begun: float, reread: Callable[[Rereading], object], make: Callable[[Closed | None, float], object]
    ) -> None:
        """`begun`: the answer's start; `reread` submits a second reading."""
        self.at: float | None = None  # time of the last decision
        self.over = False  # report begun, or none
        self._begun = begun
        self._second = SecondReading(reread)
        self._make = make
        self._silence = ProgressTimeout()
        self._closed: tuple[Closed | None] | None = None  # the cloud's part, or None for none to come
        self._lock = threading.Lock()

    @property
    def unread(self) -> bool:
        return self._second.failed

    def behind(self, apart: Prompt | None, record: AnswerRecord) -> None:
        self._second.behind(apart, record)

    def begin(self, tokens: Sequence[int], failed: bool) -> None:
        """Has `tokens` read again after the last decision. Call once."""
        with self._lock:  # a concurrent close waits
            self.at, self.over = time.monotonic(), failed
            self._second.begin(tokens, self.at - self._begun, self._read_again)

    def close(self, closed: Closed | None) -> None:
        """Takes the cloud's part. None: none will come, so an earlier one counts."""
        with self._lock:
            if self.over or self.at is None:
                return
            if closed is not None or self._closed is None:
                self._closed = (closed,)
            part, at = self._closed[0], self.at
            if self._second.going:
                return  # called again by the reading
            self.over = True
        self._make(part, at)

    def give_up(self) -> None:
        """Stops waiting for missing parts of the report."""
        self._second.stop()
        self.close(None)

    def tick(self, now: float, cloud: bool, reads: bool, come: int, limits: WaitLimits) -> None:
        """Stops waiting for a late part.

        `cloud`: it has this answer. `reads`: it reads again, as the device does. `come`: received bytes.
        """
        self._second.tick(now)
        if self.over or self.at is None or self._closed is not None:
            return
        reading = reads and now - self.at <= longest(self.at - self._begun)
        if not cloud:
            self.close(None)  # a later cloud has no report
        elif not reading and self._silence.over(now, come // CLOSING_BYTES, None, True, False, limits):
            self.close(None)

    def _read_again(self) -> None:
        if self._closed is not None:
            self.close(None)
