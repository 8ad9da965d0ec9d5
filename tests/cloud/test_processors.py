"""Processors of a device that means harm: refused in a sentence, and no answer beside them waits."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from proto.messages import Error
from tests.cloud import test_giving_up
from tests.cloud.town import Resident, Town, finished
from tests.common.processors.schemas import CAR, HOSTILE

OPEN = replace(test_giving_up.OPEN, eos=(1,))
QUESTION = "What is the best-selling game of the kind I like?"


def processors(**fields: object) -> str:
    return json.dumps(fields)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"unknown": 1}',
        processors(presence_penalty=3),
        processors(presence_penalty=float("nan")),
        processors(logit_bias={"9999999": 1}),
        processors(logit_bias={"x": 1}),
        processors(response_format='{"type": "car"}'),
        processors(response_format="no JSON"),
        processors(response_format=json.dumps({"$ref": "#"})),
        processors(response_format=json.dumps(HOSTILE["elsewhere"])),
        processors(response_format="[" * 8000),
    ],
)
def test_what_can_not_be_is_refused(town: Town, text: str) -> None:
    stranger = town.stranger()
    stranger.send(replace(OPEN, processors=text))
    assert stranger.code() in ("unservable", "failed")
    town.check_that_all_is_free()


@pytest.mark.parametrize("top_p", [0.0])
def test_a_nucleus_of_nothing_is_refused(town: Town, top_p: float) -> None:
    stranger = town.stranger()
    stranger.send(replace(OPEN, top_p=top_p))
    assert stranger.code() == "unservable"
    town.check_that_all_is_free()


def test_a_schema_that_takes_hours_costs_neighbours_nothing(town: Town, device: Resident) -> None:
    fields: dict[str, Any] = {"max_tokens": 16, "temperature": 1.0, "seed": 3}
    expected = device.ask(QUESTION, **fields)
    stranger = town.stranger()
    stranger.send(replace(OPEN, processors=processors(response_format=json.dumps(HOSTILE["an intersection"]))))
    began, answers = time.monotonic(), 0
    while not stranger.of(Error) and time.monotonic() - began < 60:
        assert device.ask(QUESTION, **fields).text == expected.text
        answers += 1
    assert stranger.code() == "unservable"
    assert answers >= 2  # while it was being compiled
    town.check_that_all_is_free()


def test_answers_with_formats_and_without_go_side_by_side(town: Town, device: Resident) -> None:
    plain: dict[str, Any] = {"max_tokens": 16, "temperature": 1.0, "seed": 3}
    format_ = {"type": "json_schema", "json_schema": {"schema": CAR}}
    formed = plain | {"max_tokens": 80, "response_format": format_}
    expected = [device.ask(QUESTION, **each).text for each in (plain, formed)]
    assert json.loads(expected[1])
    running = [device.begin(QUESTION, **each) for each in (plain, formed, plain, formed)]
    assert [finished(each).text for each in running] == expected * 2
    town.check_that_all_is_free()
