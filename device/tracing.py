"""Collects one request's trace on the device."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from common.answer.recorder import MOST_PARTS, Recorder
from common.estimates.profiler import LinkMeter
from common.process.threads import QuietLog
from common.tracing.trace import Notes, Trace, merge
from proto.errors import ProtocolError
from proto.messages import Message, Spans
from proto.payloads.trace import Span, decode_spans

log = logging.getLogger(__name__)


class Tracing:
    """The device's half of the trace, and received parts of the cloud's."""

    def __init__(self, recorder: Recorder, meter: Callable[[], LinkMeter | None], started: float) -> None:
        """`started`: the request's arrival in monotonic seconds."""
        self.recorder = recorder
        self._started = round(started * 1e9)
        self._meter = meter
        self._parts: dict[int, list[Span]] = {}
        self._dropped = 0  # on the cloud
        self._lines = QuietLog(log)

    def heard(self, message: Message) -> bool:
        """Returns whether the message is for the trace only."""
        if not isinstance(message, Spans):
            return False
        if message.part < min(message.parts, MOST_PARTS):
            try:
                self._parts[message.part] = decode_spans(message.payload)
                self._dropped = message.dropped
            except ProtocolError as error:
                self._lines.tell(logging.WARNING, "the cloud sent a malformed trace: %s", error)
        return True

    def merged(self) -> Trace:
        """Merges both halves after the answer's end; takes milliseconds."""
        meter = self._meter()
        recorder = self.recorder
        cloud = [span for part in sorted(self._parts) for span in self._parts[part]]
        return merge(
            Notes(tuple(recorder.spans), recorder.dropped),
            Notes(cloud, self._dropped) if self._parts else None,
            None if meter is None else meter.clock,
            self._started,
            time.monotonic_ns(),
            () if meter is None else meter.recent,
        )
