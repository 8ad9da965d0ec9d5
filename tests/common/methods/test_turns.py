"""A method that the project does not have, added as docs/contributing.md says, through real daemons' parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.answer.request import AnswerFailed, Request, RequestError
from common.daemon.side import Scope, SideRuntime
from common.engine.model.prompt import Query
from common.methods.aggregate.driver import make_sampler
from common.methods.catalog import METHODS
from common.methods.open_message import open_message
from common.methods.paper.sampler import make_paper_sampler
from device.cli import options
from device.http.errors import ApiError
from device.http.prompts import make_request
from proto.messages import Cancel, Error, Open, Target
from tests.cloud.town import Resident, Stranger, Town, finished
from tests.common.methods.turns.method import Turns, TurnsRequest
from tests.daemons.streaming import wait_until
from tests.support.one_side import OneSide

QUESTION = "What is the best-selling horror game?"
PROMPT = f"\nQuestion: {QUESTION}\nAnswer:"
LENGTH = 12


@pytest.fixture(scope="module", autouse=True)
def listed() -> Iterator[None]:
    """The one line that a method adds to the catalog."""
    METHODS[Turns.name] = Turns()
    yield
    del METHODS[Turns.name]


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data()) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("turns")


def ask(device: Resident, **fields: Any) -> Any:
    return finished(device.begin(QUESTION, method="turns", max_tokens=LENGTH, **fields))


def one_by_one(device: SideRuntime, cloud: SideRuntime, turn: int, temperature: float) -> list[int]:
    """The answer by the rules of the method, decoded in this process, without engine, messages or sessions."""
    request = TurnsRequest(
        question=QUESTION, prompt=PROMPT, method="turns", turn=turn, temperature=temperature, seed=20, max_tokens=LENGTH
    )
    opening = open_message(Turns(), request, 1, device.profiler.nobody.estimates, device.eos)
    sides = []
    for role, side in (("device", device), ("cloud", cloud)):
        sampler = make_sampler(role, opening, side.decoder.vocabulary, make_paper_sampler)  # type: ignore[arg-type]
        sides.append(OneSide(side.decoder, side.retrieve(opening, Scope()).prompt, side.scorer, sampler, LENGTH + 1))
    tokens: list[int] = []
    while len(tokens) < LENGTH and not (tokens and tokens[-1] in device.eos):
        tokens.append(sides[len(tokens) // turn % 2].draft(tokens).view.token)
    for each in sides:
        each.close()
    return tokens


class TestAnswer:
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    @pytest.mark.parametrize("turn", [1, 3])
    def test_each_side_decides_its_turns(self, town: Town, device: Resident, turn: int, temperature: float) -> None:
        generation = device.begin(QUESTION, method="turns", max_tokens=LENGTH, turn=turn, temperature=temperature)
        *events, last = generation
        expected = one_by_one(device.side, town.cloud, turn, temperature)
        assert [event.token for event in events] == expected  # type: ignore[union-attr]
        report = last.report  # type: ignore[union-attr]
        assert report.notes == ()
        assert report.figures["turns_of_the_device"] == (len(expected) + 2 * turn - 1) // (2 * turn)
        assert (report.method, report.sent.tokens > 0, report.received_bytes > 0) == ("turns", True, True)

    def test_beside_answers_of_other_methods(self, device: Resident) -> None:
        alone = [ask(device).text, device.ask(QUESTION, max_tokens=LENGTH).text]
        running = [
            device.begin(QUESTION, max_tokens=LENGTH, **fields)
            for fields in ({"method": "turns"}, {})
            for _ in range(3)
        ]
        texts = [finished(generation).text for generation in running]
        assert texts == [alone[0]] * 3 + [alone[1]] * 3

    def test_a_cloud_that_fails_leaves_it_to_the_device(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*arguments: object) -> None:
            raise AnswerFailed("It has no paper.")

        monkeypatch.setattr(town.cloud, "retrieve", fail)
        report = ask(device).report
        assert report.notes[0].endswith("It has no paper.")
        assert report.tokens > 0
        town.check_that_all_is_free()


class TestOptions:
    def test_its_own_are_limited_like_all_others(self, device: Resident) -> None:
        defaults = Request(question="", prompt="")
        request = make_request({"method": "turns", "turn": 5}, defaults, QUESTION, Query(PROMPT))
        assert isinstance(request, TurnsRequest)
        assert request.turn == 5
        for turn in (0, 17, "2", 1.5):
            with pytest.raises(ApiError, match="turn"):
                make_request({"method": "turns", "turn": turn}, defaults, QUESTION, Query(PROMPT))
        with pytest.raises(RequestError, match="race"):
            ask(device, sampler="paper")

    def test_other_methods_do_not_have_it(self) -> None:
        with pytest.raises(ApiError, match="Unrecognized request argument supplied: 'turn'"):
            make_request({"turn": 2}, Request(question="", prompt=""), QUESTION, Query(PROMPT))

    def test_the_command_line_has_it(self) -> None:
        def command(*, fields: dict[str, object]) -> None:
            raise AssertionError(fields)

        assert "turn" in inspect.signature(options.asking(command)).parameters


def opening(device: Resident, **changes: Any) -> Open:
    request = TurnsRequest(question=QUESTION, prompt=PROMPT, method="turns", max_tokens=LENGTH)
    made = open_message(Turns(), request, 1, device.side.profiler.nobody.estimates, device.side.eos)
    return replace(made, **changes)


class TestHostileDevice:
    @pytest.fixture
    def stranger(self, town: Town) -> Stranger:
        return town.stranger()

    @pytest.mark.parametrize("sent", ['{"turn": 0}', '{"turn": 2, "seed": 1}', "[]", "{", '{"turn": 1e999}', "7"])
    def test_options_out_of_their_limits_are_refused(
        self, town: Town, device: Resident, stranger: Stranger, sent: str
    ) -> None:
        stranger.send(opening(device, options=sent))
        assert stranger.code() == "unservable"
        town.check_that_all_is_free()

    def test_a_method_that_nobody_knows_is_refused(self, town: Town, device: Resident, stranger: Stranger) -> None:
        stranger.send(opening(device, method="canasta"))
        wait_until(lambda: bool(stranger.of(Error)), "a refusal")
        assert stranger.of(Error)[0].text == "This cloud does not know the method 'canasta'."
        town.check_that_all_is_free()

    @pytest.mark.parametrize(("position", "token"), [(0, 2**20), (7, 1)])
    def test_a_malformed_turn_ends_its_session(
        self, town: Town, device: Resident, stranger: Stranger, position: int, token: int
    ) -> None:
        stranger.send(opening(device, session=3))
        stranger.send(Target(3, 0, position, (token,), "device"))
        assert stranger.code() == "malformed"
        town.check_that_all_is_free()

    def test_and_a_cancelled_one_is_free(self, town: Town, device: Resident, stranger: Stranger) -> None:
        stranger.send(opening(device, session=4))
        stranger.send(Cancel(4))
        town.check_that_all_is_free()
