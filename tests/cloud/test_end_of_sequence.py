"""End-of-sequence tokens of an answer: the device's set counts on both sides, whatever the cloud's model has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.daemon.handshake import explain_mismatch
from device.interface import Finished
from proto.messages import Open
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import Resident, Town

QUESTION = "What is the best-selling game of the kind I like?"
MODES = [
    {},
    {"placement": "cloud"},
    {"placement": "mirrored"},
    {"sources": "cloud"},
    {"method": "token-wise"},
    {"method": "sequence-wise"},
]
LENGTH = 40


def whole(finished: Finished) -> None:
    assert finished.reason == "stop"
    assert (finished.report.degraded, finished.report.notes) == ((), ())
    assert finished.report.disagreements == 0


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: "-".join(map(str, mode.values())) or "speculative")
def mode(request: pytest.FixtureRequest) -> dict[str, object]:
    chosen: dict[str, object] = request.param
    return chosen


@pytest.fixture(scope="module")
def expected(device: Resident, mode: dict[str, object]) -> Finished:
    """The answer where both sides have the same ids."""
    answer = device.ask(QUESTION, max_tokens=LENGTH, **mode)
    whole(answer)
    return answer


def test_one_more_id_on_the_clouds_side_changes_nothing(
    town: Town, device: Resident, mode: dict[str, object], expected: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = device.side.tokenizer.encode(expected.text)[1]  # of the middle of the answer
    monkeypatch.setattr(town.cloud.decoder, "eos", town.cloud.decoder.eos | {word})
    found = device.ask(QUESTION, max_tokens=LENGTH, **mode)
    whole(found)
    assert found.text == expected.text


def test_one_more_id_on_the_devices_side_ends_the_answer(
    town: Town, device: Resident, mode: dict[str, object], expected: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = device.side.tokenizer.encode(expected.text)
    monkeypatch.setattr(device.side.decoder, "eos", device.side.decoder.eos | {tokens[1]})
    found = device.ask(QUESTION, max_tokens=LENGTH, **mode)
    whole(found)
    assert found.report.tokens == 2
    town.check_that_all_is_free()


@pytest.mark.parametrize("eos", [(5, 4), (4, 4), (4, 2**24 - 1)])
def test_sets_that_no_side_has_are_refused(town: Town, eos: tuple[int, ...]) -> None:
    hello = town.cloud.hello
    device = replace(hello, role="device", eos=eos)
    sentence = explain_mismatch(device, hello)
    assert sentence is not None
    assert "end-of-sequence" in sentence
    assert str(eos[1]) not in sentence
    stranger = town.stranger()
    request: Open = replace(OPEN, eos=eos)
    stranger.send(request)
    assert stranger.code() == "unservable"
    town.check_that_all_is_free()


def test_differing_sets_are_accepted(town: Town) -> None:
    hello = town.cloud.hello
    assert hello.eos == tuple(sorted(town.cloud.decoder.eos))
    assert explain_mismatch(replace(hello, role="device", eos=(1, 2, 3)), hello) is None
    assert explain_mismatch(replace(hello, role="device", eos=()), hello) is None
