"""Attacks of one peer must not hurt another, nor the memory."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
import zmq

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.sending import Limits, Peer
from proto.framing import decode, encode
from proto.messages import Cancel, Draft, Error, Message
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.common.transport.support import Echo, RawPeers, Recorder, draft, port_of

LOCAL = "tcp://127.0.0.1:0"
FLOOD = 4500
TRIES = 3
DRAFTS = 10  # answered while the flood is taken in
DEAREST = 0.001  # seconds of processor time for a message of it, drafts included


@pytest.mark.timeout(400)  # whoever works through a flood beside other work needs the time
def test_floods_of_malformed_messages_are_counted_and_others_do_not_notice(raw_peers: RawPeers) -> None:
    """On a machine with other work, so much may wait that the attacker is cut, or hardly a draft is sent meanwhile:
    then there is another one.
    """
    assert any(taken_in(raw_peers) for _ in range(TRIES))


def taken_in(raw_peers: RawPeers) -> bool:
    """A flood beside drafts; whether it was taken in whole, and enough of them were answered meanwhile."""
    echo, device = Echo(), Recorder()
    junk = [b"", b"\x93", b"\xc1" * 50, b"\x92\xcd\xff\xff\x01", b"\xdd\xff\xff\xff\xff", b"x" * 2000]
    with (
        # An attacker answers no heartbeats: on a machine with other work it would be cut for these.
        CloudLink(LOCAL, None, echo, Limits(heartbeat_timeout=400.0)) as cloud,
        DeviceLink(cloud.address, None, device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        attacker = raw_peers(cloud.address)
        sent: list[bytes] = []

        def flood() -> None:
            while len(sent) < FLOOD:
                burst = [junk[(len(sent) + index) % len(junk)] for index in range(50)]
                with suppress(OSError):  # it may be cut
                    attacker.connection.sendall(b"".join(map(attacker.frame, burst)))
                sent.extend(burst)

        thread = threading.Thread(target=flood)
        begun, spent = time.perf_counter(), time.process_time()
        thread.start()
        overtaken: list[int] = []  # by how many malformed messages, for each draft

        def taken() -> int:
            """On a machine with other work, they cost the attacker more than its share of the link's time."""
            counters = cloud.counters()
            return counters.malformed + counters.over_quota

        while taken() < FLOOD and not cloud.counters().disconnected:
            position, before = len(overtaken), taken()
            link.send(draft(position))
            device.wait(lambda position=position: len(device.messages) > position)  # type: ignore[misc]
            overtaken.append(taken() - before)
        thread.join()
        if cloud.counters().disconnected:
            return False  # the drafts came through all the same
        seconds, spent = time.perf_counter() - begun, time.process_time() - spent
        # Counted, for what the clock tells is also of the machine: of a flood that goes first, drafts see the end only.
        typical = sorted(overtaken)[len(overtaken) // 2]
        print(f"{len(overtaken)} drafts in {seconds:.2f} s, {spent:.2f} s of work, each after {typical} others")
        if len(overtaken) <= DRAFTS:
            return False  # as where whoever sends them gets no turn
        assert spent / FLOOD < DEAREST
        counters = cloud.counters()
        assert taken() == len(sent)
        assert counters.malformed == len(echo.invalid)
        assert counters.received["Draft"].messages == len(overtaken)
        # Rate limited: 5 at once and 5 per second.
        assert 1 <= counters.sent["Error"].messages <= 5 + 5 * seconds + 1
        assert not echo.gone
        return True


def test_a_malformed_message_is_answered_with_what_was_wrong() -> None:
    echo = Echo()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with CloudLink(LOCAL, None, echo) as cloud:
        dealer = context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(cloud.address)
        for frames in ([b"junk"], [b"a"] * 1000, [b""]):
            dealer.send_multipart(frames)
            assert dealer.poll(30_000)
            answer = decode(dealer.recv())
            assert isinstance(answer, Error)
            assert (answer.session, answer.code) == (0, "malformed")
        dealer.send(encode(draft(1)))  # and the connection goes on
        echo.wait(lambda: echo.received())
        dealer.close()
    context.term()


def test_a_device_survives_a_cloud_that_sends_junk() -> None:
    device = Recorder()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    port = router.bind_to_random_port("tcp://127.0.0.1")
    with DeviceLink(f"tcp://127.0.0.1:{port}", None, device) as link:
        device.wait(lambda: device.connected)
        link.send(Cancel(1))
        assert router.poll(30_000)
        identity = router.recv_multipart()[0]
        router.send_multipart([identity, b"junk"])
        router.send_multipart([identity, encode(Cancel(2))])
        device.wait(lambda: device.received() == [Cancel(2)])
        assert len(device.invalid) == link.counters().malformed == 1
        router.close()
    context.term()


def test_a_frame_above_the_limit_ends_its_connection_only(raw_peers: RawPeers) -> None:
    echo, device = Echo(), Recorder()
    limits = Limits(heartbeat_interval=60)  # or the attacker, who answers none, would be cut off for that
    with (
        CloudLink(LOCAL, None, echo, limits) as cloud,
        DeviceLink(cloud.address, None, device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        attacker = raw_peers(cloud.address)
        with suppress(ConnectionError):
            attacker.send(bytes(cloud.limits.frame_bytes + 1))
        assert attacker.closed_by_peer()
        link.send(draft(1))
        device.wait(lambda: device.received())
        assert not device.gone


def test_a_message_without_an_end_is_cut_off(raw_peers: RawPeers) -> None:
    """ZeroMQ keeps every frame until the last one: without the guard all of it would stay in memory."""
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, None, echo) as cloud,
        DeviceLink(cloud.address, None, device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        attacker = raw_peers(cloud.address)
        with suppress(ConnectionError):
            for _ in range(1000):
                attacker.send(bytes(2**15), more=True)
        assert attacker.closed_by_peer()
        echo.wait_polling(lambda: cloud.counters().disconnected == 1)
        link.send(draft(1))
        device.wait(lambda: device.received())
        assert not device.gone


def test_a_whole_message_does_not_cover_for_one_without_an_end(raw_peers: RawPeers) -> None:
    """Sent in one go, so that both arrive between two looks of the guard; then the attacker only waits."""
    limits = Limits(heartbeat_interval=60)
    with CloudLink(LOCAL, None, Recorder(), limits) as cloud:
        attacker = raw_peers(cloud.address)
        endless = attacker.frame(bytes(2**15), more=True) * 40
        with suppress(ConnectionError):
            attacker.connection.sendall(attacker.frame(encode(Cancel(1))) + endless)
        assert attacker.closed_by_peer()


def test_much_traffic_of_whole_messages_is_not_cut_off() -> None:
    """The counter-example to the guard: many times its limit, in messages that end."""
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, None, echo) as cloud,
        DeviceLink(cloud.address, None, device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        for position in range(300):
            payload = bytes(60_000)
            link.send(draft(position, payload))
            device.wait(lambda position=position: len(device.messages) > position)  # type: ignore[misc]
        assert not device.gone and not echo.gone
        assert cloud.counters().disconnected == link.counters().disconnected == 0


def test_a_slow_reader_costs_a_bounded_queue_and_gets_all_that_was_taken() -> None:
    limits = Limits(queue_messages=100, queue_bytes=50_000 * 100, high_water_mark=10, heartbeat_timeout=60, peers=8)
    cloud_side, slow, quick = Recorder(), Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, cloud_side, limits) as cloud,
        FaultyProxy(port_of(cloud.address)) as proxy,
        DeviceLink(proxy.address, None, slow, limits) as slow_link,
        DeviceLink(cloud.address, None, quick, limits) as quick_link,
    ):
        slow.wait(lambda: slow.connected)
        slow_link.send(Cancel(1))
        [slow_peer] = cloud_side.wait(lambda: cloud_side.connected)
        proxy.stall("down", True)
        taken = 0
        refused_since = None
        while refused_since is None or time.monotonic() - refused_since < 0.1:  # kernel buffers fill as well
            if cloud.send(slow_peer, draft(taken, bytes(40_000))):
                taken += 1
                refused_since = None
            elif refused_since is None:
                refused_since = time.monotonic()
            assert taken < 1500, "40 kB each, and still no end"
        quick.wait(lambda: quick.connected)
        quick_link.send(Cancel(2))
        cloud_side.wait(lambda: len(cloud_side.connected) == 2)
        quick_peer = cloud_side.connected[1]
        assert cloud.send(quick_peer, draft(0))  # its place in the queue is its own
        quick.wait(lambda: quick.received())
        assert cloud.counters().dropped > 0
        proxy.stall("down", False)
        slow.wait(lambda: len(slow.messages) == taken)
        for _ in range(10):  # and there is room again, for small messages behind large ones too
            for _ in range(40):
                assert cloud.send(slow_peer, draft(taken, bytes(40_000 if taken % 2 else 1)))
                taken += 1
            slow.wait(lambda taken=taken: len(slow.messages) >= taken - 20)  # type: ignore[misc]
        slow.wait(lambda: len(slow.messages) == taken)
        assert [message.position for message in slow.received()] == list(range(taken))  # type: ignore[union-attr]


def test_a_peer_above_its_rate_is_told_and_others_are_served() -> None:
    limits = Limits(messages_per_second=1.0, messages_burst=20.0)
    cloud_side, greedy, modest = Recorder(), Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, cloud_side, limits) as cloud,
        DeviceLink(cloud.address, None, greedy) as greedy_link,
        DeviceLink(cloud.address, None, modest) as modest_link,
    ):
        greedy.wait(lambda: greedy.connected)
        modest.wait(lambda: modest.connected)
        for session in range(1, 501):
            greedy_link.send(Cancel(session))
        greedy.wait(lambda: greedy.errors())
        assert greedy.errors()[0].code == "quota"
        modest_link.send(draft(1))
        cloud_side.wait(lambda: cloud_side.received(type(draft(1))))
        counters = cloud.counters()
        assert 20 <= counters.received["Cancel"].messages <= 30
        assert not cloud_side.gone


