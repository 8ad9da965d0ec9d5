"""Isolation of answers on the same daemon: a hostile one does not harm those beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.sessions import Sessions
from cloud.settings import CloudSettings
from common.answer.request import AnswerFailed, Request
from common.configuration.configuration import load_settings
from common.daemon.side import SideRuntime
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.cloud import CloudAnswer
from common.transport.sending import Peer
from device.engine import DeviceEngine
from device.interface import Finished
from device.settings import DeviceSettings
from proto.messages import Draft, Error, Message, Open, Sync, Target
from tests.daemons.streaming import wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model
from tests.support.generations import Iterated

HOSTILE, HONEST = Peer(1, None), Peer(2, None)
RUN_AHEAD = 2


class Wire:
    """A link that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[Peer, Message]] = []

    def send(self, peer: Peer, message: Message) -> int:
        self.sent.append((peer, message))
        return 100

    def queued(self, peer: Peer) -> int:
        return 0

    def drafts(self, peer: Peer, position: int) -> list[Draft]:
        found = [message for to, message in self.sent if to == peer and isinstance(message, Draft)]
        return [draft for draft in found if draft.position == position]

    def errors(self, peer: Peer) -> list[str]:
        return [message.code for to, message in self.sent if to == peer and isinstance(message, Error)]


@pytest.fixture(scope="module")
def side(fresh_data: Callable[[], Path]) -> Iterator[SideRuntime]:
    data = fresh_data()
    model = make_wordy_model(data / "model")
    overrides = {"data": data / "cloud", "threads": 1, "model": model, "scorer": SCORER}
    side = SideRuntime("cloud", load_settings(CloudSettings, overrides=overrides))
    yield side
    side.close()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def sessions(side: SideRuntime, wire: Wire) -> Iterator[Sessions]:
    """Two answers under way, each of another device."""
    settings = side.settings
    assert isinstance(settings, CloudSettings)
    sessions = Sessions(settings, side)
    sessions.link = wire
    for peer in (HOSTILE, HONEST):
        sessions.on_message(peer, replace(side.hello, role="device"), 0)
        sessions.on_message(peer, opening(), 0)
    for peer in (HOSTILE, HONEST):
        wait_until(lambda peer=peer: bool(wire.drafts(peer, RUN_AHEAD - 1)), "both answers are under way")  # type: ignore[misc]
    yield sessions
    for peer in (HOSTILE, HONEST):
        sessions.on_gone(peer)


def opening() -> Open:
    return Open(
        session=1,
        method="speculative",
        question="What is the best-selling horror game?",
        prompt="\nQuestion: What is the best-selling horror game?\nAnswer:",
        documents=2,
        seed=1,
        temperature=1.0,
        sampler="race",
        codec="race",
        entries=8,
        exact=True,
        top_p=1.0,
        placement="device",
        sources="both",
        run_ahead=RUN_AHEAD,
        max_tokens=32,
    )


@pytest.mark.parametrize("as_sync", [False, True])
def test_a_token_that_no_model_knows_is_refused(
    sessions: Sessions, side: SideRuntime, wire: Wire, as_sync: bool
) -> None:
    unknown = (side.decoder.vocabulary,)
    message = Sync(1, 1, unknown, "device", True) if as_sync else Target(1, 0, 0, unknown, "device")
    sessions.on_message(HOSTILE, message, 0)
    sessions.on_message(HONEST, Target(1, 0, 0, (5,), "device"), 0)
    wait_until(lambda: bool(wire.drafts(HONEST, RUN_AHEAD)), "the honest device's answer goes on", 20.0)
    assert wire.errors(HOSTILE) == ["malformed"]
    assert wire.errors(HONEST) == []


def stumble(*arguments: object) -> None:
    raise RuntimeError("this answer is broken")


def test_an_answer_that_breaks_at_the_clock_ends_alone_on_the_cloud(
    sessions: Sessions, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = sessions._sessions[HOSTILE, 1], sessions._sessions[HONEST, 1]
    assert isinstance(broken, CloudAnswer) and isinstance(sound, CloudAnswer)
    monkeypatch.setattr(broken.answer, "poll", stumble)
    sound.answer.session.ahead = SpeculationLimits()
    sessions.tick(time.monotonic())
    assert sound.answer.session.ahead.max_drafts == RUN_AHEAD
    assert list(sessions._sessions) == [(HONEST, 1)]
    assert broken.answer.over
    assert (wire.errors(HOSTILE), wire.errors(HONEST)) == (["failed"], [])


@pytest.fixture
def engine(side: SideRuntime) -> Iterator[DeviceEngine]:
    """A device without a cloud, on the same model."""
    overrides = side.settings.model_dump(include={"model", "scorer", "threads"}) | {"data": side.settings.data.parent}
    settings = load_settings(DeviceSettings, overrides=overrides | {"cloud": None})
    device = SideRuntime("device", settings)
    engine = DeviceEngine(settings, device)
    yield engine
    device.close()


def test_an_answer_that_breaks_at_the_clock_ends_alone_on_the_device(
    engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Request(
        question="What is the best-selling horror game?", prompt="\nAnswer:", max_tokens=8, sources="device"
    )
    broken, sound = Iterated(engine, question), Iterated(engine, question)
    looked_at: list[object] = []
    monkeypatch.setattr(broken.generation, "tick", stumble)
    monkeypatch.setattr(sound.generation, "tick", lambda *times: looked_at.append(times))
    engine._tick(time.monotonic())
    assert looked_at
    with pytest.raises(AnswerFailed, match="log says why"):
        list(broken)
    assert isinstance(list(sound)[-1], Finished)
    assert engine.status().active == 0
