"""Draft-and-verify answers beside each other and beside others: each is what it is alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.answer.driver import Driver
from common.answer.request import RequestError
from common.answer.values import Action
from common.draft_policy.policy import Goodput
from common.methods.catalog import METHODS
from common.methods.coupled.scheme import encode_tokens
from common.methods.drafted.cloud import VerifyingCloud
from common.methods.drafted.device import DraftingDevice
from common.methods.drafted.drafting import Drafting
from device.interface import Finished, TokenEvent
from proto.codes import digest
from proto.messages import Decided, Defer, Error, Fetched, Message, Open, Propose, Ready, Sync, Verdict
from tests.cloud.test_giving_up import OPEN
from tests.cloud.test_neighbours import QUESTIONS, Asking, check, devices, holding, slow, town
from tests.cloud.town import AT_ONCE, Resident, Stranger, Town
from tests.common.methods.drafted.schemes import SHARING
from tests.daemons.streaming import wait_until

__all__ = ["devices", "slow", "town"]

MIXED: tuple[dict[str, Any], ...] = (
    {"method": "coupled"},
    {"method": "dssd", "top_k": 20},
    {"method": "qsv", "resolution": 32},
    {"method": "coupled", "ahead": False},
    {"method": "dsd"},
    {"sources": "both"},
)


def tokens(*ids: int) -> bytes:
    return encode_tokens(ids, 2048)


@pytest.fixture(scope="module")
def expected(devices: list[Resident]) -> dict[str, str]:
    pairs = zip(QUESTIONS, MIXED, strict=True)
    return {
        question: devices[0].ask(question, temperature=0.7, max_tokens=12, **fields).text for question, fields in pairs
    }


@pytest.fixture
def stranger(town: Town) -> Iterator[Stranger]:
    stranger = town.stranger()
    yield stranger
    stranger.close()


def ask_all(asking: Asking, residents: list[Resident]) -> None:
    for number, (question, fields) in enumerate(zip(QUESTIONS, MIXED, strict=True)):
        asking.ask(residents[number % len(residents)], question, **fields)


class TestNeighbours:
    def test_methods_mixed(self, town: Town, devices: list[Resident], expected: dict[str, str]) -> None:
        with Asking() as asking, holding(town):
            ask_all(asking, devices)
            wait_until(lambda: town.sessions.open == len(QUESTIONS), "all are under way", AT_ONCE)
        check(asking, expected)
        town.check_that_all_is_free()

    def test_fast_and_slow_devices(
        self, town: Town, devices: list[Resident], slow: Resident, expected: dict[str, str]
    ) -> None:
        with Asking() as asking:
            ask_all(asking, [*devices, slow])
        check(asking, expected)
        town.check_that_all_is_free()

    def test_beside_a_stranger_with_a_bad_proposal(
        self, town: Town, devices: list[Resident], stranger: Stranger, expected: dict[str, str]
    ) -> None:
        with Asking() as asking:
            ask_all(asking, devices)
            stranger.send(opening(9))
            wait_until(lambda: bool(stranger.of(Ready)), "the stranger's answer is open")
            stranger.send(Propose(9, 1, 0, (digest(()),), (), (5,), b"surplus"))
            assert stranger.code() == "malformed"
        check(asking, expected)
        town.check_that_all_is_free()

    def test_beside_a_stranger_that_proposes_without_end(
        self, town: Town, devices: list[Resident], stranger: Stranger, expected: dict[str, str]
    ) -> None:
        """Proposals for other prefixes cost nothing, and hold nobody up."""
        with Asking() as asking:
            ask_all(asking, devices)
            stranger.send(opening(9))
            for number in range(2000):
                stranger.link.send(Propose(9, number + 1, 0, (7,), (), (), tokens(5, 6, 7)))
        check(asking, expected)


def opening(session: int, eager: bool = True) -> Open:
    options = "" if eager else '{"eager": false}'
    return replace(OPEN, session=session, method="coupled", options=options, sources="cloud", placement="cloud", eos=())


class TestPassages:
    def test_come_before_anything_is_asked(self, town: Town, stranger: Stranger) -> None:
        stranger.send(opening(11, eager=False))
        wait_until(lambda: bool(stranger.of(Ready)), "the cloud has read its prompt")
        parts = stranger.of(Fetched)
        assert [part.index for part in parts] == list(range(OPEN.documents))
        assert all(part.count == OPEN.documents for part in parts)
        stranger.send(Propose(11, 1, 0, (digest(()),), (), (), tokens(5, 6)))
        wait_until(lambda: bool(stranger.of(Verdict)), "a verdict comes")
        (first,) = stranger.of(Verdict)
        stranger.send(Propose(11, 1, 0, (digest(()),), (), (), tokens(5, 6)))
        wait_until(lambda: len(stranger.of(Verdict)) == 2, "the same verdict comes again")
        assert stranger.of(Verdict)[1] == first


def test_a_device_that_only_listens_is_not_given_up(fresh_data: Callable[[], Path]) -> None:
    """An eager verifier decides more quickly than it drafts: nothing of it is ever in time."""
    idle, length = 1000.0, 16
    with Town(fresh_data(), emulate_decode_ms=100.0, session_idle_seconds=idle) as town:
        town._ticker.close()
        stranger = town.stranger()
        stranger.send(replace(opening(12), max_tokens=length))
        wait_until(lambda: bool(stranger.of(Ready)), "the session is open", AT_ONCE)
        (half,), now = town.sessions._sessions.values(), time.monotonic()
        assert isinstance(half, VerifyingCloud)
        while half._position < length:  # of the last tick
            wait_until(lambda: half.machine.position > half._position, "a token is decided", AT_ONCE)
            now += 0.9 * idle
            town.sessions.tick(now)
            assert town.sessions.open == 1
        wait_until(lambda: sum(len(each.tokens) for each in stranger.of(Decided)) == length, "all is decided", AT_ONCE)
        assert stranger.of(Error) == []
        town.sessions.tick(now + 1.1 * idle)
        assert stranger.code() == "unknown-session"


class TestNothingDrafted:
    @pytest.mark.parametrize(
        "fields", [{"method": "coupled"}, {"method": "coupled", "ahead": False}, {"method": "dssd"}]
    )
    def test_the_cloud_decides(
        self, devices: list[Resident], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever the times are: as if drafts never saved any."""
        monkeypatch.setattr(Goodput, "_saves", lambda self, times, alpha, length, at: False)
        unending = dict.fromkeys(devices[0].side.eos, -100.0)
        asked: dict[str, Any] = {"max_tokens": 80, "logit_bias": unending}  # more than is left at once
        last = devices[0].ask(QUESTIONS[0], draft_policy="goodput", **asked, **fields)
        assert last.report.tokens == last.report.figures["undrafted"] == 80
        assert (last.report.device.drafted, last.report.figures["proposals"]) == (0, 0)
        assert (last.report.notes, last.report.degraded) == ((), ())
        assert last.text == devices[0].ask(QUESTIONS[0], sources="cloud", **asked).text

    def test_by_a_busy_cloud_it_is(self, town: Town, devices: list[Resident], monkeypatch: pytest.MonkeyPatch) -> None:
        """It waits for proposals: the device makes some after a silence, long before its patience ends."""
        monkeypatch.setattr(Goodput, "_saves", lambda self, times, alpha, length, at: False)
        monkeypatch.setattr(town.sessions, "_settings", town.sessions._settings.model_copy(update={"eager": 0}))
        asked: dict[str, Any] = {"temperature": 0.7, "max_tokens": 12}
        last = devices[0].ask(QUESTIONS[0], method="coupled", draft_policy="goodput", **asked)
        assert last.report.figures["proposals"] > 0
        assert (last.report.notes, last.report.degraded) == ((), ())
        assert last.text == devices[0].ask(QUESTIONS[0], sources="cloud", **asked).text

    def test_beside_a_stranger_that_leaves_tokens_without_end(
        self, town: Town, devices: list[Resident], stranger: Stranger, expected: dict[str, str]
    ) -> None:
        with Asking() as asking:
            ask_all(asking, devices)
            stranger.send(opening(14, eager=False))
            for number in range(2000):
                stranger.link.send(Defer(14, number + 1, 0, (7,), (), 64))  # behind another prefix
        check(asking, expected)


