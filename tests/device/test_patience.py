"""A cloud that is slow and makes progress is waited for; one that can't be used is called what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from common.answer.report import Report, untold
from common.answer.request import AnswerFailed
from common.draft_policy.times import RoundEstimates
from common.engine.loop import MinimumTimes
from common.estimates.profiler import LinkMeter
from common.transport.sending import Peer
from device.active_request import ActiveRequest
from device.interface import Finished, TokenEvent, Waiting
from proto.codes import digest
from proto.messages import Decided, Fetched, Message, Open, Propose, Ready, Target
from tests.cloud.town import Resident
from tests.daemons.conftest import fresh_data, libraries
from tests.device.scripted_cloud import (
    PATIENCE,
    Script,
    ScriptedCloud,
    agreeing,
    cloud,
    device,
    renew,
    within,
)
from tests.support.generations import Iterated

__all__ = ["cloud", "device", "fresh_data", "libraries"]

QUESTION = "Where is my dance class?"
TOKEN = 5
PASS = 1.2  # seconds, four times the device's patience
LENGTH = 6
VERDICTS: dict[str, Any] = {
    "method": "coupled",
    "sources": "cloud",
    "eager": False,
    "draft_policy": "fixed",
    "draft_length": 2,
}


@pytest.fixture(autouse=True)
def as_it_was(cloud: ScriptedCloud, device: Resident) -> Iterator[None]:
    yield
    cloud.be_quiet()
    renew(cloud, device)
    cloud.script = lambda cloud, message: None


def begin(device: Resident, **fields: Any) -> Iterated:
    return device.begin(QUESTION, **({"max_tokens": LENGTH} | fields))


def end(generation: Iterated) -> Finished:
    last = within(generation)[-1]
    assert isinstance(last, Finished)
    return last


def ask(device: Resident, **fields: Any) -> Finished:
    return end(begin(device, **fields))


def joined(device: Resident, **fields: Any) -> Finished:
    """The end of an answer that begins before the cloud is there."""
    connection = device.engine.cloud.connection
    assert connection is not None
    connection.on_gone(peer := Peer(1, None))
    generation = begin(device, **fields)
    connection.on_connected(peer)
    return end(generation)


def undisturbed(prepare: Callable[[], None], device: Resident, **fields: Any) -> Report:
    """The report of an answer in which a busy machine was not late itself, if one of five is; each after `prepare`."""
    for _ in range(5):
        prepare()
        report = ask(device, **fields).report
        if not report.degraded:
            break
    return report


def verifying(seconds: float, declared: float) -> Script:
    """A verifier whose passes take so long."""

    def script(cloud: ScriptedCloud, message: Message) -> None:
        assert cloud.hello is not None
        match message:
            case Open(session=session):
                cloud.say(Fetched(session, 0, 0, 0, 0, 0.0, "", b""))
                cloud.say(Ready(session, (), 10, 0.5))
            case Propose():
                cloud.later(seconds, agreeing(message, cloud.hello.vocabulary, declared))

    return script


def ready(cloud: ScriptedCloud, message: Message) -> None:
    """A cloud that has what an answer asks for, and says nothing more."""
    if isinstance(message, Open):
        cloud.say(Ready(message.session, ("a document",), 10, 0.5))


def deciding(pauses: Callable[[int], float]) -> Script:
    """A cloud that decides position after position, each after a pause."""

    def script(cloud: ScriptedCloud, message: Message) -> None:
        if isinstance(message, Open):
            cloud.say(Ready(message.session, ("a document",), 10, 0.5))
            positions = range(message.max_tokens)
            cloud.say_in_turn(
                [(pauses(each), Target(message.session, 0, each, (TOKEN,), "cloud")) for each in positions]
            )

    return script


def deciding_eagerly(pauses: Callable[[int], float]) -> Script:
    """Decide a token at a time, after `pauses` of seconds; there are no documents to read."""

    def script(cloud: ScriptedCloud, message: Message) -> None:
        if isinstance(message, Open):
            session = message.session
            cloud.say(Fetched(session, 0, 0, 0, 0, 0.0, "", b""))
            cloud.say(Ready(session, (), 10, 0.5))
            told = [Decided(session, 0, each, digest((TOKEN,) * each), (TOKEN,), 0) for each in range(LENGTH)]
            cloud.say_in_turn([(pauses(each.position), each) for each in told])

    return script


class TestSlowAndHonest:
    def test_verifier(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = verifying(PASS, PASS)
        report = undisturbed(lambda: renew(cloud, device, decode_intercept=PASS), device, **VERDICTS)
        assert (report.degraded, report.tokens, report.notes) == ((), LENGTH, ())

    def test_eager_verifier(self, cloud: ScriptedCloud, device: Resident) -> None:
        """It decides by itself, whatever is proposed."""
        cloud.script = deciding_eagerly(lambda position: PASS)
        report = undisturbed(lambda: renew(cloud, device, decode_intercept=PASS), device, **VERDICTS | {"eager": True})
        assert (report.degraded, report.tokens, report.notes) == ((), LENGTH, ())

    def test_aggregator(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = deciding(lambda position: PASS)
        report = undisturbed(lambda: renew(cloud, device, decode_intercept=PASS), device, placement="cloud")
        assert (report.degraded, report.tokens) == ((), LENGTH)

    def test_waits_are_learnt(self, cloud: ScriptedCloud, device: Resident) -> None:
        """On a machine that does other work, too, steps wait for their turn: what was waited for before counts."""
        pause = 0.5 * PATIENCE
        cloud.script = deciding(lambda position: pause)
        waits = device.engine.cloud.peer.waits("speculative")
        for _ in range(10):  # answers: one of a busy machine may end without its cloud, and has waited for little
            ask(device, placement="cloud", max_tokens=12)
            if waits.seconds is not None:
                break
        assert waits.seconds is not None
        assert waits.seconds >= 0.9 * pause

    def test_cloud_that_is_slower_than_it_says(self, cloud: ScriptedCloud, device: Resident) -> None:
        """It was waited for before, and comes well within what is usual: no busy machine delays it for so long."""
        usual, once = 5 * PATIENCE, 8 * PATIENCE

        def waited_for_before() -> None:
            renew(cloud, device)
            for _ in range(8):
                device.engine.cloud.peer.waits("speculative").observe(usual)

        cloud.script = deciding(lambda position: once if position == 3 else 0.0)
        report = undisturbed(waited_for_before, device, placement="cloud")
        assert (report.degraded, report.tokens) == ((), LENGTH)


class TestRefusal:
    """A cloud that comes back as one that can't be used, in the middle of an answer."""

    @staticmethod
    def comes_back(cloud: ScriptedCloud, message: Message) -> None:
        match message:
            case Open(session=session):
                cloud.say(Fetched(session, 0, 0, 0, 0, 0.0, "", b""))
                cloud.say(Ready(session, ("a document",), 10, 0.5))
                cloud.say(Target(session, 0, 0, (TOKEN, TOKEN), "cloud"))
                cloud.changes = {"tokenizer": "another"}
                cloud.welcome()

    @pytest.mark.parametrize("fields", [{"placement": "cloud"}, {"method": "coupled", "sources": "cloud"}])
    def test_is_told_in_its_own_words(self, cloud: ScriptedCloud, device: Resident, fields: dict[str, Any]) -> None:
        cloud.script = self.comes_back
        for _ in range(3):  # where a busy machine is late itself, the device's patience ends first
            report = ask(device, **fields).report
            note, *missing = report.notes
            if "the tokenizers differ" in note:
                break
            cloud.welcome_anew()
        assert "the tokenizers differ" in note
        assert missing == [untold(report.unattributed, report.tokens)] * bool(report.unattributed)
        assert report.degraded[-1] == report.tokens - 1

    def test_ends_an_answer_that_waits(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = self.comes_back
        with pytest.raises(AnswerFailed, match=r"after 2 tokens: .*the tokenizers differ"):
            ask(device, placement="cloud", wait=True)


class TestWaiting:
    def test_says_so_and_is_never_degraded(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = deciding(lambda position: 10 * PATIENCE if position == 2 else 0.0)
        events = within(device.begin(QUESTION, max_tokens=LENGTH, placement="cloud", wait=True))
        # A busy machine may be late elsewhere, too; before the third token it was certainly waited for.
        shown = [event for event in events if isinstance(event, TokenEvent | Waiting)]
        second = [number for number, event in enumerate(shown) if isinstance(event, TokenEvent)][1]
        assert isinstance(shown[second + 1], Waiting)
        assert not any(isinstance(event, TokenEvent) and event.degraded for event in events)

    def test_verifier(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = verifying(5 * PATIENCE, 0.0)
        report = ask(device, **VERDICTS, wait=True).report
        assert (report.degraded, report.tokens) == ((), LENGTH)

    def test_begins_before_the_cloud_is_there(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = verifying(0.0, 0.0)
        last = joined(device, **VERDICTS, wait=True)
        assert last.report.degraded == ()

    def test_drafts_by_the_round_trip_of_the_latest_connection(
        self, cloud: ScriptedCloud, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer begins with that of the one before, which is probed no more."""
        before, probed = device.engine.cloud.peer.meter, list[float]()
        monkeypatch.setattr(LinkMeter, "rtt", property(lambda meter: 0.02 if meter is before else 0.15))
        monkeypatch.setattr(RoundEstimates, "probed", lambda estimates, rtt: probed.append(rtt))
        cloud.script = verifying(0.0, 0.0)
        joined(device, **VERDICTS, wait=True)
        assert device.engine.cloud.peer.meter is not before
        assert probed[-1] == 0.15

    @pytest.fixture
    def unhurried(self, device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
        """An answer of the device has a middle: it takes seconds in which a cloud can come."""
        monkeypatch.setattr(device.side.decoding, "_minimum", MinimumTimes(0.03, 0.0, 0.0))

    def test_one_that_comes_in_the_middle_is_not_said_to_have_taken_no_part(
        self, cloud: ScriptedCloud, device: Resident, unhurried: None
    ) -> None:
        cloud.script = ready
        last = joined(device, max_tokens=100)
        (note,) = last.report.notes
        assert note.startswith(f"The cloud was away for {len(last.report.degraded)} of {last.report.tokens} tokens")

    def test_is_told_beside_whatever_else_there_is_to_tell(
        self, cloud: ScriptedCloud, device: Resident, unhurried: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = ActiveRequest.start

        def start(request: ActiveRequest) -> None:
            request.note("Something else.")
            original(request)

        monkeypatch.setattr(ActiveRequest, "start", start)
        cloud.script = ready
        last = joined(device, max_tokens=100)
        other, away = last.report.notes
        assert (other, away.split(" for ")[0]) == ("Something else.", "The cloud was away")

    def test_has_an_end(self, cloud: ScriptedCloud, device: Resident) -> None:
        settings = device.engine._settings
        device.engine._settings = settings.model_copy(update={"wait_seconds": 1.0})
        try:
            with pytest.raises(AnswerFailed, match="sent nothing new in 1 seconds"):
                ask(device, placement="cloud", wait=True)
        finally:
            device.engine._settings = settings
