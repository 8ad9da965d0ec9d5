"""Admission to the cloud's places, and what refused devices are told: as a decision, and between daemons."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.admission import (
    LONGEST_WAIT,
    SHORTEST_WAIT,
    UNKNOWN,
    Admission,
    OpenSession,
    SessionLimits,
    admit,
    explain_refusal,
)
from cloud.settings import CloudSettings
from common.answer.request import AnswerFailed
from common.engine.model.tokenizer import Tokenizer
from common.library.library import Library
from common.transport.sending import Peer
from device.active_request import BUSY_PATIENCE
from device.interface import TokenEvent
from proto.messages import Busy, Cancel, Fetch, Ready
from tests.cloud.test_giving_up import OPEN, QUESTION
from tests.cloud.town import AT_ONCE, Resident, Stranger, Town, finished
from tests.daemons.streaming import wait_until

BUSY = "The cloud did not take part: it serves as many answers as it can."
PLACES = SessionLimits(sessions=4, per_key=2)
seconds = st.floats(0, 1e6)
OTHERS = ("one", "another", "a third", "a fourth")


class TestDecision:
    def wait(
        self,
        others: list[float],
        own: list[float],
        lasted: list[float],
        places: SessionLimits = PLACES,
        needed: int = 0,
    ) -> float | None:
        """`others` are the ages of other devices' sessions, one each."""
        taken = [OpenSession(age, owner) for age, owner in zip(others, OTHERS, strict=False)]
        admission = admit(places, "own", needed, [*taken, *(OpenSession(age, "own") for age in own)], lasted)
        assert not admission.ending
        return admission.wait

    def test_a_place_is_free(self) -> None:
        assert self.wait([], [], []) is None
        assert self.wait([2.0, 3.0], [1.0], [5.0]) is None

    def test_all_are_taken(self) -> None:
        """The oldest of those that are expected to last is the first to go."""
        assert self.wait([1.0, 2.0, 3.0, 0.5], [], [4.0, 5.0, 6.0]) == 2.0

    def test_those_of_one_device_are_taken(self) -> None:
        """Others' places are none of its own: they don't shorten its wait."""
        assert self.wait([4.9], [1.0, 2.0], [5.0]) == 3.0

    def test_one_that_lasts_longer_than_they_do(self) -> None:
        assert self.wait([100.0], [], [5.0], SessionLimits(1, 1)) == 0.5

    def test_nothing_is_known_yet(self) -> None:
        assert self.wait([0.0], [], [], SessionLimits(1, 1)) == UNKNOWN

    @given(seconds, st.lists(seconds))
    def test_a_wait_is_bounded(self, age: float, lasted: list[float]) -> None:
        wait = self.wait([age], [], lasted, SessionLimits(1, 1))
        assert wait is not None
        assert SHORTEST_WAIT <= wait <= LONGEST_WAIT

    def test_memory_is_taken(self) -> None:
        """Sessions that hold none, as of fetched documents, make no room for it when they end."""
        places = SessionLimits(9, 9, kv_bytes=100)
        taken = [OpenSession(1.0, "other", kv_bytes=45), OpenSession(4.0, "own")]
        assert admit(places, "own", 55, taken, [5.0]).wait is None
        assert admit(places, "own", 56, taken, [5.0]) == Admission(4.0)
        assert admit(places, "own", 0, taken, [5.0]).wait is None

    def test_a_session_that_never_fits_does_not_wait_for_ever(self) -> None:
        assert admit(SessionLimits(9, 9, kv_bytes=100), "own", 101, [OpenSession(1.0, "own")], [5.0]).wait is None


