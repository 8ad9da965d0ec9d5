"""A gateway and its workers' links, joined by sockets: messages, ends of sessions, and what waits for a device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cloud.gateway.channel import Channel, Kind, Note, packed, unpacked
from cloud.gateway.gateway import TOLD, Gateway
from cloud.gateway.worker_link import WorkerLink
from common.transport.interface import Peer
from proto.errors import ProtocolError
from proto.framing import decode, encode
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Closed,
    Error,
    Fetch,
    Fetched,
    Hello,
    Message,
    Open,
    ProbeReply,
    Sync,
    Welcome,
)
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import wait_until

ONE, OTHER = Peer(1, "one"), Peer(2, "other")
HELLO = Hello("device", "m", "t", 100, "s", "e", ("race",), 0.1, 0.0, (), "", "near")
WELCOME = Welcome(replace(HELLO, role="cloud", library="l"), 8, 64, 1000)
FETCH = Fetch(9, "?", 1, "text")


@dataclass
class Devices:
    """The devices' link, whose messages are taken from it when a test wants it."""

    sent: list[tuple[Peer, Message]] = field(default_factory=list)
    waiting: dict[Peer, int] = field(default_factory=dict)

    def send(self, peer: Peer, message: Message) -> int:
        self.sent.append((peer, message))
        return 1

    def forward(self, peer: Peer, kind: str, frame: bytes) -> int:
        self.waiting[peer] = self.waiting.get(peer, 0) + len(frame)
        return self.send(peer, decode(frame, 2**21))

    def queued(self, peer: Peer) -> int:
        return self.waiting.get(peer, 0)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.sent if isinstance(message, kind)]


@dataclass
class Heard:
    """The sessions of a worker, which note what they hear."""

    events: list[object] = field(default_factory=list)

    def on_connected(self, peer: Peer) -> None:
        self.events.append(peer)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        self.events.append(message)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        raise AssertionError("the gateway lets nothing through that is not valid")

    def on_gone(self, peer: Peer) -> None:
        self.events.append(("gone", peer))


class House:
    """A gateway with two workers, in one process."""

    def __init__(self, folder: Path) -> None:
        address = f"ipc://{folder / 's'}"
        self.devices = Devices()
        self._attached = threading.Event()
        self.channel = Channel(address, self._said, tick=self._tick, period=0.01)
        self.gateway = Gateway(self.channel, most_per_key=3)
        self.gateway.link = self.devices
        self.heard = {number: Heard() for number in (1, 2)}
        self.links = {number: WorkerLink(address, number, heard) for number, heard in self.heard.items()}
        self.channel.start()
        for number, link in self.links.items():
            self.channel.open(number)
            link.start()
            link.ready(100)
        wait_until(lambda: list(self.gateway.sessions) == [1, 2], "both workers serve")

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self.channel.close()

    def says(self, message: Message, peer: Peer = ONE) -> None:
        self.gateway.on_message(peer, message, 0)

    def told(self) -> list[str]:
        """Codes of the errors that devices have got."""
        return [error.code for error in self.devices.of(Error) if isinstance(error, Error)]

    def opened(self, session: int, peer: Peer = ONE) -> int:
        """The worker that hears of a session."""
        self.says(replace(OPEN, session=session), peer)
        wait_until(lambda: self.worker_of(session) is not None, "a worker hears of it")
        worker = self.worker_of(session)
        assert worker is not None
        return worker

    def worker_of(self, session: int) -> int | None:
        found = [
            number
            for number, heard in self.heard.items()
            if any(isinstance(each, Open | Fetch) and each.session == session for each in heard.events)
        ]
        return found[-1] if found else None

    def _said(self, number: int, note: Note) -> None:
        if note.kind is Kind.READY:
            self.gateway.joined(number)
        else:
            self.gateway.said(number, note)

    def _tick(self) -> None:
        self.gateway.tick()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def test_notes_are_what_they_were() -> None:
    for note in (Note(Kind.READY, value=7), Note(Kind.MESSAGE, ONE, frame=b"x" * 300), Note(Kind.GONE, Peer(3, None))):
        assert unpacked(packed(note)) == note
    for junk in (
        b"",
        b"\x93\x01\x02\x03",
        b"\xc1",
        packed(Note(Kind.ALIVE)) + b"more",
        b"\x95\x63\x01\xc0\x00\xc4\x00",
    ):
        with pytest.raises(ValueError):
            unpacked(junk)


