"""Bounds on the bytes under way between two links, although ZeroMQ takes in whatever comes."""

from __future__ import annotations

import threading
from contextlib import closing, suppress

import pytest
import zmq

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys
from common.transport.sending import PATIENCE, Flow, Limits, Peer, Quota, SendWindow, reply_to_probe
from proto.framing import encode
from proto.messages import SEQUENCES, Cancel, Message, Probe, ProbeReply
from tests.attacks.dropped_floods import LyingCloud, frame
from tests.common.transport.support import SECONDS, RawPeers, Recorder, draft
from tests.common.transport.test_front_door import pair

LOCAL = "tcp://127.0.0.1:0"
PART = bytes(60_000)

# The window.


def test_a_window_fills_opens_with_replies_and_asks_again_where_none_comes() -> None:
    window = SendWindow(Limits(window_bytes=800), 0.0)
    probes: list[Probe] = []

    def send(size: int, now: float) -> bool:
        if not window.allows(size, now):
            return False
        window.note(size, now)
        if (probe := window.probe(now)) is not None:
            probes.append(probe)
        return True

    assert [send(100, 0.0) for _ in range(9)] == [True] * 8 + [False]
    assert len(probes) == 8  # one for each eighth
    assert window.probe(PATIENCE / 2) is None
    assert window.replied(reply_to_probe(probes[3], 0))  # and with it those before
    assert [send(100, 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert not window.replied(ProbeReply(3, 0, 0))  # of those who measure the link
    assert window.replied(ProbeReply(SEQUENCES + 77, 0, 0))  # invented: changes nothing
    assert not send(100, 0.0)
    again = window.probe(PATIENCE + 1)
    assert again is not None and again not in probes
    assert window.replied(reply_to_probe(again, 0))
    assert send(5000, 1.0)  # larger than the window: alone
    assert not send(1, 1.0)


def test_a_window_lets_no_more_through_per_second_than_a_peer_accepts() -> None:
    limits = Limits(window_bytes=10**9, bytes_per_second=1000.0, bytes_burst=5000.0)
    window, quota = SendWindow(limits, 0.0), Quota(limits, 0.0)
    sent = 0
    for tick in range(100):
        while window.allows(100, tick / 10):
            window.note(100, tick / 10)
            assert quota.take(tick / 10, 100)
            sent += 100
    assert sent == pytest.approx(5000 + 9900, abs=200)


def test_a_receiver_that_is_busy_holds_the_sender_back_and_loses_nothing() -> None:
    """Sixteen times the window, while the receiver's thread stands still."""
    limits = Limits(window_bytes=2**20, queue_bytes=2**20)
    go_on, told = threading.Event(), list[bool]()

    def hold(peer: Peer, message: Message) -> None:
        told.append(go_on.wait(SECONDS))

    cloud_side, device = Recorder(hold), Recorder()
    with (
        CloudLink(LOCAL, None, cloud_side, limits) as cloud,
        DeviceLink(cloud.address, None, device, limits) as link,
    ):
        device.wait(lambda: device.connected)
        taken = 0

        def full() -> bool:
            nonlocal taken
            while link.send(draft(taken, PART)):
                taken += 1
            return link.counters().sent.get("Draft", Flow()).bytes > limits.window_bytes - 2 * len(PART)

        device.wait_polling(full)
        for _ in range(50):
            full()
        assert taken * len(PART) <= limits.window_bytes + limits.queue_bytes
        assert link.counters().sent["Draft"].bytes <= limits.window_bytes
        go_on.set()
        while taken < 280:
            taken += bool(link.send(draft(taken, PART)))
        cloud_side.wait(lambda: len(cloud_side.messages) == taken or cloud_side.gone, 2 * SECONDS)
        assert not cloud_side.gone, (cloud.counters(), link.counters())
        assert cloud_side.received() == [draft(position, PART) for position in range(taken)]
        assert all(told)
        assert not device.gone and not device.received()  # replies to the link's own probes are for the link
        assert cloud.counters().disconnected == cloud.counters().over_quota == 0


# Those who take no notice of it.


def test_a_flood_is_cut_while_the_links_thread_stands_still(raw_peers: RawPeers) -> None:
    go_on, told = threading.Event(), list[bool]()

    def hold(peer: Peer, message: Message) -> None:
        if message == Cancel(1):
            told.append(go_on.wait(SECONDS))

    cloud_side, device = Recorder(hold), Recorder()
    with CloudLink(LOCAL, None, cloud_side) as cloud, DeviceLink(cloud.address, None, device) as link:
        device.wait(lambda: device.connected)
        attacker = raw_peers(cloud.address)
        attacker.send(encode(Cancel(1)))
        cloud_side.wait(lambda: cloud_side.messages)
        block = frame(encode(draft(1, PART))) * 10
        with suppress(ConnectionError):
            for _ in range(10_000):
                attacker.connection.sendall(block)
        assert attacker.closed_by_peer()
        go_on.set()
        cloud_side.wait(lambda: cloud_side.gone)
        assert told == [True]
        link.send(Cancel(2))
        cloud_side.wait(lambda: Cancel(2) in cloud_side.received())
        assert len(cloud_side.messages) == 2  # what the attacker sent beside is not read any more
        assert not device.gone
        assert cloud.counters().disconnected == 1


def test_who_goes_on_beyond_the_quota_is_cut_and_his_key_stays_outside_for_a_growing_while() -> None:
    limits = Limits(messages_per_second=1.0, messages_burst=20.0, refused_burst=50.0, pause_first=8.0)
    cloud_pair, bad_pair, good_pair = pair(), pair(), pair()
    keys = CloudKeys(cloud_pair, lambda key: key in (bad_pair.public, good_pair.public))
    quick = Limits(backoff_last=0.05)
    cloud_side, bad, other, good = Recorder(), Recorder(), Recorder(), Recorder()
    with (
        CloudLink(LOCAL, keys, cloud_side, limits) as cloud,
        DeviceLink(cloud.address, DeviceKeys(bad_pair, cloud_pair.public), bad, quick) as bad_link,
        DeviceLink(cloud.address, DeviceKeys(bad_pair, cloud_pair.public), other, quick) as other_link,
        DeviceLink(cloud.address, DeviceKeys(good_pair, cloud_pair.public), good) as good_link,
    ):
        for side, link in ((bad, bad_link), (other, other_link), (good, good_link)):
            side.wait(lambda side=side: side.connected)  # type: ignore[misc]
            link.send(Cancel(300))
        cloud_side.wait(lambda: len(cloud_side.connected) == 3)
        for session in range(1, 201):
            bad_link.send(Cancel(session))
        bad.wait(lambda: bad.gone)
        other.wait(lambda: other.gone)  # the same key
        refused = cloud.counters().refused
        cloud_side.wait_polling(lambda: cloud.counters().refused > refused + 1)  # it comes again, in vain
        bad.wait_polling(lambda: "blocks this device for a while" in bad_link.status().detail)
        assert len(bad.connected) == 1
        bad.wait(lambda: len(bad.connected) == 2, 2 * SECONDS)  # until it may
        good_link.send(Cancel(1))
        cloud_side.wait(lambda: Cancel(1) in cloud_side.received())
        assert not good.gone


def test_a_device_leaves_a_cloud_alone_that_floods_it_and_says_so() -> None:
    class Greeting(Recorder):
        def on_connected(self, peer: Peer) -> None:
            link.send(Cancel(1))
            super().on_connected(peer)

    device, cloud = Greeting(), LyingCloud()
    limits = Limits(pause_first=0.5, pause_last=0.5, window_bytes=2**20)
    block = frame(encode(draft(1, PART))) * 10
    with closing(cloud), DeviceLink(cloud.address, None, device, limits) as link:
        for count in (1, 2):
            with cloud.accept() as connection, suppress(ConnectionError):
                while True:
                    connection.sendall(block)
            device.wait(lambda count=count: len(device.gone) == count)  # type: ignore[misc]
            assert link.status().state == "away"
            assert "sent more than this device accepts" in link.status().detail
        assert link.counters().disconnected == 2


def test_what_a_connection_left_behind_is_not_of_the_next_one_with_its_descriptor() -> None:
    """Messages of a connection that has ended may be read when its descriptor is another one's already."""

    class Frame:
        def __init__(self, routing: bytes) -> None:
            self.bytes = routing

        def get(self, name: str) -> object:
            return 5 if name == "__fd" else ""

    cloud_side = Recorder()
    link = CloudLink(LOCAL, None, cloud_side)
    try:
        for routing in (b"old", b"new"):
            link._live[5] = None
            assert link._sender(Frame(routing), 0.0) is not None  # type: ignore[arg-type]
            link._on_event(zmq.EVENT_DISCONNECTED, 5, 0.0) if routing == b"old" else None
            link._on_turn()
        assert link._is_over(Frame(b"old"))  # type: ignore[arg-type]
        assert not link._is_over(Frame(b"new"))  # type: ignore[arg-type]
        link._on_emptied()
        assert not link._gone
        assert [peer.connection for peer in cloud_side.gone] == [1]
    finally:
        link.close()
