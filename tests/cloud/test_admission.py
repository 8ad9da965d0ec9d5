"""Admission to the cloud's places, and what refused devices are told: as a decision, and between daemons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.admission import LONGEST_WAIT, SHORTEST_WAIT, UNKNOWN, Places, Taken, admit
from common.retrieval.library import Library
from common.runtime.errors import AnswerFailed
from common.transport.interface import Peer
from device.active_request import BUSY_PATIENCE
from device.interface import TokenEvent
from proto.messages import Busy, Cancel, Ready
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import AT_ONCE, Resident, Stranger, Town, finished
from tests.daemons.streaming import wait_until

QUESTION = "What is the best-selling game of the kind I like?"
BUSY = "The cloud did not take part: it serves as many answers as it can."
PLACES = Places(sessions=4, per_key=2)
seconds = st.floats(0, 1e6)


class TestDecision:
    def admit(
        self, others: list[float], own: list[float], lasted: list[float], places: Places = PLACES, needed: int = 0
    ) -> float | None:
        taken = [Taken(age, own=False) for age in others] + [Taken(age, own=True) for age in own]
        return admit(places, needed, taken, lasted)

    def test_a_place_is_free(self) -> None:
        assert self.admit([], [], []) is None
        assert self.admit([2.0, 3.0], [1.0], [5.0]) is None

    def test_all_are_taken(self) -> None:
        """The oldest of those that are expected to last is the first to go."""
        assert self.admit([1.0, 2.0, 3.0, 0.5], [], [4.0, 5.0, 6.0]) == 2.0

    def test_those_of_one_device_are_taken(self) -> None:
        """Others' places are none of its own: they don't shorten its wait."""
        assert self.admit([4.9], [1.0, 2.0], [5.0]) == 3.0

    def test_one_that_lasts_longer_than_they_do(self) -> None:
        assert self.admit([100.0], [], [5.0], Places(1, 1)) == 0.5

    def test_nothing_is_known_yet(self) -> None:
        assert self.admit([0.0], [], [], Places(1, 1)) == UNKNOWN

    @given(st.lists(seconds, min_size=1), st.lists(seconds))
    def test_a_wait_is_bounded(self, ages: list[float], lasted: list[float]) -> None:
        wait = self.admit(ages, [], lasted, Places(1, 1))
        assert wait is not None
        assert SHORTEST_WAIT <= wait <= LONGEST_WAIT

    def test_memory_is_taken(self) -> None:
        """Sessions that hold none, as of fetched documents, make no room for it when they end."""
        places = Places(9, 9, kv_bytes=100)
        taken = [Taken(1.0, own=False, kv_bytes=60), Taken(4.0, own=True)]
        assert admit(places, 40, taken, [5.0]) is None
        assert admit(places, 41, taken, [5.0]) == 4.0
        assert admit(places, 0, taken, [5.0]) is None

    def test_a_session_that_never_fits_does_not_wait_for_ever(self) -> None:
        assert admit(Places(9, 9, kv_bytes=100), 101, [Taken(1.0, own=True)], [5.0]) is None


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
            one = town.cloud.kv_bytes(OPEN)
            town.cloud.decoder.memory.limit_bytes = 2 * one + one // 2
            stranger = town.stranger()
            take(town, stranger, 2)
            stranger.send(replace(OPEN, session=3))
            wait_until(lambda: bool(stranger.of(Busy)), "no memory for a third one", AT_ONCE)
            assert stranger.of(Busy)[0].retry_after > 0
            stranger.send(Cancel(1))
            stranger.send(replace(OPEN, session=3))
            wait_until(lambda: 3 in {ready.session for ready in stranger.of(Ready)}, "room for it", AT_ONCE)

    def test_the_expected_memory_is_what_an_answer_takes_at_most(self, town: Town) -> None:
        memory = town.cloud.decoder.memory
        wait_until(lambda: memory.used_bytes == 0, "the answers before have given theirs back", AT_ONCE)
        stranger = town.stranger()
        take(town, stranger, 1)
        wait_until(lambda: memory.used_bytes > 0, "the prompt is read", AT_ONCE)
        assert memory.used_bytes <= town.cloud.kv_bytes(replace(OPEN, session=1)) <= 4 * memory.used_bytes
        stranger.close()
        town.check_that_all_is_free()

    def test_a_library_that_can_not_be_asked_ends_the_one_session(
        self, town: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(library: object) -> None:
            raise OSError("disk failure")

        stranger = town.stranger()
        with monkeypatch.context() as patch:
            patch.setattr(Library, "counts", property(broken))
            stranger.send(replace(OPEN, session=1))
            assert stranger.code() == "failed"
        take(town, stranger, 1)
        stranger.close()
        town.check_that_all_is_free()

    def test_the_hint_is_what_answers_last(self, town: Town) -> None:
        stranger = town.stranger()
        town.sessions._lasted.clear()
        town.sessions._lasted.extend([7.0, 8.0, 9.0])
        take(town, stranger, 2)
        stranger.send(replace(OPEN, session=3))
        wait_until(lambda: bool(stranger.of(Busy)), "no place", AT_ONCE)
        assert 8.0 - AT_ONCE < stranger.of(Busy)[0].retry_after / 1e6 <= 8.0
        stranger.close()
        town.check_that_all_is_free()
        assert len(town.sessions._lasted) == 5  # the two that have just ended, too


class TestDevice:
    @pytest.fixture
    def taken(self, town: Town) -> Iterator[list[Stranger]]:
        """Occupies all places with other devices; sessions are known to be short."""
        town.sessions._lasted.clear()
        town.sessions._lasted.extend([0.1] * 9)
        strangers = [town.stranger(), town.stranger()]
        take(town, strangers[0], 2)
        take(town, strangers[1], 1)
        yield strangers
        for stranger in strangers:
            stranger.close()
        town.check_that_all_is_free()

    @pytest.mark.parametrize(
        "fields",
        [{}, {"placement": "mirrored"}, {"sources": "cloud"}, {"method": "fetch-text"}, {"method": "sequence-wise"}],
    )
    def test_a_young_answer_gets_the_place_that_becomes_free(
        self, town: Town, device: Resident, taken: list[Stranger], fields: dict[str, object]
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
        self, town: Town, device: Resident, taken: list[Stranger]
    ) -> None:
        town.sessions._lasted.extend([1000.0] * 100)
        started = time.monotonic()
        assert device.ask(QUESTION).report.notes == (BUSY,)
        assert time.monotonic() - started < BUSY_PATIENCE

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