def test_a_session_from_its_begin_to_its_end(house: House) -> None:
    house.says(HELLO)
    worker = house.opened(5)
    heard, link = house.heard[worker].events, house.links[worker]
    assert heard[:2] == [ONE, HELLO]
    link.send(ONE, WELCOME)
    house.says(Sync(5, 0, (1, 2), "cloud", False))
    wait_until(lambda: isinstance(heard[-1], Sync), "it hears more")
    house.says(Close(5, 2))
    link.send(ONE, Closed(5, 1, 1, 0, 0, 0, 0))
    wait_until(lambda: bool(house.devices.of(Closed)), "the device hears of the end")
    assert house.devices.of(Welcome) == [WELCOME]
    assert sum(house.gateway.sessions.values()) == 0
    house.says(Sync(5, 0, (), "cloud", True))
    (unknown,) = house.devices.of(Error)
    assert isinstance(unknown, Error) and unknown.code == "unknown-session"


@pytest.mark.parametrize("last", [Busy(5, 1), Error(5, "failed", "no"), Closed(5, 0, 0, 0, 0, 0, 0)])
def test_what_ends_a_session(house: House, last: Message) -> None:
    house.says(HELLO)
    house.links[house.opened(5)].send(ONE, last)
    wait_until(lambda: sum(house.gateway.sessions.values()) == 0, "its place is free")


def test_a_device_that_leaves(house: House) -> None:
    house.says(HELLO)
    workers = {house.opened(number) for number in (1, 2, 3)}
    assert workers == {1, 2}
    house.gateway.on_gone(ONE)
    for worker in workers:
        wait_until(lambda worker=worker: house.heard[worker].events[-1] == ("gone", ONE), "its workers hear of it")  # type: ignore[misc]
    assert sum(house.gateway.sessions.values()) == 0
    assert house.links[1].send(ONE, Busy(1, 1)) == 0  # nobody is there


def test_cancelled(house: House) -> None:
    house.says(HELLO)
    worker = house.opened(1)
    house.says(Cancel(1))
    wait_until(lambda: house.heard[worker].events[-1] == Cancel(1), "its worker hears of it")
    assert sum(house.gateway.sessions.values()) == 0


def test_a_fetched_document_ends_its_session(house: House) -> None:
    house.says(HELLO)
    house.says(FETCH)
    wait_until(lambda: house.worker_of(9) is not None, "a worker hears of it")
    worker = house.worker_of(9)
    assert worker is not None
    parts = [Fetched(9, index, 2, part, 2, 0.5, "t", b"x") for index in range(2) for part in range(2)]
    for part in parts:
        assert sum(house.gateway.sessions.values()) == 1
        house.links[worker].send(ONE, part)
        wait_until(lambda part=part: house.devices.of(Fetched)[-1:] == [part], "it comes")  # type: ignore[misc]
    wait_until(lambda: sum(house.gateway.sessions.values()) == 0, "its place is free")


def test_a_document_that_nobody_could_hand_over(house: House) -> None:
    house.says(HELLO)
    for worker in (1, 2):
        house.gateway.lost(worker)
    house.says(FETCH)
    assert len(house.devices.of(Busy)) == 1
    assert sum(house.gateway.sessions.values()) == 0


def test_passages_of_an_answer_end_nothing(house: House) -> None:
    house.says(HELLO)
    worker = house.opened(1)
    house.links[worker].send(ONE, Fetched(1, 0, 0, 0, 0, 0.0, "", b""))
    wait_until(lambda: bool(house.devices.of(Fetched)), "it comes")
    assert sum(house.gateway.sessions.values()) == 1


def test_a_worker_is_lost(house: House) -> None:
    """Its devices hear that their sessions are unknown, open them again, and the other worker has them."""
    house.says(HELLO)
    worker = house.opened(1)
    house.links[worker].send(ONE, WELCOME)
    wait_until(lambda: bool(house.devices.of(Welcome)), "it is welcomed")
    house.gateway.lost(worker)
    (unknown,) = house.devices.of(Error)
    assert isinstance(unknown, Error) and (unknown.session, unknown.code) == (1, "unknown-session")
    house.links[worker].send(ONE, Error(1, "failed", "last words"))
    house.says(replace(OPEN, session=1))
    other = house.heard[3 - worker].events
    wait_until(lambda: any(isinstance(each, Open) for each in other), "the other one has it")
    assert other[:2] == [ONE, HELLO]
    house.gateway.lost(3 - worker)
    house.says(replace(OPEN, session=2))
    assert len(house.devices.of(Busy)) == 1
    house.says(HELLO, OTHER)
    assert house.told() == ["unknown-session", "unknown-session", "starting"]