class TestShares:
    """A device that has more than its share when another one asks."""

    def test_of_places(self) -> None:
        """It may have all of them alone; of two devices, each may have two of four."""
        greedy = [OpenSession(age, "greedy") for age in (3.0, 2.0, 1.0)]
        places = SessionLimits(4, 9)
        assert admit(places, "greedy", 0, greedy, []) == Admission(None)
        greedy.append(OpenSession(0.5, "greedy"))
        assert admit(places, "greedy", 0, greedy, []).wait is not None
        assert admit(places, "polite", 0, greedy, []) == Admission(None, (3,))
        both = [*greedy[:3], OpenSession(0.1, "polite")]
        assert admit(places, "polite", 0, both, []) == Admission(None, (2,))
        both = [*greedy[:2], OpenSession(0.1, "polite"), OpenSession(0.0, "polite")]
        assert admit(places, "polite", 0, both, []).wait is not None
        assert admit(places, "greedy", 0, both, []).wait is not None

    def test_of_memory(self) -> None:
        """The youngest that hold some end, and no more of them than must; a share is no more than its part."""
        places = SessionLimits(9, 9, kv_bytes=100)
        greedy = [
            OpenSession(3.0, "greedy", 50),
            OpenSession(2.0, "greedy", 25),
            OpenSession(1.0, "greedy", 25),
            OpenSession(0.5, "greedy"),
        ]
        assert admit(places, "polite", 20, greedy, []) == Admission(None, (2,))
        assert admit(places, "polite", 50, greedy, []) == Admission(None, (2, 1))
        assert admit(places, "polite", 51, greedy, []).wait is not None

    @given(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40), seconds), max_size=12),
        st.integers(0, 100),
        st.sampled_from("abcde"),
    )
    def test_whoever_has_less_need_not_wait(self, held: list[tuple[str, int, float]], needed: int, owner: str) -> None:
        """Nor is anything taken from one that has no more than its share; what is there is never exceeded."""
        places = SessionLimits(8, 5, kv_bytes=100)
        taken: list[OpenSession] = []
        for other, kv_bytes, age in held:
            if len(taken) < places.sessions and sum(each.kv_bytes for each in taken) + kv_bytes <= 100:
                taken.append(OpenSession(age, other, kv_bytes))
        devices = len({owner, *(each.tenant for each in taken)})
        own = [each for each in taken if each.tenant == owner]
        found = admit(places, owner, needed, taken, [])
        within = (len(own) + 1) * devices <= 8 and (sum(each.kv_bytes for each in own) + needed) * devices <= 100
        if within and len(own) < places.per_key:
            assert found.wait is None
        if found.wait is not None:
            assert not found.ending
            return
        left = [each for index, each in enumerate(taken) if index not in found.ending]
        assert len(left) < 8
        assert sum(each.kv_bytes for each in left) + needed <= 100
        for index in found.ending:
            mine = [each for each in taken if each.tenant == taken[index].tenant]
            assert taken[index].tenant != owner
            assert len(mine) * devices > 8 or sum(each.kv_bytes for each in mine) * devices > 100


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), max_sessions=3, max_sessions_per_key=2) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("laptop")


def take(town: Town, stranger: Stranger, count: int) -> None:
    there = town.sessions.open
    for session in range(1, count + 1):
        stranger.send(replace(OPEN, session=session))
    wait_until(lambda: town.sessions.open == there + count, "the places are taken", AT_ONCE)


def told_of(stranger: Stranger, session: int) -> None:
    """Wait until a session is open or refused."""

    def told() -> bool:
        return session in {each.session for each in (*stranger.of(Ready), *stranger.of(Busy))}

    wait_until(told, "the session is open or refused", AT_ONCE)


def taken_by_one(town: Town, stranger: Stranger) -> int:
    """Bytes of KV memory that a session of `OPEN` is known to need when its documents are found."""
    take(town, stranger, 1)
    wait_until(lambda: bool(stranger.of(Ready)), "its documents are found", AT_ONCE)
    (needed,) = town.sessions._kv_bytes.values()
    stranger.send(Cancel(1))
    town.check_that_all_is_free()
    stranger.heard.clear()
    return needed


