"""A side's half of a trace as messages."""

from __future__ import annotations

from collections.abc import Iterator

from common.answer.recorder import Recorder
from proto.messages import Spans
from proto.payloads.trace import SPANS_PER_MESSAGE, encode_spans


def span_messages(session: int, recorder: Recorder | None) -> Iterator[Spans]:
    """Messages with the spans of `recorder`; none without one."""
    if recorder is None:
        return
    spans, size = list(recorder.spans), SPANS_PER_MESSAGE
    payloads = [encode_spans(spans[start : start + size]) for start in range(0, len(spans), size)]
    for part, payload in enumerate(payloads):
        yield Spans(session, part, len(payloads), recorder.dropped, payload)
