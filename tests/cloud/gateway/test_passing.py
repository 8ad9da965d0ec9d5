"""A gateway and its workers' links, joined by sockets: messages, ends of sessions, and what waits for a device."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from cloud.gateway import channel as channel_module
from cloud.gateway import gateway as gateway_module
from cloud.gateway.channel import Kind, Note, pack_note, unpack_note
from cloud.gateway.gateway import TOLD, Gateway
from common.answer.request import stopping_message
from common.transport.sending import Peer
from proto.framing import encode
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Closed,
    Error,
    Fetched,
    Message,
    Open,
    ProbeReply,
    Sync,
    Welcome,
)
from tests.cloud.gateway.house import FETCH, HELLO, ONE, OTHER, WELCOME, Devices, House
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import wait_until


def test_notes_are_what_they_were() -> None:
    for note in (Note(Kind.READY, value=7), Note(Kind.MESSAGE, ONE, frame=b"x" * 300), Note(Kind.GONE, Peer(3, None))):
        assert unpack_note(pack_note(note)) == note
    for junk in (
        b"",
        b"\x93\x01\x02\x03",
        b"\xc1",
        pack_note(Note(Kind.ALIVE)) + b"more",
        b"\x95\x63\x01\xc0\x00\xc4\x00",
    ):
        with pytest.raises(ValueError):
            unpack_note(junk)


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


@pytest.mark.parametrize("by_device", [True, False])
def test_a_worker_forgets_a_device_that_is_at_home_elsewhere(
    house: House, by_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after its last session there, until the next one; what it still says of the former time is over."""
    monkeypatch.setattr(gateway_module, "KNOWN", 0.02)
    house.says(HELLO)
    home, _, other = (house.opened(number) for number in (1, 2, 3))
    assert home != other
    heard, link = house.heard[other].events, house.links[other]
    late = link._openings[ONE]
    link.send(ONE, Busy(9, 1))
    wait_until(lambda: house.devices.of(Busy) == [Busy(9, 1)], "it is heard")
    if by_device:
        house.says(Cancel(3))
    else:
        link.send(ONE, Closed(3, 0, 0, 0, 0, 0, 0))
    wait_until(lambda: heard[-1] == ("gone", ONE), "it forgets the device")
    house.says(reply := ProbeReply(3, 4, 5))
    wait_until(lambda: house.heard[home].events[-1] == reply, "the one at home goes on")
    assert link.send(ONE, Busy(3, 1)) == 0
    assert house.opened(4) == other
    assert heard[-3:] == [ONE, HELLO, replace(OPEN, session=4)]
    house.gateway.said(other, Note(Kind.MESSAGE, ONE, late, encode(Error(4, "failed", "late"))))
    assert (house.told(), house.gateway.sessions[other]) == ([], 1)
    link.send(ONE, Busy(4, 1))
    wait_until(lambda: house.gateway.sessions[other] == 0, "it ends")
    house.devices.waiting[ONE] = 0
    wait_until(lambda: house.links[home].queued(ONE) == 0 == link.queued(ONE), "nothing waits")


def test_the_end_of_a_session_ends_no_later_one_of_its_number(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has cancelled it and opened another one is not told of its end in between."""
    house.says(HELLO)
    worker, free = house.opened(1), threading.Event()
    heard, link = house.heard[worker], house.links[worker]
    note = heard.on_message

    def refusing(peer: Peer, message: Message, size: int) -> None:
        if isinstance(message, Open) and message.method == "nonsense":
            free.wait(60.0)
            link.send(peer, Error(message.session, "unservable", "no"))
        note(peer, message, size)

    monkeypatch.setattr(heard, "on_message", refusing)
    house.says(replace(OPEN, session=5, method="nonsense"))
    house.says(Cancel(5))
    house.says(again := replace(OPEN, session=5))
    free.set()
    wait_until(lambda: heard.events[-1] == again and house.told() == ["unservable"], "all is heard")
    assert house.gateway.sessions[worker] == 2
    link.send(ONE, Closed(5, 0, 0, 0, 0, 0, 0))
    wait_until(lambda: house.gateway.sessions[worker] == 1, "its own end ends it")


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
    wait_until(lambda: house.heard[1].events == [ONE, HELLO, HELLO], "the next one hears of it")
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


def test_what_could_not_be_told_is_told_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much waits for the worker that it is not told what waits for a device no more."""
    house.says(HELLO)
    link = house.links[house.opened(1)]
    send, dropped = house.channel.send, list[Note]()

    def full(note: Note, number: int = 0) -> bool:
        if note.kind is Kind.PASSED and not dropped:
            dropped.append(note)
            return False
        return send(note, number)

    monkeypatch.setattr(house.channel, "send", full)
    link.send(ONE, Fetched(1, 0, 1, 0, 1, 0.5, "t", b"x"))
    wait_until(lambda: bool(house.devices.of(Fetched)), "it is at the gateway")
    house.devices.waiting[ONE] = 0
    wait_until(lambda: bool(dropped), "it has gone, which is not told")
    wait_until(lambda: link.queued(ONE) == 0, "it is told")


def test_what_could_not_be_confirmed_is_confirmed_with_what_follows(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would count as waiting for the worker as long as that lives."""
    monkeypatch.setattr(channel_module, "_TAKEN", 1)  # each by itself
    house.says(HELLO)
    worker = house.opened(1)
    channel, dropped = house.links[worker]._channel, list[Note]()
    wait_until(lambda: house.channel._outbox.pending(worker) == 0, "all so far is confirmed")
    send = channel.send

    def full(note: Note, number: int = 0) -> bool:
        if note.kind is Kind.TAKEN and not dropped:
            dropped.append(note)
            return False
        return send(note, number)

    monkeypatch.setattr(channel, "send", full)
    house.says(Sync(1, 0, (1,), "cloud", False))
    wait_until(lambda: bool(dropped), "one is not confirmed")
    house.says(Sync(1, 0, (1, 2), "cloud", False))
    wait_until(lambda: house.channel._outbox.pending(worker) == 0, "it is, with the next")


def test_the_end_is_told(house: House) -> None:
    house.says(HELLO)
    worker = house.opened(1)
    house.gateway.close()
    assert house.told() == ["stopping"]
    house.links[worker].send(ONE, Busy(1, 1))
    house.links[worker].ready(100)  # behind it
    wait_until(lambda: house.readies == 3, "what it has said was heard")
    house.says(replace(OPEN, session=2))
    assert [message for _, message in house.devices.sent] == [stopping_message(), Busy(2, 1_000_000)]


class Interrupted:
    """A way to the workers. While it takes the hello of `ONE`, the devices' link would tell that `OTHER` is gone."""

    def __init__(self) -> None:
        self.gateway = Gateway(self, most_per_key=3)
        self.gateway.link = Devices()
        self.sent: list[Note] = []
        self.leaving = threading.Thread(target=self.gateway.on_gone, args=(OTHER,))

    def full(self, number: int, peer: Peer) -> bool:
        return False

    def send(self, note: Note, number: int) -> bool:
        if note.peer == ONE:
            self.leaving.start()
            self.leaving.join(0.2)
        self.sent.append(note)
        return True


def test_a_device_that_leaves_while_another_is_greeted_does_not_come_back() -> None:
    workers = Interrupted()
    for peer in (ONE, OTHER):
        workers.gateway.on_message(peer, HELLO, 0)
    workers.gateway.joined(1)
    workers.leaving.join()
    assert workers.gateway.devices == 1
    assert [note.kind for note in workers.sent if note.peer == OTHER] in ([], [Kind.MESSAGE, Kind.GONE])