def test_a_peer_whose_messages_cost_too_much_is_told_and_others_are_served() -> None:
    """The time of the link's thread counts: a peer has no more of it than its share."""
    limits, cost, messages = Limits(work_per_second=0.1, work_burst=0.2), 0.02, 200

    def work(peer: Peer, message: Message) -> None:
        until = time.thread_time() + cost * isinstance(message, Cancel)
        while time.thread_time() < until:
            pass

    cloud_side, greedy, modest = Recorder(work), Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, cloud_side, limits) as cloud,
        DeviceLink(cloud.address, None, greedy) as greedy_link,
        DeviceLink(cloud.address, None, modest) as modest_link,
    ):
        greedy.wait(lambda: greedy.connected)
        modest.wait(lambda: modest.connected)
        began = time.monotonic()
        for session in range(1, messages + 1):
            greedy_link.send(Cancel(session))
        for position in range(50):
            modest_link.send(draft(position))
        cloud_side.wait(lambda: len(cloud_side.received(Draft)) == 50)
        cloud_side.wait_polling(lambda: len(cloud_side.received(Cancel)) + cloud.counters().over_quota == messages)
        seconds = time.monotonic() - began
        assert greedy.wait(lambda: greedy.errors())[0].code == "quota"
        taken = len(cloud_side.received(Cancel))
        assert 10 <= taken <= (limits.work_burst + limits.work_per_second * seconds) / cost + 2
        assert modest.errors() == [] and not cloud_side.gone


def test_peers_above_the_limit_wait_outside_until_there_is_room(
    raw_peers: RawPeers, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(peers=1, backoff_last=0.05)
    cloud_side, second = Recorder(), Recorder()
    with CloudLink(LOCAL, None, cloud_side, limits) as cloud:
        first = raw_peers(cloud.address)
        first.send(encode(Cancel(1)))
        cloud_side.wait(lambda: cloud_side.connected)
        with DeviceLink(cloud.address, None, second, limits) as link:
            second.wait(lambda: second.connected)
            link.send(Cancel(2))
            second.wait(lambda: second.gone)
            assert cloud_side.received() == [Cancel(1)]
            cloud_side.wait_polling(lambda: cloud.counters().disconnected >= 1)
            assert "refused a device: this link accepts 1 at a time" in caplog.text
            first.close()
            cloud_side.wait(lambda: cloud_side.gone)
            second.wait_polling(lambda: link.status().state == "connected" and link.send(Cancel(3)))
            cloud_side.wait(lambda: Cancel(3) in cloud_side.received())
