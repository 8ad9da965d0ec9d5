"""A device's link through restarts, cuts and black holes."""

from __future__ import annotations

import socket
import threading
import time

import zmq

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, KeyPair
from common.transport.sending import Limits, Peer
from proto.framing import encode
from proto.messages import Cancel, Message
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.common.transport.support import SECONDS, Echo, RawPeer, RawPeers, Recorder, draft, port_of

LOCAL = "tcp://127.0.0.1:0"
IMPATIENT = Limits(heartbeat_interval=0.2, heartbeat_timeout=1.5, backoff_last=0.1, connect_timeout=0.5)


def test_a_restarted_cloud_is_found_again_and_old_peers_mean_nothing_to_it() -> None:
    before, after, device = Recorder(), Echo(), Recorder()
    first = CloudLink(LOCAL, None, before)
    with DeviceLink(first.address, None, device) as link:
        first.start()
        device.wait(lambda: device.connected)
        link.send(draft(1))
        before.wait(lambda: before.messages)
        first.close()
        device.wait(lambda: device.gone)
        assert link.status().state == "away"
        assert first.address in link.status().detail
        assert link.send(draft(2)) == 0  # nobody is there
        with CloudLink(first.address, None, after) as second:
            after.link = second
            device.wait(lambda: len(device.connected) == 2)
            assert link.status().state == "connected"
            link.send(draft(3))
            device.wait(lambda: device.received())
            assert after.received() == device.received() == [draft(3)]
            assert device.order == ["connected", "gone", "connected", "Draft"]
            assert device.connected[0] != device.connected[1]
            assert link.counters().reconnects == 1
            assert link.counters().dropped == 1


def test_a_device_may_start_first() -> None:
    device = Recorder()
    with socket.socket() as reserved:  # bound, not listening: kept from others, not from a cloud
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{reserved.getsockname()[1]}"
        with DeviceLink(address, None, device, IMPATIENT) as link:
            device.wait_polling(lambda: link.status().state == "away")
            with CloudLink(address, None, Recorder()):
                device.wait(lambda: device.connected)


def test_what_was_sent_into_a_dead_connection_is_not_delivered_by_the_next() -> None:
    cloud_side, device = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, cloud_side) as cloud,
        FaultyProxy(port_of(cloud.address)) as proxy,
        DeviceLink(proxy.address, None, device) as link,
    ):
        device.wait(lambda: device.connected)
        link.send(draft(0))
        cloud_side.wait(lambda: cloud_side.messages)
        proxy.black_hole(True)
        for position in range(1, 400):
            link.send(draft(position, bytes(2000)))
        proxy.cut()
        device.wait(lambda: device.gone)
        proxy.black_hole(False)
        device.wait(lambda: len(device.connected) == 2)
        link.send(draft(1000))
        cloud_side.wait(lambda: cloud_side.received()[-1] == draft(1000))
        assert cloud_side.received() == [draft(0), draft(1000)]


def test_both_ends_notice_a_black_hole_and_meet_again_after_it() -> None:
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, None, echo, IMPATIENT) as cloud,
        FaultyProxy(port_of(cloud.address)) as proxy,
        DeviceLink(proxy.address, None, device, IMPATIENT) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(1))
        device.wait(lambda: device.messages)
        proxy.black_hole(True)
        device.wait(lambda: device.gone)
        lost, *_ = echo.wait(lambda: echo.gone)
        assert cloud.send(lost, draft(1)) == 0
        proxy.black_hole(False)
        device.wait_polling(lambda: len(device.connected) > 1 and link.send(draft(2)))
        device.wait(lambda: draft(2) in device.received())
        assert device.received() == [draft(1), draft(2)]


def test_last_words_arrive_before_the_end_of_a_connection(raw_peers: RawPeers) -> None:
    cloud_side = Recorder()
    with CloudLink(LOCAL, None, cloud_side) as cloud:
        body = encode(Cancel(9))
        for count in range(1, 6):
            peer = raw_peers(cloud.address)
            peer.send(body)
            cloud_side.wait(lambda count=count: len(cloud_side.connected) == count)  # type: ignore[misc]
            for _ in range(299):
                peer.send(body)
            peer.close()
        cloud_side.wait(lambda: len(cloud_side.gone) == 5)
        assert len(cloud_side.messages) == 5 * 300
        assert [known.connection for known in cloud_side.connected] == list(range(1, 6))
        for known in cloud_side.connected:
            assert [of for of, _ in cloud_side.messages].count(known) == 300
        assert cloud.counters().strays == 0


def test_a_device_hears_a_clouds_last_words_before_its_end() -> None:
    device = Recorder()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    # A pause that outlasts the test: the next connection would be refused or accepted by chance.
    with DeviceLink(f"tcp://127.0.0.1:{port}", None, device, Limits(backoff_first=30, backoff_last=30)) as link:
        device.wait(lambda: device.connected)
        link.send(Cancel(1))
        assert router.poll(30_000)
        identity = router.recv_multipart()[0]
        for session in range(1, 301):
            router.send_multipart([identity, encode(Cancel(session))])
        router.close(linger=5000)
        device.wait(lambda: device.gone)
        assert device.received() == [Cancel(session) for session in range(1, 301)]
        assert device.order[-1] == "gone"
    context.term()