def test_a_device_that_came_while_there_was_no_worker(house: House) -> None:
    """It has said hello, and is not asked to say it again: the next worker welcomes it."""
    for worker in (1, 2):
        house.gateway.lost(worker)
    house.says(HELLO)
    assert house.told() == ["starting"]
    house.gateway.joined(2)
    wait_until(lambda: house.heard[2].events == [ONE, HELLO], "the new one hears of it")
    house.links[2].send(ONE, WELCOME)
    wait_until(lambda: house.devices.of(Welcome) == [WELCOME], "it is welcomed")
    house.gateway.joined(1)
    house.gateway.lost(1)
    assert (house.told(), house.heard[1].events) == (["starting"], [])  # nothing new for those who are welcomed


def test_a_worker_that_is_lost_before_it_has_welcomed_a_device(house: House) -> None:
    house.says(HELLO)
    wait_until(lambda: house.heard[1].events == [ONE, HELLO], "one hears of it")
    house.gateway.lost(1)
    wait_until(lambda: house.heard[2].events == [ONE, HELLO], "so does the other one, in its place")
    house.links[1].send(ONE, WELCOME)  # last words
    house.gateway.lost(2)
    assert (house.told(), house.devices.of(Welcome)) == (["starting"], [])
    house.gateway.joined(1)
    house.links[1].send(ONE, WELCOME)
    wait_until(lambda: house.devices.of(Welcome) == [WELCOME], "it is welcomed")


def test_a_device_that_waits_is_told_of_the_end_only(house: House) -> None:
    house.says(HELLO)
    house.gateway.close()
    for worker in (1, 2):
        house.gateway.lost(worker)
    assert house.told() == ["stopping"]


def test_a_key_has_places_of_its_own(house: House) -> None:
    for peer in (ONE, Peer(7, "one"), OTHER):
        house.says(HELLO, peer)
    for number in range(3):
        house.opened(number + 1)
    house.says(replace(OPEN, session=4))
    house.says(replace(OPEN, session=5), Peer(7, "one"))
    assert [type(message) for _, message in house.devices.sent[-2:]] == [Busy, Busy]
    assert house.opened(6, OTHER) in (1, 2)


def test_nobody_speaks_for_another_device(house: House) -> None:
    house.says(HELLO)
    house.says(HELLO, OTHER)
    worker = house.opened(1)
    before = len(house.heard[worker].events)
    house.says(Sync(1, 0, (7,), "cloud", True), OTHER)
    house.says(Cancel(1), OTHER)
    house.says(Close(1, 2), OTHER)
    assert sum(house.gateway.sessions.values()) == 1
    house.says(Sync(1, 0, (8,), "cloud", True))
    wait_until(lambda: len(house.heard[worker].events) > before, "its own words come")
    assert [each for each in house.heard[worker].events if isinstance(each, Sync)] == [Sync(1, 0, (8,), "cloud", True)]


def test_replies_to_probes_go_to_those_that_know_the_device(house: House) -> None:
    house.says(HELLO)
    worker = house.opened(1)
    reply = ProbeReply(3, 4, 5)
    house.says(reply)
    wait_until(lambda: house.heard[worker].events[-1] == reply, "it comes")
    assert house.heard[3 - worker].events == []


class Clock:
    """The time of a worker's thread, which passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.worked = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.worked


def test_a_device_has_no_more_than_its_share_of_a_workers_thread(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else it asks for is refused until it is even; the ends of its sessions and other devices are heard."""
    clock = Clock()
    monkeypatch.setattr("cloud.gateway.worker_link.time", clock)
    house.gateway.lost(2)  # both devices are with the other one
    heard = house.heard[1]
    note = heard.on_message

    def work(peer: Peer, message: Message, size: int) -> None:
        clock.worked += 2.0 * isinstance(message, Open)
        note(peer, message, size)

    monkeypatch.setattr(heard, "on_message", work)
    house.says(HELLO)
    house.opened(1)  # takes a second more than there is at once
    house.says(replace(OPEN, session=2))
    wait_until(lambda: bool(house.devices.of(Busy)), "it is refused")
    assert house.devices.of(Busy) == [Busy(2, 2_000_000)]
    house.says(Sync(1, 0, (7,), "cloud", True))
    wait_until(lambda: house.told() == ["quota"], "it is told")
    house.says(Close(1, 2))
    again = Peer(7, ONE.key)
    house.says(HELLO, again)
    house.says(FETCH, again)
    wait_until(lambda: len(house.devices.of(Busy)) == 2, "so is its other connection")
    house.says(HELLO, OTHER)
    house.opened(3, OTHER)
    assert heard.events == [
        *(ONE, HELLO, replace(OPEN, session=1), Cancel(2), Close(1, 2)),
        *(again, HELLO, Cancel(FETCH.session), OTHER, HELLO, replace(OPEN, session=3)),
    ]
    assert house.gateway.sessions == {1: 2}
    clock.now += 2.5
    house.opened(4)


