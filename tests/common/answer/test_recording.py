"""Whole answers on the wire: what comes over is what was noted, and nothing else is believed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from common.methods.paper.sequence_wise import generated, make_side_answer, read_side_answer
from proto.errors import ProtocolError
from proto.messages import Generated

EOS = frozenset({0})
LOGS = [-0.1, -3.3, -1e-9]
SENT = generated(7, (5, 6, 0), LOGS, -1.5)


def received(message: Generated, most: int = 8) -> object:
    return read_side_answer(message, 100, most, EOS)


def payload(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def test_both_sides_count_the_same() -> None:
    ours, theirs = make_side_answer((5, 6, 0), LOGS, -1.5), received(SENT)
    assert ours == theirs
    assert ours.log_probability == pytest.approx(sum(LOGS), rel=1e-6)


def test_an_answer_may_end_at_its_length() -> None:
    received(replace(SENT, tokens=(5, 6, 7)), most=3)


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": ()},
        {"tokens": (5, 6, 7)},  # ends before its length, and without end of sequence
        {"tokens": (5, 0, 0)},
        {"tokens": (5, 100, 0)},
        {"payload": b""},
        {"payload": payload(-1, -1)},
        {"payload": payload(-1, -1, -1) + b"\0"},
        {"payload": payload(-1, math.nan, -1)},
        {"payload": payload(-1, -math.inf, -1)},
        {"payload": payload(-1, 0.5, -1)},
    ],
)
def test_what_no_side_generates_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        received(replace(SENT, **changed))  # type: ignore[arg-type]


def test_longer_than_asked_for() -> None:
    with pytest.raises(ProtocolError):
        received(SENT, most=2)