def test_a_routing_id_used_again_is_another_peer() -> None:
    """A routing id is whatever the other side says: it must not open a former owner's sessions."""
    cloud_side = Recorder()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with CloudLink(LOCAL, None, cloud_side) as cloud:
        for count in (1, 2):
            dealer = context.socket(zmq.DEALER)
            dealer.linger = 0
            dealer.routing_id = b"same"
            dealer.connect(cloud.address)
            dealer.send(encode(Cancel(1)))
            cloud_side.wait(lambda count=count: len(cloud_side.messages) == count)  # type: ignore[misc]
            dealer.close()
            cloud_side.wait(lambda count=count: len(cloud_side.gone) == count)  # type: ignore[misc]
        first, second = cloud_side.connected
        assert first != second
        assert cloud.send(first, Cancel(1)) == 0
    context.term()


def test_a_known_routing_id_under_another_key_is_not_the_known_peer() -> None:
    """ZeroMQ may hand a routing id on before its former owner's end is known here; the key decides."""

    class Frame:
        def __init__(self, key: str) -> None:
            self.bytes = b"same"
            self._properties = {"__fd": 5, "User-Id": key}

        def get(self, name: str) -> object:
            return self._properties[name]

    cloud_side = Recorder()
    public, secret = (part.decode() for part in zmq.curve_keypair())
    link = CloudLink(LOCAL, CloudKeys(KeyPair(public, secret)), cloud_side)
    try:
        link._live[5] = None
        connections = [link._sender(Frame(key), 0.0) for key in ("a", "a", "b")]  # type: ignore[arg-type]
        peers = [connection.peer for connection in connections if connection is not None]
        assert peers[0] == peers[1] != peers[2]
        assert [peer.key for peer in peers] == ["a", "a", "b"]
        assert cloud_side.gone == [peers[0]]
        assert link.send(peers[0], Cancel(1)) == 0
    finally:
        link.close()


def test_the_first_words_of_a_young_connection_are_not_lost(raw_peers: RawPeers) -> None:
    """A peer connects and speaks while the link's thread is busy with another peer's message."""
    busy, go_on = threading.Event(), threading.Event()

    def hold(peer: Peer, message: Message) -> None:
        if message == Cancel(1):
            busy.set()
            go_on.wait(SECONDS)

    young: list[RawPeer] = []

    def speak() -> None:
        peer = raw_peers(cloud.address)
        peer.send(encode(Cancel(2)))
        young.append(peer)

    cloud_side = Recorder(hold)
    with CloudLink(LOCAL, None, cloud_side) as cloud:
        old = raw_peers(cloud.address)
        for count in range(1, 11):
            busy.clear()
            go_on.clear()
            old.send(encode(Cancel(1)))
            assert busy.wait(SECONDS)
            threads = [threading.Thread(target=speak) for _ in range(3)]
            for thread in threads:
                thread.start()
            old.send(encode(Cancel(3)))
            go_on.set()
            cloud_side.wait(lambda count=count: cloud_side.received().count(Cancel(2)) == 3 * count)  # type: ignore[misc]
            for thread in threads:
                thread.join()
            while young:
                young.pop().close()
        assert cloud.counters().strays == 0


def test_pauses_grow_while_a_door_opens_and_shuts() -> None:
    limits = Limits(backoff_first=0.01, backoff_last=0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with DeviceLink(address, None, Recorder(), limits) as link:
            begun = time.monotonic()
            for _ in range(6):
                server.accept()[0].close()
            # Half of each pause is certain: (10 + 20 + 40 + 80 + 160) / 2 ms.
            assert time.monotonic() - begun >= 0.155
            assert link.counters().connects == 0


def test_pauses_stay_short_while_each_connection_brings_an_answer_forward() -> None:
    """Without progress, the pauses of so many cuts add up to minutes."""
    cuts, first, last = 12, 0.05, 60.0
    device = Recorder()
    with (
        CloudLink(LOCAL, None, Recorder()) as cloud,
        FaultyProxy(port_of(cloud.address)) as proxy,
        DeviceLink(proxy.address, None, device, Limits(backoff_first=first, backoff_last=last)) as link,
    ):
        for count in range(1, cuts + 1):
            device.wait(lambda count=count: len(device.connected) == count)  # type: ignore[misc]
            link.progressed()
            proxy.cut()
        device.wait(lambda: len(device.connected) == cuts + 1)


def test_a_silent_listener_is_given_up_and_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with DeviceLink(address, None, Recorder(), Limits(connect_timeout=0.1, backoff_last=0.1)) as link:
            connections = [server.accept()[0] for _ in range(3)]
            assert link.status().state == "away"
            for connection in connections:
                connection.close()