class TestAttribution:
    def test_shares_of_tokens_that_are_given_up_go_with_them(
        self, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Under the lock: a token that is decided just afterwards keeps its own."""
        held: list[int] = []
        apply = Driver.apply

        def noted(driver: Driver, event: Callable[[], list[Action]]) -> None:
            apply(driver, event)
            held.append(len(driver.record.shares))

        stranger.send(opening(13, eager=False))
        wait_until(lambda: bool(stranger.of(Ready)), "the cloud has read its prompt")
        stranger.send(Propose(13, 1, 0, (digest(()),), (), (), tokens(5, 6)))
        wait_until(lambda: bool(stranger.of(Verdict)), "a verdict comes")
        monkeypatch.setattr(Driver, "apply", noted)
        stranger.send(Sync(13, 0, (), "cloud", True))
        wait_until(lambda: bool(stranger.of(Sync)), "the cloud has adopted the prefix")
        wait_until(lambda: bool(held), "it is done with that")
        assert held[0] == 0


class TestRequests:
    @pytest.mark.parametrize("method", SHARING)
    def test_without_documents(self, devices: list[Resident], method: str) -> None:
        last = devices[0].ask(QUESTIONS[0], method=method, documents=0, max_tokens=12)
        alone = devices[0].ask(QUESTIONS[0], sources="cloud", documents=0, max_tokens=12)
        assert last.text == alone.text
        assert last.report.sources == ()
        assert (last.report.notes, last.report.degraded) == ((), ())

    @pytest.mark.parametrize(
        ("fields", "field", "said"),
        [
            ({"method": "dssd", "sources": "both"}, "sources", "reads the cloud's documents on both sides"),
            ({"method": "dssd", "sources": "device"}, "sources", "none of this device's"),
            ({"method": "dssd", "sampler": "race"}, "sampler", "draws by 'rejection'"),
            ({"method": "coupled", "sampler": "paper"}, "sampler", "draws by 'race'"),
            ({"method": "speculative", "sampler": "rejection"}, "sampler", "draft and verify"),
            ({"method": "qsv", "index_code": "fixed", "resolution": 129}, "resolution", "too fine"),
            ({"method": "qsv", "draft_policy": "ddqn", "ahead": True}, "ahead", "needs one resolution"),
            ({"method": "coupled", "draft_policy": "confidence"}, "draft_policy", "not ended by confidence"),
            ({"method": "coupled", "top_logprobs": 2}, "logprobs", "Log-probabilities need"),
            ({"method": "coupled", "privacy": "offline"}, "sources", "keeps the question here"),
        ],
    )
    def test_refused(self, devices: list[Resident], fields: dict[str, Any], field: str, said: str) -> None:
        with pytest.raises(RequestError, match=said) as caught:
            devices[0].begin(QUESTIONS[0], **fields)
        assert caught.value.field == field

    def test_without_a_draft_model(self, town: Town) -> None:
        device = town.device("no-draft", draft_model=None)
        with pytest.raises(RequestError, match="needs a draft model"):
            device.begin(QUESTIONS[0], method="dssd")
        assert device.ask(QUESTIONS[0], max_tokens=8).report.notes == ()

    def test_penalties_and_biases_hold_for_both(self, devices: list[Resident]) -> None:
        sampled: dict[str, Any] = {"max_tokens": 24, "temperature": 0.7, "frequency_penalty": 0.5}
        plain = list(devices[0].begin(QUESTIONS[1], sources="cloud", **sampled))
        banned = {event.token: -100.0 for event in plain[3:6] if isinstance(event, TokenEvent)}
        biased = devices[0].ask(QUESTIONS[1], sources="cloud", logit_bias=banned, **sampled).text
        drafted = devices[0].ask(QUESTIONS[1], method="coupled", logit_bias=banned, **sampled).text
        assert drafted == biased
        assert isinstance(plain[-1], Finished)
        assert drafted != plain[-1].text


@pytest.fixture(scope="module")
def exact(town: Town, tmp_path_factory: pytest.TempPathFactory) -> list[Resident]:
    """Two devices that compute the same bits at any time: one of them has another private library, an empty one."""
    empty = tmp_path_factory.mktemp("bare") / "empty"
    return [
        town.device("furnished", dtype="bfloat16"),
        town.device("bare", dtype="bfloat16", library=empty),
    ]


@pytest.mark.parametrize("method", SHARING)
def test_private_documents_change_nothing_that_is_sent(
    exact: list[Resident], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device with another private library proposes the same in the same bytes."""
    assert [device.side.library.count > 0 for device in exact] == [True, False]
    sent: list[list[Propose]] = []
    for device in exact:
        sent.append([])
        connection = device.engine.cloud.connection
        assert connection is not None
        send = connection.send

        def noted(message: Message, send: Callable[[Message], int] = send, kept: list[Propose] = sent[-1]) -> int:
            if isinstance(message, Propose):
                kept.append(message)
            return send(message)

        monkeypatch.setattr(connection, "send", noted)
        fields: dict[str, Any] = {"temperature": 0.7, "max_tokens": 20, "draft_policy": "fixed", "draft_length": 3}
        if "ahead" in METHODS[method].request.model_fields:
            fields["ahead"] = False
        device.ask(QUESTIONS[0], method=method, **fields)
    assert sent[0]
    assert [replace(each, session=0) for each in sent[0]] == [replace(each, session=0) for each in sent[1]]


@pytest.mark.parametrize("method", ["speculative", "fetch-text", "coupled"])
def test_nothing_is_attributed_without_documents(devices: list[Resident], method: str) -> None:
    report = devices[0].ask(QUESTIONS[0], method=method, documents=0, max_tokens=4).report
    assert report.sources == ()
    assert all(row == () for row in report.attribution)


def test_the_clock_looks_at_an_answer_under_its_lock(devices: list[Resident], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its drafts may be rolled back at any time."""
    locks: dict[Drafting, Any] = {}
    held: list[bool] = []
    make, waiting = DraftingDevice.__init__, Drafting.waiting

    def made(half: DraftingDevice, *arguments: Any, **fields: Any) -> None:
        make(half, *arguments, **fields)
        locks[half.machine] = half.answer.lock

    def looked_at(machine: Drafting) -> bool:
        if machine in locks:
            held.append(locks[machine]._is_owned())
        return bool(waiting.__get__(machine))

    monkeypatch.setattr(DraftingDevice, "__init__", made)
    monkeypatch.setattr(Drafting, "waiting", property(looked_at))
    devices[0].ask(QUESTIONS[0], method="coupled", max_tokens=8)
    assert held
    assert all(held)
