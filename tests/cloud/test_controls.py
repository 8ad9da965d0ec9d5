"""Control tokens in a prompt: both sides read the same ones, and those that can't be are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.engine.model.prompt import Conversation, query_tokens, text_query
from proto.messages import Control
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import Resident, Town

QUESTION = "What is the best-selling game of the kind I like?"
PROMPT = text_query(Conversation.of(QUESTION)).text


@pytest.mark.parametrize("placement", ["device", "cloud", "mirrored"])
def test_both_sides_read_them(town: Town, device: Resident, placement: str) -> None:
    """The rows hold them, and the sides agree on every token of the answer."""
    controls = (Control(0, 3), Control(len(PROMPT), 5), Control(len(PROMPT), 5))
    tokenizer = device.side.tokenizer
    assert query_tokens(tokenizer, PROMPT, controls) == [3, *tokenizer.encode(PROMPT), 5, 5]
    fields = {"max_tokens": 12, "temperature": 1.0, "seed": 5, "placement": placement}
    plain = device.ask(QUESTION, **fields)
    found = device.ask(QUESTION, controls=controls, **fields)
    assert (found.report.disagreements, found.report.degraded, found.report.notes) == (0, (), ())
    assert found.text != plain.text
    assert found.text == device.ask(QUESTION, controls=controls, **fields).text
    town.check_that_all_is_free()


@pytest.mark.parametrize(
    "controls",
    [
        (Control(len(OPEN.prompt) + 1, 1),),
        (Control(2, 1), Control(1, 1)),
        (Control(0, 2**24 - 1),),
    ],
    ids=["beyond the end", "out of order", "not of the vocabulary"],
)
def test_those_that_cannot_be_are_refused(town: Town, controls: tuple[Control, ...]) -> None:
    stranger = town.stranger()
    stranger.send(replace(OPEN, controls=controls))
    assert stranger.code() == "unservable"
    town.check_that_all_is_free()
