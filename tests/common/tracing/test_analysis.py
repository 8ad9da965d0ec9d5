"""Causes of the time between two tokens."""

from __future__ import annotations

import pytest

from common.estimates.estimators import ClockOffset
from common.tracing.analysis import CAUSES, Cause, milliseconds_per_token, steps
from common.tracing.trace import Notes, Trace, merge
from proto.payloads.trace import Span
from tests.common.tracing.synthetic import AHEAD, MS, STARTED, at, cloud, device, moved


def merged(device_spans: list[Span], cloud_spans: list[Span]) -> Trace:
    clock = ClockOffset(AHEAD, 20 * MS)
    return merge(Notes(device_spans), Notes(cloud_spans), clock, STARTED, STARTED + 500 * MS)


def spent(trace: Trace, position: int) -> dict[Cause, float]:
    step = steps(trace)[position]
    return {cause: step.spent(cause) / MS for cause in CAUSES if step.spent(cause)}


def test_the_first_token_waits_for_retrieval_prefill_and_the_slower_decode() -> None:
    assert spent(merged(device(), cloud()), 0) == {"retrieval": 10, "prefill": 20, "device decode": 30}


def test_a_token_that_waits_for_the_cloud_waits_for_its_step_and_the_way() -> None:
    trace = merged(device(), cloud())
    assert spent(trace, 1) == {"cloud decode": 20, "draft under way": 20}
    assert [step.waited_for for step in steps(trace)] == ["device", "cloud", "device"]


def test_a_roll_backs_price_is_the_step_that_is_done_again() -> None:
    assert spent(merged(device(), cloud()), 2) == {"device recomputation": 30, "engine": 2}


@pytest.mark.parametrize(("fate", "end"), [("pre-empted", 26), ("drafted", 25)])
def test_a_rejection_on_the_remote_side_costs_the_target_a_step_and_the_draft(fate: str, end: int) -> None:
    """Cost by Eq. 7: a decode step and a round trip. The step before it was in vain: nobody waited for it."""
    mine = [
        at("decode", "drafted", 0, 0, 1),
        at("receive", "draft", 0, 5, 5),
        at("aggregate", "both", 0, 5, 5, accepted=(True, False)),
        at("send", "target", 0, 5, 5),
        at("decode", "drafted", 1, 1, 2),
        at("receive", "draft", 1, 55, 55, 1),
        at("aggregate", "both", 1, 55, 55, accepted=(True, True)),
    ]
    theirs = [
        at("decode", "drafted", 0, 0, 0),
        at("send", "draft", 0, 0, 0),
        at("decode", "drafted", 1, 1, 9),
        at("decode", fate, 2, 9, end),
        at("receive", "target", 0, 25, 25),
        at("follow", "", 0, 25, 25, accepted=(None, False)),
        at("roll back", "", 0, 25, 25),
        at("decode", "drafted", 1, 26, 35, 1),
        at("send", "draft", 1, 35, 35, 1),
    ]
    trace = merged([moved(span, STARTED // MS) for span in mine], [moved(s, (STARTED + AHEAD) // MS) for s in theirs])
    expected = {"target under way": 20, "engine": 1, "cloud recomputation": 9, "draft under way": 20}
    assert spent(trace, 1) == expected


def test_a_token_that_the_cloud_decides_is_followed_back_to_its_decision() -> None:
    mine = [
        at("decode", "drafted", 0, 0, 10),
        at("send", "draft", 0, 10, 10),
        at("receive", "target", 0, 52, 52),
        at("follow", "", 0, 52, 53, accepted=(True, None)),
    ]
    theirs = [
        at("decode", "drafted", 0, 0, 5),
        at("receive", "draft", 0, 31, 31),
        at("aggregate", "both", 0, 31, 32, accepted=(True, True)),
        at("send", "target", 0, 32, 32),
    ]
    trace = merged([moved(span, STARTED // MS) for span in mine], [moved(s, (STARTED + AHEAD) // MS) for s in theirs])
    assert spent(trace, 0) == {"device decode": 10, "draft under way": 21, "target under way": 20, "engine": 2}


@pytest.mark.parametrize("half", [0, 1])
def test_the_parts_add_up_whatever_is_missing(half: int) -> None:
    for gone in range(len((device(), cloud())[half])):
        halves = [device(), cloud()]
        del halves[half][gone]
        for step in steps(merged(*halves)):
            assert sum(stretch.end - stretch.start for stretch in step.stretches) == step.end - step.start
            assert all(one.end == other.start for one, other in zip(step.stretches, step.stretches[1:], strict=False))


def test_the_mean_adds_up_to_the_time_per_token() -> None:
    found = steps(merged(device(), cloud()))
    assert sum(milliseconds_per_token(found).values()) == pytest.approx((132 - 60) / 2)
    assert set(milliseconds_per_token(found[:1]).values()) == {0.0}
