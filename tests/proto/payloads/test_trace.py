"""The payload of a trace: spans survive, and nothing that is none is read."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.errors import ProtocolError
from proto.framing import PAYLOAD_LIMIT
from proto.payloads.trace import DETAILS, KINDS, SPANS_PER_MESSAGE, VERDICTS, Span, decode_spans, encode_spans

RECORD = "<BBBHIIQQ5f"
GOOD: dict[str, Any] = {
    "kind": KINDS.index("aggregate"),
    "detail": 0,
    "verdicts": 5,
    "count": 1,
    "position": 7,
    "epoch": 2,
    "start": 10,
    "end": 20,
    "estimates": (0.5, 0.25, 0.125, 0.75, 1.0),
}


def body(**changes: Any) -> bytes:
    *values, estimates = (GOOD | changes).values()
    return b"\0" + struct.pack(RECORD, *values, *estimates)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    kind = draw(st.sampled_from(KINDS))
    start, end = sorted(draw(st.tuples(*[st.integers(0, 2**63 - 1)] * 2)))
    verdict = st.sampled_from(VERDICTS) if kind in ("aggregate", "follow") else st.none()
    rate, time = st.floats(0.0, 1.0, width=32), st.floats(0.0, 1e6, width=32)
    return Span(
        kind,
        draw(st.sampled_from(DETAILS[kind])),
        draw(st.integers(0, 2**20 - 1)),
        start,
        end,
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, 4096)),
        draw(st.tuples(verdict, verdict)),
        draw(st.tuples(time, time, time, rate, rate)) if kind == "aggregate" else None,
    )


@given(st.lists(spans(), max_size=20))
def test_spans_survive(sent: list[Span]) -> None:
    assert decode_spans(encode_spans(sent)) == sent


def test_a_full_message_fits_even_if_nothing_can_be_compressed() -> None:
    random = np.random.default_rng(1)
    times = [tuple(sorted(random.integers(0, 2**62, 2).tolist())) for _ in range(SPANS_PER_MESSAGE)]
    full = [Span("decode", "late", 2**20 - 1, start, end, 2**32 - 1) for start, end in times]
    assert len(encode_spans(full)) <= PAYLOAD_LIMIT
    assert decode_spans(encode_spans(full)) == full
    with pytest.raises(ValueError, match="1024"):
        encode_spans([*full, full[0]])


def test_the_record_is_as_documented() -> None:
    assert decode_spans(body()) == [
        Span("aggregate", "both", 7, 10, 20, 2, 1, (True, False), (0.5, 0.25, 0.125, 0.75, 1.0))
    ]


NONE = (0.0,) * 5


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": len(KINDS)},
        {"kind": 255},
        {"detail": 2},
        {"verdicts": 9},
        {"count": 0},
        {"count": 4097},
        {"position": 2**20},
        {"start": 21},
        {"end": 2**63},
        {"estimates": (-1.0, 0.0, 0.0, 0.0, 0.0)},
        {"estimates": (0.0, 0.0, float("inf"), 0.0, 0.0)},
        {"estimates": (0.0, 0.0, 0.0, float("nan"), 0.0)},
        {"estimates": (0.0, 0.0, 0.0, 0.0, 1.5)},
        {"kind": KINDS.index("prefill"), "verdicts": 0},  # with estimates
        {"kind": KINDS.index("prefill"), "verdicts": 0, "estimates": (0.0, 0.0, 0.0, 0.0, float("nan"))},
        {"kind": KINDS.index("prefill"), "estimates": NONE},  # with verdicts
        {"kind": KINDS.index("retrieve"), "verdicts": 0, "estimates": NONE, "detail": 1},
    ],
)
def test_what_no_side_can_have_noted_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_spans(body(**changes))
    assert caught.value.code == "malformed"


@pytest.mark.parametrize("data", [b"", b"\1", b"\0x", body()[:-1], body() + b"\0", b"\x80\xff\xff\xff\xff\0"])
def test_what_is_no_list_of_records_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_spans(data)


def test_more_than_a_message_may_hold_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_spans(b"\0" + body()[1:] * (SPANS_PER_MESSAGE + 1))
    assert caught.value.code == "too-large"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ProtocolError):
        decode_spans(data)
