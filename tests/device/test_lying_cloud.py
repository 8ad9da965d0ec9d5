"""A cloud that says or sends anything but what is wanted: an answer goes on alone, and one that is slow is waited for.

Without a bound, each of these answers is held for as long as the cloud likes. Ceilings are lowered here, so that the
bounds that they make are reached soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from common.answer.request import QUESTION_TOO_LONG, AnswerFailed, TooLong
from common.sampling.certificate import NO_EVIDENCE
from device.interface import Finished, TokenEvent
from proto.codes import EMPTY, RaceEntries, encode_race
from proto.messages import (
    Close,
    Closed,
    Contributions,
    Decided,
    Draft,
    Error,
    Fetch,
    Fetched,
    Message,
    Open,
    Placement,
    Propose,
    Ready,
    Sync,
    Target,
    Verdict,
)
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
    session_of,
    within,
)

__all__ = ["cloud", "device", "fresh_data", "libraries"]

QUESTION = "Where is my dance class?"
LENGTH = 16
TOKEN = 5
MOST = 2**24 - 1  # of what a message may say
AGES = 1e9  # seconds
TRIES = 3  # of answers with a patience that a machine which stalls makes too short
ENTRIES = RaceEntries(np.arange(5, 37, dtype=np.uint32), np.arange(1, 33, dtype=np.uint16))  # of a draft
METHODS: dict[str, dict[str, Any]] = {
    "speculative": {"placement": "cloud"},
    "coupled": {"method": "coupled", "sources": "cloud", "eager": False, "draft_policy": "fixed"},
    "eager": {"method": "coupled", "sources": "cloud"},
    "sequence-wise": {"method": "sequence-wise"},
    "fetch-text": {"method": "fetch-text"},
}
by_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(autouse=True)
def lower_ceilings(cloud: ScriptedCloud, device: Resident, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("device.cloud_connection.PREFILL_PATIENCE", 0.5)
    for name, seconds in (("FIRST_READING", 1.0), ("MOST_STEP", 0.2)):  # MOST_READING stays: no lie reaches it
        monkeypatch.setattr(f"common.answer.patience.{name}", seconds)
    monkeypatch.setattr("common.methods.aggregate.device.CLOUD_PATIENCE", PATIENCE)
    yield
    cloud.be_quiet()
    renew(cloud, device)
    cloud.script = lambda cloud, message: None


def ask(device: Resident, method: str, **fields: Any) -> Finished:
    """An answer that must end in time, by itself."""
    events = within(device.begin(QUESTION, **({"max_tokens": LENGTH} | METHODS[method] | fields)))
    last = events[-1]
    assert isinstance(last, Finished)
    shown = [event for event in events if isinstance(event, TokenEvent)]
    assert [event.position for event in shown if event.degraded] == list(last.report.degraded)
    return last


def check_that_two_count(device: Resident, method: str) -> None:
    """All tokens but the first two are the device's own; these are, too, where the machine stalls until the device has
    lost its patience, which it does not do every time.
    """
    for _ in range(TRIES):
        report = ask(device, method).report
        assert report.tokens == LENGTH
        assert report.degraded[-(LENGTH - 2) :] == tuple(range(2, LENGTH))
        if report.degraded == tuple(range(2, report.tokens)):
            return
    raise AssertionError("what the cloud decided did not count")


def check_that_nothing_can_be_used(device: Resident, method: str) -> None:
    """All tokens are the device's own, and the report says why; one of a device that a busy machine made impatient says
    that instead, which not every one does.
    """
    notes = []
    for _ in range(TRIES):
        report = ask(device, method).report
        assert report.degraded == tuple(range(report.tokens))
        notes.append(report.notes)
    assert ("The cloud did not take part: the messages that it sent can't be used.",) in notes


def failure(device: Resident, method: str, **fields: Any) -> str:
    """The words that an answer fails with."""
    with pytest.raises(AnswerFailed) as failed:
        ask(device, method, **fields)
    return str(failed.value)


def at_opening(*messages: Callable[[int], Message], then: Callable[[int], Message] | None = None) -> Script:
    """Answer an opening with `messages`, and go on with `then` without an end."""

    def script(cloud: ScriptedCloud, message: Message) -> None:
        if isinstance(message, Open | Fetch):
            session = session_of(message)
            for each in messages:
                cloud.say(each(session))
            if then is not None:
                cloud.keep_saying(lambda: then(session))

    return script


def ready(session: int, tokens: int = 10) -> Ready:
    return Ready(session, ("a document",), tokens, 0.5)


def no_passages(session: int) -> Fetched:
    return Fetched(session, 0, 0, 0, 0, 0.0, "", b"")


def verifying(then: Callable[[int, tuple[int, ...]], Message] | None, rounds: int = 2, declared: float = 0.0) -> Script:
    """Verify some proposals, and go on with `then`, which is told the last one's end, without an end."""
    seen: list[Propose] = []

    def script(cloud: ScriptedCloud, message: Message) -> None:
        assert cloud.hello is not None
        match message:
            case Open(session=session):
                cloud.say(no_passages(session))
                cloud.say(ready(session))
            case Propose() if len(seen) < rounds:
                seen.append(message)
                cloud.say(agreeing(message, cloud.hello.vocabulary, declared))
                if len(seen) == rounds and then is not None:
                    cloud.keep_saying(lambda: then(message.session, ()))

    return script


