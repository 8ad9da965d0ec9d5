"""Sessions and their workers: what is opened where, and what ends with whom."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.gateway.gateway import Table
from common.transport.sending import Peer

HELLO = b"hello"
ONE, OTHER = Peer(1, "one"), Peer(2, "other")


def table_of(workers: int, most_per_key: int = 16) -> Table:
    table = Table(most_per_key)
    for worker in range(1, workers + 1):
        table.joined(worker)
    return table


def test_nobody_serves() -> None:
    table = Table(16)
    assert table.greeted(ONE, HELLO) is None
    assert table.opened((ONE, 1)) is None
    table.joined(1)
    opening = table.opened((ONE, 1))
    assert opening is not None and (opening.worker, opening.hello) == (1, HELLO)


def test_who_has_not_said_hello_opens_nothing() -> None:
    assert table_of(2).opened((ONE, 1)) is None


def test_a_device_keeps_to_its_worker_while_loads_are_alike() -> None:
    table = table_of(2)
    assert table.greeted(ONE, HELLO) == 1
    first = [table.opened((ONE, number)) for number in range(3)]
    assert [each.worker for each in first if each] == [1, 1, 2]
    assert [each.hello for each in first if each] == [None, None, HELLO]  # the other worker has yet to hear of it
    assert table.known_to(ONE) == [1, 2]
    assert not table.forgotten(2, ONE)  # it has a session there
    for number in range(3):
        table.free((ONE, number))
    assert [table.forgotten(worker, ONE) for worker in (1, 2, 2)] == [False, True, False]
    assert table.known_to(ONE) == [1]
    assert not table.forgotten(1, OTHER)


def test_what_a_worker_said_before_it_forgot_a_device_is_over() -> None:
    table = table_of(2)
    table.greeted(ONE, HELLO)
    keys = [(ONE, number) for number in range(4)]
    for key in keys[:3]:
        table.opened(key)
    before = table.openings
    assert table.hears(2, ONE, before)
    table.free(keys[2])
    assert table.forgotten(2, ONE)
    assert not table.hears(2, ONE, before)
    again = table.opened(keys[3])
    assert again is not None and (again.worker, again.hello) == (2, HELLO)
    assert not table.hears(2, ONE, before) and table.hears(2, ONE, again.number)
    assert table.hears(1, ONE, 1)


def test_a_session_ends_by_what_is_said_behind_its_opening() -> None:
    table, key = table_of(1), (ONE, 5)
    table.greeted(ONE, HELLO)
    openings = []
    for _ in range(2):
        opening = table.opened(key)
        assert opening is not None
        openings.append(opening.number)
        assert table.begun(key, 1, opening.number) and not table.begun(key, 2, opening.number)
        table.free(key)
    table.opened(key)
    assert [table.begun(key, 1, number) for number in (*openings, table.openings)] == [False, False, True]


def test_devices_are_spread() -> None:
    table = table_of(2)
    homes = []
    for number in range(4):
        peer = Peer(number + 1, str(number))
        homes.append(table.greeted(peer, HELLO))
        table.opened((peer, 1))
    assert Counter(homes) == {1: 2, 2: 2}


def test_all_workers_are_home_to_as_many_devices() -> None:
    """Whoever comes first: they all say hello when a cloud starts, before any of them asks."""
    table = table_of(4)
    peers = [Peer(number, str(number)) for number in range(40)]
    homes = {peer: table.greeted(peer, HELLO) for peer in peers}
    assert Counter(homes.values()) == dict.fromkeys((1, 2, 3, 4), 10)
    lost = [peer for peer, home in homes.items() if home == 2]
    table.lost(2)
    table.joined(5)
    assert {table.greeted(peer, HELLO) for peer in lost} == {5}
    for peer in lost:
        table.gone(peer)
    assert {table.greeted(Peer(number, str(number)), HELLO) for number in range(50, 60)} == {5}
    table.leaving(5)
    assert 5 not in {table.greeted(Peer(number, str(number)), HELLO) for number in range(50, 60)}
    table.joined(6)
    assert {table.greeted(Peer(number, str(number)), HELLO) for number in range(60, 70)} == {6}


def test_a_key_has_a_share_of_all_workers_together() -> None:
    table = table_of(2, most_per_key=3)
    again = Peer(3, "one")  # another connection of the same device
    for peer in (ONE, again, OTHER):
        table.greeted(peer, HELLO)
    for number in range(2):
        table.opened((ONE, number))
    table.opened((again, 7))
    assert table.full(ONE) and table.full(again) and not table.full(OTHER)
    table.free((again, 7))
    assert not table.full(ONE)


def test_a_worker_is_lost() -> None:
    table = table_of(2)
    table.greeted(ONE, HELLO)
    keys = [(ONE, number) for number in range(4)]
    workers = [opening.worker for key in keys if (opening := table.opened(key)) is not None]
    ended = table.lost(1)
    assert ended == [key for key, worker in zip(keys, workers, strict=True) if worker == 1]
    assert [table.find(key) for key in ended] == [None] * len(ended)
    assert table.known_to(ONE) == [2]
    openings = [table.opened(key) for key in ended]
    assert [opening.worker for opening in openings if opening] == [2] * len(ended)
    table.joined(3)  # in its place
    table.lost(2)
    opening = table.opened((ONE, 9))
    assert opening is not None and (opening.worker, opening.hello) == (3, HELLO)


def test_only_news_are_passed_on() -> None:
    table = table_of(1)
    assert not table.welcomed(ONE, b"before hello")
    table.greeted(ONE, HELLO)
    assert [table.welcomed(ONE, each) for each in (b"a", b"a", b"b", b"a")] == [True, False, True, True]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["greet", "open", "free", "forget", "gone", "join", "lose"]),
            st.integers(1, 4),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_loads_are_what_is_open(events: list[tuple[str, int, int]]) -> None:
    """Beside a model that keeps nothing but who has what."""
    table, held, serving = Table(2), dict[tuple[Peer, int], int](), set[int]()
    peers = [Peer(number, str(number % 3)) for number in range(1, 5)]  # two of them are of one device
    for event, number, session in events:
        peer = peers[number - 1]
        key = peer, session
        match event:
            case "greet":
                answering = table.greeted(peer, HELLO)
                assert answering in serving if serving else answering is None
            case "open" if table.find(key) is None:
                opening = table.opened(key)
                assert opening is None or opening.worker in serving
                if opening is not None:
                    held[key] = opening.worker
            case "free":
                table.free(key)
                held.pop(key, None)
            case "forget":
                assert not table.forgotten(session, peer) or session in serving - {table.greeted(peer, HELLO)}
            case "gone":
                assert set(table.gone(peer)) <= serving
                held = {each: worker for each, worker in held.items() if each[0] != peer}
            case "join":
                table.joined(number)
                serving.add(number)
            case "lose":
                assert set(table.lost(number)) == {each for each, worker in held.items() if worker == number}
                serving.discard(number)
                held = {each: worker for each, worker in held.items() if worker != number}
            case _:
                pass
        counts = Counter(held.values())
        assert {worker: table.load(worker) for worker in table.workers} == {each: counts[each] for each in serving}
        assert all(table.find(each) == worker for each, worker in held.items())
        for each in peers:
            having = {worker for (peer, _), worker in held.items() if peer == each}
            assert having <= set(table.known_to(each)) <= serving
        of_keys = Counter(each[0].key for each in held)
        assert [table.full(each) for each in peers] == [of_keys[each.key] >= 2 for each in peers]


def test_free_twice_is_free() -> None:
    table = table_of(1)
    table.greeted(ONE, HELLO)
    table.opened((ONE, 1))
    for _ in range(2):
        table.free((ONE, 1))
    assert table.load(1) == 0


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_no_worker_has_more_than_its_part_and_the_slack(workers: int) -> None:
    table = table_of(workers)
    for number in range(1, 41):
        peer = Peer(number, str(number % 3))
        table.greeted(peer, HELLO)
        table.opened((peer, 0))
    loads = [table.load(worker) for worker in table.workers]
    assert max(loads) - min(loads) <= 2