def test_a_worker_that_takes_nothing_in_is_sent_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What devices say would fill the memory. Ends of sessions, and of devices, are told still."""
    monkeypatch.setattr("cloud.gateway.channel.MOST_BYTES", 2**20)
    house, free = House(tmp_path), threading.Event()
    heard = house.heard[1]
    note = heard.on_message

    def wait(peer: Peer, message: Message, size: int) -> None:
        note(peer, message, size)
        free.wait(60.0)

    monkeypatch.setattr(heard, "on_message", wait)
    try:
        house.gateway.lost(2)
        house.says(HELLO)
        house.says(HELLO, OTHER)
        house.says(replace(OPEN, session=1))
        for number in range(1000):
            house.says(Sync(1, number, (), "cloud", False))
        assert house.channel.full(1)
        house.says(replace(OPEN, session=2))
        assert house.devices.of(Busy) == [Busy(2, 1_000_000)]
        assert house.gateway.sessions == {1: 1}
        house.says(Cancel(1))
        house.gateway.on_gone(OTHER)
        free.set()
        wait_until(lambda: heard.events[-2:] == [Cancel(1), ("gone", OTHER)], "it has taken in what there was")
        assert len(heard.events) < 200
        wait_until(lambda: not house.channel.full(1), "there is room again")
        house.opened(3)
    finally:
        free.set()
        house.close()


def test_a_message_that_a_worker_can_not_take_in_costs_no_other_its_turn(house: House) -> None:
    def broken(peer: Peer, message: Message, size: int) -> None:
        raise RuntimeError

    house.heard[1].on_message = broken  # type: ignore[method-assign]
    house.links[1]._taken(0, Note(Kind.MESSAGE, ONE, frame=encode(HELLO)))
    assert house.links[1]._channel.turns.mishaps.count == 1


def test_who_has_not_said_hello_is_told(house: House) -> None:
    house.says(replace(OPEN, session=1))
    house.says(FETCH)
    assert (house.told(), house.devices.of(Busy), house.gateway.busy) == (["no-handshake"] * 2, [], 0)


def test_what_was_not_sent_does_not_wait(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.says(HELLO)
    link = house.links[house.opened(1)]
    monkeypatch.setattr(link._channel, "send", lambda note: False)
    assert link.send(ONE, Busy(1, 1)) == 0
    assert link.queued(ONE) == 0


def test_what_waits_for_a_device_is_known_to_its_worker(house: House) -> None:
    """A slow device's documents wait with the worker, not all at the gateway."""
    house.says(HELLO)
    worker = house.opened(1)
    link, size = house.links[worker], 2**15
    part = Fetched(1, 0, 1, 0, 1, 0.5, "t", b"x" * size)
    for _ in range(8):
        assert link.send(ONE, part) > size
    assert link.queued(ONE) > 8 * size
    wait_until(lambda: len(house.devices.of(Fetched)) == 8, "all is at the gateway")
    assert link.queued(ONE) > 8 * size  # where it waits for the device
    house.devices.waiting[ONE] -= 2 * TOLD
    wait_until(lambda: link.queued(ONE) < 8 * size - TOLD, "a part has gone")
    house.devices.waiting[ONE] = 0
    wait_until(lambda: link.queued(ONE) == 0, "all has gone")


def test_the_end_is_told(house: House) -> None:
    house.says(HELLO)
    worker = house.opened(1)
    house.gateway.close()
    assert house.told() == ["stopping"]
    house.links[worker].send(ONE, Busy(1, 1))
    house.says(replace(OPEN, session=2))
    assert isinstance(house.devices.sent[-1][1], Busy)