@by_method
class TestEveryMethod:
    def test_whose_steps_take_ages(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        """It says so, and then nothing."""
        renew(cloud, device, decode_intercept=AGES)
        assert device.engine.cloud.estimates().cloud_decode > 1e6
        report = ask(device, method).report
        assert report.degraded == tuple(range(report.tokens))
        assert report.notes

    def test_that_reads_a_prompt_without_an_end(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        cloud.script = at_opening(no_passages, lambda session: ready(session, MOST))
        if method == "fetch-text":
            cloud.script = at_opening(lambda session: ready(session, MOST))
        report = ask(device, method).report
        assert report.degraded == tuple(range(report.tokens))

    def test_that_reads_in_vain_is_believed_less(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        connection = device.engine.cloud.connection
        assert connection is not None
        cloud.script = at_opening(lambda session: ready(session, MOST))
        if method not in ("fetch-text", "sequence-wise"):
            cloud.script = at_opening(no_passages, lambda session: ready(session, MOST))
        connection.trust.ended(10, 0.1)
        before = connection.trust.seconds(MOST, 0, 1.0)
        ask(device, method)
        assert connection.trust.seconds(MOST, 0, 1.0) == before / 2
        cloud.script = at_opening(ready, lambda session: Target(session, 0, 0, (TOKEN, TOKEN), "cloud"))
        check_that_two_count(device, "speculative")
        assert connection.trust.seconds(MOST, 0, 1.0) >= before

    def test_that_talks_of_nothing(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        cloud.script = at_opening(ready, then=ready)
        report = ask(device, method).report
        assert report.degraded == tuple(range(report.tokens))

    def test_that_forgets_the_answer_again_and_again(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        cloud.script = at_opening(then=lambda session: Error(session, "unknown-session", "Open it again."))
        report = ask(device, method).report
        assert report.degraded == tuple(range(report.tokens))

    def test_that_is_silent_while_drafts_reach_beyond_a_stop_string(
        self, cloud: ScriptedCloud, device: Resident, method: str
    ) -> None:
        """All of them are decided at once; the report tells of those that are shown."""
        cloud.script = at_opening(ready) if method == "fetch-text" else at_opening(no_passages, ready)
        text = ask(device, method).text
        report = ask(device, method, stop=(text[2:4],)).report
        assert report.tokens < LENGTH
        assert report.degraded == tuple(range(report.tokens))


def test_one_whose_context_is_shorter_than_the_question(cloud: ScriptedCloud, device: Resident) -> None:
    """Nothing that is tried again would help: the request itself is refused, unless this device can answer alone."""
    cloud.script = at_opening(lambda session: Error(session, QUESTION_TOO_LONG, "The question is too long."))
    with pytest.raises(TooLong, match="The question is too long"):
        ask(device, "speculative", sources="cloud")
    report = ask(device, "speculative").report
    assert report.degraded == tuple(range(report.tokens))
    assert report.notes == ("The cloud did not take part: The question is too long.",)


class TestPlacements:
    @pytest.mark.parametrize("sources", ["both", "cloud"])
    @pytest.mark.parametrize(
        "junk",
        [
            lambda session: Sync(session, 0, (TOKEN, TOKEN), "cloud", False),
            lambda session: Target(session, 0, 0, (TOKEN,), "cloud"),
            lambda session: Target(session, 0, 300, (TOKEN,), "cloud"),
        ],
        ids=["sync", "repeated target", "target far ahead"],
    )
    def test_that_repeats_itself(
        self, cloud: ScriptedCloud, device: Resident, junk: Callable[[int], Message], sources: str
    ) -> None:
        """It decided two tokens; whatever it repeats brings the answer no further."""
        cloud.script = at_opening(ready, lambda session: Target(session, 0, 0, (TOKEN, TOKEN), "cloud"), then=junk)
        if sources == "cloud":
            reasons = [failure(device, "speculative", sources=sources) for _ in range(TRIES)]
            assert any("The cloud stopped answering" in reason for reason in reasons), reasons
            return
        check_that_two_count(device, "speculative")

    def test_whose_part_of_the_report_has_no_end(self, cloud: ScriptedCloud, device: Resident) -> None:
        def script(cloud: ScriptedCloud, message: Message) -> None:
            match message:
                case Open(session=session):
                    cloud.say(ready(session))
                    cloud.say(Target(session, 0, 0, (TOKEN,) * LENGTH, "cloud"))
                case Close(session=session):
                    cloud.keep_saying(lambda: Contributions(session, 0, 1, b"\x01"))

        cloud.script = script
        degraded = []
        for _ in range(TRIES):
            degraded.append(ask(device, "speculative").report.degraded)
            cloud.be_quiet()
        assert () in degraded

    @pytest.mark.parametrize("placement", ["device", "cloud"])
    def test_that_counts_what_can_not_have_been(
        self, cloud: ScriptedCloud, device: Resident, placement: Placement
    ) -> None:
        """The device has counted itself where it decides; elsewhere no more can have been judged than was decided."""
        most = 2**32 - 1

        def script(cloud: ScriptedCloud, message: Message) -> None:
            match message:
                case Open(session=session):
                    cloud.say(ready(session))
                    if placement == "device":  # its documents have no weight: the device goes on with its own drafts
                        cloud.say(Draft(session, 0, 0, EMPTY, NO_EVIDENCE, 0, encode_race(ENTRIES)))
                    else:
                        cloud.say(Target(session, 0, 0, (TOKEN,) * LENGTH, "cloud"))
                case Close(session=session):
                    cloud.say(Closed(session, 0, most, most, 0, 0, most))

        cloud.script = script
        report = ask(device, "speculative", placement=placement).report
        judged = 1 if placement == "device" else LENGTH + report.device.drafted
        assert report.cloud.accepted + report.cloud.rollbacks <= judged
        assert report.disagreements <= LENGTH


class TestVerifiers:
    @pytest.mark.parametrize(
        "junk",
        [
            lambda session, known: Sync(session, 0, known, "cloud", False),
            lambda session, known: ready(session),
            lambda session, known: no_passages(session),
        ],
        ids=["sync", "ready", "fetched"],
    )
    def test_that_says_that_it_is_there(
        self, cloud: ScriptedCloud, device: Resident, junk: Callable[[int, tuple[int, ...]], Message]
    ) -> None:
        cloud.script = verifying(junk)
        report = ask(device, "coupled").report
        assert report.tokens == LENGTH
        assert report.degraded[-1] == LENGTH - 1

    def test_whose_passes_take_an_hour(self, cloud: ScriptedCloud, device: Resident) -> None:
        cloud.script = verifying(None, declared=4000.0)
        report = ask(device, "coupled").report
        assert report.degraded[-1] == LENGTH - 1


class TestEagerVerifiers:
    @pytest.mark.parametrize(
        "junk",
        [
            lambda session: Decided(session, 0, 0, EMPTY, (TOKEN, TOKEN), 0),
            lambda session: Decided(session, 0, 300, EMPTY, (TOKEN,), 0),
            lambda session: Decided(session, 0, 2, EMPTY, (TOKEN,), 0),
            lambda session: Sync(session, 0, (TOKEN, TOKEN), "cloud", False),
        ],
        ids=["repeated", "far ahead", "another prefix", "sync"],
    )
    def test_that_repeats_itself(self, cloud: ScriptedCloud, device: Resident, junk: Callable[[int], Message]) -> None:
        """It decided two tokens; whatever it repeats brings the answer no further."""
        two = Decided(0, 0, 0, EMPTY, (TOKEN, TOKEN), 0)
        cloud.script = at_opening(no_passages, ready, lambda session: replace(two, session=session), then=junk)
        check_that_two_count(device, "eager")

    @pytest.mark.parametrize("bad", [Verdict(0, 1, 0, 0, (TOKEN,), 0, b""), Decided(0, 0, 0, EMPTY, (MOST,), 0)])
    def test_that_says_what_none_can_say(self, cloud: ScriptedCloud, device: Resident, bad: Verdict | Decided) -> None:
        cloud.script = at_opening(no_passages, ready, lambda session: replace(bad, session=session))
        check_that_nothing_can_be_used(device, "eager")


class TestFetching:
    @pytest.mark.parametrize("method", ["coupled", "eager"])
    def test_whose_passages_are_no_text(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        cloud.script = at_opening(lambda session: Fetched(session, 0, 1, 0, 1, 0.5, "a document", b"\xff"))
        check_that_nothing_can_be_used(device, method)

    @pytest.mark.parametrize("method", ["fetch-text", "coupled"])
    def test_that_hands_over_a_byte_now_and_then(self, cloud: ScriptedCloud, device: Resident, method: str) -> None:
        """Of documents that are never whole, the same byte or another one."""
        places = count()

        def junk(session: int) -> Fetched:
            return Fetched(session, next(places) % 3, 4, 0, 1, 0.5, "a document", b"x")

        def same(session: int) -> Fetched:
            return Fetched(session, 0, 4, 0, 1, 0.5, "a document", b"x")

        for trickle in (same, junk):
            cloud.script = at_opening(then=trickle)
            report = ask(device, method).report
            assert report.degraded == tuple(range(report.tokens))
            cloud.be_quiet()
