"""Shares of a worker: what one device may have of its thread, and what may wait for it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.gateway.channel import Kind, Note
from common.transport.sending import Peer
from proto.framing import encode
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Message,
    Open,
    Sync,
)
from tests.cloud.gateway.house import FETCH, HELLO, ONE, OTHER, House
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import wait_until


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
    monkeypatch.setattr("cloud.gateway.channel.time", clock)
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
    """Else the memory would fill with what devices say. Ends of sessions, and of devices, are told still."""
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
        assert house.channel.full(1, ONE)
        house.says(replace(OPEN, session=2))
        assert house.devices.of(Busy) == [Busy(2, 1_000_000)]
        assert house.gateway.sessions == {1: 1}
        house.says(Cancel(1))
        house.gateway.on_gone(OTHER)
        free.set()
        wait_until(lambda: heard.events[-2:] == [Cancel(1), ("gone", OTHER)], "it has taken in what there was")
        assert len(heard.events) < 200
        wait_until(lambda: not house.channel.full(1, ONE), "there is room again")
        house.opened(3)
    finally:
        free.set()
        house.close()


def test_one_device_has_no_more_than_its_share_of_what_waits(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker stands still, others' messages wait for it beside those of one that says too much."""
    monkeypatch.setattr("cloud.gateway.channel.MOST_OF_ONE", 2**18)
    house.gateway.lost(2)
    heard, free = house.heard[1], threading.Event()
    note = heard.on_message

    def wait(peer: Peer, message: Message, size: int) -> None:
        note(peer, message, size)
        free.wait(60.0)

    monkeypatch.setattr(heard, "on_message", wait)
    again = Peer(7, ONE.key)
    for peer in (ONE, again, OTHER):
        house.says(HELLO, peer)
    house.says(replace(OPEN, session=1))
    house.says(replace(OPEN, session=2), OTHER)
    for number in range(1000):
        house.says(Sync(1, number, (), "cloud", False))
    house.says(replace(OPEN, session=3), again)
    assert house.devices.of(Busy) == [Busy(3, 1_000_000)]  # another connection is the same device
    house.says(sync := Sync(2, 0, (7,), "cloud", True), OTHER)
    free.set()
    wait_until(lambda: heard.events[-1:] == [sync], "it is heard")
    assert 50 < len(heard.events) < 100
    wait_until(lambda: not house.channel.full(1, ONE), "there is room again")
    house.opened(4)
    house.channel.turns.perform(lambda: house.channel.shut(1))
    assert not house.channel._shares


def test_a_message_that_a_worker_can_not_take_in_costs_no_other_its_turn(house: House) -> None:
    def broken(peer: Peer, message: Message, size: int) -> None:
        raise RuntimeError

    house.heard[1].on_message = broken  # type: ignore[method-assign]
    house.links[1]._taken(0, Note(Kind.MESSAGE, ONE, 1, encode(HELLO)))
    assert house.links[1]._channel.turns.mishaps.count == 1
