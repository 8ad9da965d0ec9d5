"""Processors of a device that means harm: refused in a sentence, and no answer beside them waits."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from common.daemon.threads import BURST
from common.transport.sending import Peer, tenant_of
from proto.messages import Cancel, Error
from tests.cloud import test_giving_up
from tests.cloud.town import Resident, Stranger, Town, finished
from tests.common.processors.schemas import CAR, HOSTILE
from tests.daemons.streaming import wait_until

OPEN = replace(test_giving_up.OPEN, eos=(1,))
FLOOD = 100  # answers at the beginning, more than may wait; each takes two seconds to refuse
PAUSE = 0.1  # seconds between two later ones
SOON = 30.0  # seconds, on a busy machine
QUESTION = "What is the best-selling game of the kind I like?"


def processors(**fields: object) -> str:
    return json.dumps(fields)


def calls(parameters: object, opening: object = ("<call>",)) -> dict[str, Any]:
    shape = {"opening": opening, "arguments": "arguments", "closing": ["</call>"], "between": None}
    return {"shape": shape, "tools": [{"name": "f", "parameters": parameters}], "must": True, "most": 1}


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
        processors(calls={}),
        processors(calls=calls({"type": "car"})),
        processors(calls=calls(HOSTILE["elsewhere"])),
        processors(calls=calls(CAR) | {"tools": []}),
        processors(calls=calls(CAR) | {"most": 10**6}),
        processors(calls=calls(CAR, opening=[10**9])),
        processors(calls=calls(CAR, opening=["x" * 1000])),
        processors(calls=calls(CAR, opening=[]) | {"must": False}, response_format=json.dumps(CAR)),
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


def test_a_schema_that_takes_hours_costs_neighbours_nothing(
    town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"max_tokens": 16, "temperature": 1.0, "seed": 3}
    expected = device.ask(QUESTION, **fields)
    stranger = town.stranger()
    costly = replace(OPEN, processors=processors(response_format=json.dumps(HOSTILE["an intersection"])))
    with monkeypatch.context() as patch:
        patient = f"from common.processors import trial; trial.SECONDS = {int(SOON)}; trial.main()"
        patch.setattr("common.processors.trial.child_command", lambda module: [sys.executable, "-c", patient])
        stranger.send(costly)
        for _ in range(2):
            assert device.ask(QUESTION, **fields).text == expected.text
            assert not stranger.of(Error)  # it is still being compiled
        stranger.send(Cancel(OPEN.session))
        town.check_that_all_is_free()
    stranger.send(costly)
    wait_until(lambda: bool(stranger.of(Error)), "the schema is given up", 2 * SOON)
    assert stranger.code() == "unservable"
    town.check_that_all_is_free()


class Flood:
    """Opens and cancels answers with schemas that all cost the most there is, as fast as the link takes them: every
    other one is that of a tool.
    """

    def __init__(self, stranger: Stranger, *, cancelling: bool) -> None:
        self.opened = 0
        self._stranger = stranger
        self._cancelling = cancelling
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Flood:
        self._thread.start()
        wait_until(lambda: self.opened > FLOOD, "the flood is under way")
        return self

    def __exit__(self, *error: object) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.wait(PAUSE if self.opened > FLOOD else 0.0):
            self.opened += 1
            schema = HOSTILE["an intersection"] | {"title": str(self.opened)}
            text = processors(response_format=json.dumps(schema))
            if self.opened % 2:
                text = processors(calls=calls(schema))
            self._stranger.send(replace(OPEN, session=self.opened + 1000, processors=text))
            if self._cancelling:
                self._stranger.send(Cancel(self.opened + 1000))


@pytest.mark.parametrize("cancelling", [True, False])
def test_a_device_that_has_formats_compiled_without_end_holds_up_itself(
    town: Town, device: Resident, cancelling: bool
) -> None:
    stranger = town.stranger()
    # As if it had had another such schema compiled just now: this one is the last until it has waited.
    (*_, peer), now = town.sessions._peers, time.monotonic()
    assert town.cloud._formats._accounts.of(tenant_of(peer), now).take(now, BURST - 0.5)
    with Flood(stranger, cancelling=cancelling):
        for doors in range(3):
            schema = CAR | {"title": f"{cancelling} {doors}"}  # one that was not compiled before
            format_ = {"type": "json_schema", "json_schema": {"schema": schema}}
            began = time.monotonic()
            answer = device.ask(QUESTION, max_tokens=80, temperature=1.0, seed=doors, response_format=format_)
            assert time.monotonic() - began < SOON
            assert json.loads(answer.text)["doors"] in (3, 5)
            assert (answer.report.degraded, answer.report.notes) == ((), ())
    town.check_that_all_is_free()


def test_all_connections_of_a_key_have_one_share(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[object] = []
    monkeypatch.setattr(town.cloud, "begin", lambda request, *rest: owners.append(request.tenant))
    for peer in (Peer(1001, "a key"), Peer(1002, "a key"), Peer(1003, "another key")):
        town.sessions.on_message(peer, replace(town.cloud.hello, role="device"), 0)
        town.sessions.on_message(peer, OPEN, 0)
        town.sessions.on_gone(peer)
    assert owners[0] == owners[1] != owners[2]


def test_answers_with_formats_and_without_go_side_by_side(town: Town, device: Resident) -> None:
    plain: dict[str, Any] = {"max_tokens": 16, "temperature": 1.0, "seed": 3}
    format_ = {"type": "json_schema", "json_schema": {"schema": CAR}}
    formed = plain | {"max_tokens": 80, "response_format": format_}
    expected = [device.ask(QUESTION, **each).text for each in (plain, formed)]
    assert json.loads(expected[1])
    running = [device.begin(QUESTION, **each) for each in (plain, formed, plain, formed)]
    assert [finished(each).text for each in running] == expected * 2
    town.check_that_all_is_free()