@pytest.mark.parametrize(("size", "refused"), [(100, False), (101, True)])
def test_every_text_that_is_searched_for_has_a_limit(size: int, refused: bool) -> None:
    text, settings = "\u00e9" * size, CloudSettings(max_query_bytes=200)
    opened = (replace(OPEN, question=text), replace(OPEN, earlier=text))
    for request in (*opened, Fetch(1, text, 4, "text"), Fetch(1, "?", 4, "text", text)):
        assert (explain_refusal(request, settings, 512) is not None) == refused


def test_a_prompt_is_limited_by_the_models_context_alone() -> None:
    prompt, settings = "a" * 1000, CloudSettings(max_query_bytes=200)
    assert explain_refusal(replace(OPEN, prompt=prompt, documents_at=1000), settings, 512) is None
    assert "beyond the end" in (explain_refusal(replace(OPEN, prompt=prompt, documents_at=1001), settings, 512) or "")


class TestCloud:
    def test_a_device_has_places_of_its_own(self, town: Town) -> None:
        greedy, other = town.stranger(), town.stranger()
        take(town, greedy, 2)
        greedy.send(replace(OPEN, session=3))
        wait_until(lambda: bool(greedy.of(Busy)), "no place for a third one", AT_ONCE)
        assert [busy.session for busy in greedy.of(Busy)] == [3]
        other.send(replace(OPEN, session=3))
        wait_until(lambda: bool(other.of(Ready)), "a place for another device", AT_ONCE)
        greedy.close()
        other.close()
        town.check_that_all_is_free()

    def test_what_can_not_be_served_ends_nobodys_answer(self, town: Town) -> None:
        """Though its device has fewer than its share, and another one more."""
        greedy, other, asking = (town.stranger() for _ in range(3))
        take(town, greedy, 2)
        take(town, other, 1)
        asking.send(replace(OPEN, method="nonsense"))
        assert asking.code() == "unservable"
        assert town.sessions.open == 3
        for stranger in (greedy, other, asking):
            stranger.close()
        town.check_that_all_is_free()

    def test_more_connections_of_a_key_give_no_more_places(self, town: Town) -> None:
        one, two, other = Peer(1001, "key"), Peer(1002, "key"), Peer(1003, "another key")
        for peer in (one, two, other):
            town.sessions.on_message(peer, replace(town.cloud.hello, role="device"), 0)
        for peer, opened in ((one, 1), (two, 2), (two, 2), (one, 2), (other, 3)):
            town.sessions.on_message(peer, replace(OPEN, session=opened + peer.connection), 0)
            assert town.sessions.open == opened
        for peer in (one, two, other):
            town.sessions.on_gone(peer)
        town.check_that_all_is_free()

    def test_memory_for_two(self, fresh_data: Callable[[], Path]) -> None:
        """A budget of KV memory for two answers: the third is told to come later, and is served then."""
        with Town(fresh_data(), kv_bytes=2**30) as town:
            stranger = town.stranger()
            town.cloud.decoder.memory.limit_bytes = town.cloud.kv_bytes(OPEN) + taken_by_one(town, stranger)
            for session in (1, 2):
                stranger.send(replace(OPEN, session=session))
                told_of(stranger, session)
            stranger.send(replace(OPEN, session=3))
            wait_until(lambda: bool(stranger.of(Busy)), "no memory for a third one", AT_ONCE)
            assert stranger.of(Busy)[0].retry_after > 0
            stranger.send(Cancel(1))
            stranger.send(replace(OPEN, session=3))
            wait_until(lambda: 3 in {ready.session for ready in stranger.of(Ready)}, "room for it", AT_ONCE)

    @pytest.mark.parametrize("scarce", ["places", "memory"])
    def test_a_greedy_device_leaves_others_their_share(self, fresh_data: Callable[[], Path], scarce: str) -> None:
        """It has all that there is, and holds it; another one is served at once, as well as if it were alone."""
        places = {"max_sessions": 4, "max_sessions_per_key": 4} if scarce == "places" else {}
        with Town(fresh_data(), kv_bytes=2**30, **places) as town:
            polite, greedy = town.device("polite"), town.stranger()
            fields = {"documents": OPEN.documents, "max_tokens": OPEN.max_tokens}
            expected = polite.ask(QUESTION, **fields)
            town.check_that_all_is_free()
            if scarce == "memory":
                expecting, needed = town.cloud.kv_bytes(OPEN), taken_by_one(town, greedy)
                town.cloud.decoder.memory.limit_bytes = expecting + -(-expecting // needed) * needed
            session = 0
            while not greedy.of(Busy):
                session += 1
                greedy.send(replace(OPEN, session=session))
                told_of(greedy, session)
            held, refused = {each.session for each in greedy.of(Ready)}, {each.session for each in greedy.of(Busy)}
            assert len(held) >= 2
            answer = polite.ask(QUESTION, **fields)
            assert (answer.text, answer.report.notes, answer.report.degraded) == (expected.text, (), ())
            lost = {each.session for each in greedy.of(Busy)} - refused
            assert lost == {max(held)}, "the youngest, and no other"
            wait_until(lambda: town.sessions.open == len(held) - 1, "the polite one's place is free", AT_ONCE)
            greedy.send(replace(OPEN, session=99))
            wait_until(lambda: 99 in {each.session for each in greedy.of(Ready)}, "it may have it again", AT_ONCE)
            greedy.close()
            town.check_that_all_is_free()

    def test_the_expected_memory_is_what_an_answer_takes_at_most(self, town: Town) -> None:
        memory = town.cloud.decoder.memory
        wait_until(lambda: memory.used_bytes == 0, "the answers before have given theirs back", AT_ONCE)
        stranger = town.stranger()
        take(town, stranger, 1)
        wait_until(lambda: memory.used_bytes > 0, "the prompt is read", AT_ONCE)
        assert memory.used_bytes <= town.cloud.kv_bytes(replace(OPEN, session=1)) <= 4 * memory.used_bytes
        stranger.close()
        town.check_that_all_is_free()

    def test_a_prompt_is_counted_in_tokens_and_only_once(self, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        """One in Chinese has several per character here. Neither text nor tokens outlast the session."""
        prompt = "\nQuestion: " + "我最喜欢的那一类游戏里卖得最好的是哪一个" * 4 + "\nAnswer:"
        tokens = len(town.cloud.tokenizer.encode(prompt))
        assert tokens > len(prompt)
        encoded: list[str] = []
        encode = Tokenizer.encode

        def noted(tokenizer: Tokenizer, text: str) -> list[int]:
            encoded.append(text)
            return encode(tokenizer, text)

        monkeypatch.setattr(Tokenizer, "encode", noted)
        memory, stranger = town.cloud.decoder.memory, town.stranger()
        wait_until(lambda: memory.used_bytes == 0, "the answers before have given theirs back", AT_ONCE)
        request = replace(OPEN, session=1, prompt=prompt)
        stranger.send(request)
        wait_until(lambda: memory.used_bytes > 0, "the prompt is read", AT_ONCE)
        expected = town.cloud.kv_bytes(request)
        assert expected >= memory.used_bytes >= memory.needed_bytes(1, tokens + request.max_tokens)
        assert encoded.count(prompt) == 1
        del request
        stranger.close()
        town.check_that_all_is_free()
        wait_until(lambda: gc.collect() >= 0 and not town.cloud.target._read, "the tokens are forgotten", AT_ONCE)

    def test_a_library_that_can_not_be_asked_ends_the_one_session(
        self, town: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(library: object, most: int) -> None:
            raise OSError("disk failure")

        stranger = town.stranger()
        with monkeypatch.context() as patch:
            patch.setattr(Library, "count_to", broken)
            stranger.send(replace(OPEN, session=1))
            assert stranger.code() == "failed"
        take(town, stranger, 1)
        stranger.close()
        town.check_that_all_is_free()

    def test_the_hint_is_what_answers_last(self, town: Town) -> None:
        stranger = town.stranger()
        town.sessions._lasted.clear()
        town.sessions._lasted.extend([7.0, 8.0, 9.0])
        began = time.monotonic()
        take(town, stranger, 2)
        stranger.send(replace(OPEN, session=3))
        wait_until(lambda: bool(stranger.of(Busy)), "no place", AT_ONCE)
        oldest = time.monotonic() - began
        assert 8.0 - oldest - 0.001 < stranger.of(Busy)[0].retry_after / 1e6 <= 8.0
        stranger.close()
        town.check_that_all_is_free()
        assert len(town.sessions._lasted) == 5  # the two that have just ended, too


class TestDevice:
    @pytest.fixture
    def taken(self, town: Town) -> Iterator[list[Stranger]]:
        """Occupies all places with other devices, each its share; sessions are known to be short."""
        town.sessions._lasted.clear()
        town.sessions._lasted.extend([0.1] * 9)
        strangers = [town.stranger() for _ in range(3)]
        for stranger in strangers:
            take(town, stranger, 1)
        yield strangers
        for stranger in strangers:
            stranger.close()
        town.check_that_all_is_free()

    @pytest.mark.parametrize(
        "fields",
        [{}, {"placement": "mirrored"}, {"sources": "cloud"}, {"method": "fetch-text"}, {"method": "sequence-wise"}],
    )
    def test_a_young_answer_gets_the_place_that_becomes_free(
        self, town: Town, device: Resident, taken: list[Stranger], long: float, fields: dict[str, object]
    ) -> None:
        generation = device.begin(QUESTION, **fields)
        (active,) = device.engine._active.values()
        wait_until(lambda: active.retry_at is not None, "the cloud is busy", AT_ONCE)
        taken[1].send(Cancel(1))
        report = finished(generation).report
        assert (report.degraded, report.notes) == ((), ())
        assert "cloud" in {source.side for source in report.sources}

    @pytest.mark.parametrize("fields", [{}, {"method": "fetch-text"}, {"method": "sequence-wise"}])
    def test_it_goes_on_alone_and_says_busy(
        self, device: Resident, taken: list[Stranger], fields: dict[str, object]
    ) -> None:
        started = time.monotonic()
        report = device.ask(QUESTION, **fields).report
        # it gives up as soon as the next place is said to come too late
        assert BUSY_PATIENCE / 2 < time.monotonic() - started < BUSY_PATIENCE + AT_ONCE
        assert report.degraded == tuple(range(report.tokens))
        assert report.notes == (BUSY,)

    def test_it_does_not_wait_for_a_place_that_comes_too_late(
        self, town: Town, device: Resident, taken: list[Stranger], long: float
    ) -> None:
        town.sessions._lasted.extend([1000.0] * 100)
        report = device.ask(QUESTION).report
        assert report.notes == (BUSY,)
        assert report.ttft < long / 2

    def test_only_the_clouds_documents(self, device: Resident, taken: list[Stranger]) -> None:
        with pytest.raises(AnswerFailed, match=BUSY):
            device.ask(QUESTION, sources="cloud")

    def test_an_answer_that_is_not_young_any_more(self, town: Town, device: Resident, taken: list[Stranger]) -> None:
        """An answer that loses its place in the middle goes on alone rather than wait for another place."""
        taken[1].send(Cancel(1))
        generation = device.begin(QUESTION, method="token-wise")
        event = next(iter(generation))
        assert isinstance(event, TokenEvent)
        (active,) = device.engine._active.values()
        device.engine._on_message(Busy(active.opening.session, 10), 0)
        report = finished(generation).report
        assert report.degraded
        assert report.notes[0].startswith("The cloud took no part after")
        device.engine.cloud.send(Cancel(active.opening.session))

    def test_cancelled_while_it_waits(self, device: Resident, taken: list[Stranger]) -> None:
        generation = device.begin(QUESTION)
        (active,) = device.engine._active.values()
        wait_until(lambda: active.retry_at is not None, "the cloud is busy", AT_ONCE)
        generation.cancel()
        assert finished(generation).reason == "cancelled"
        assert device.engine.status().active == 0
