"""Behaviour of both ends of a healthy link."""

from __future__ import annotations

import statistics
import threading
import time

import pytest

from common.transport.address import TransportError
from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.sending import Limits, Peer
from proto.errors import ProtocolError
from proto.framing import PAYLOAD_LIMIT, encode, wire_size
from proto.messages import Cancel, Message, Probe, ProbeReply
from tests.common.transport.support import SECONDS, Echo, Recorder, draft, port_of

LOCAL = "tcp://127.0.0.1:0"


def test_messages_arrive_whole_in_order_and_counted_in_both_directions() -> None:
    echo, device = Echo(), Recorder()
    with CloudLink(LOCAL, None, echo) as cloud, DeviceLink(cloud.address, None, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        drafts = [draft(position, bytes([position % 256]) * (position % 300)) for position in range(2000)]
        for each in drafts:
            assert link.send(each)
        device.wait(lambda: len(device.messages) == len(drafts))
        assert device.received() == drafts
        assert echo.received() == drafts
        assert echo.order[0] == "connected" == device.order[0]
        size = sum(wire_size(encode(each)) for each in drafts)
        assert sum(device.sizes) == size
        for counters in (link.counters(), cloud.counters()):
            assert counters.sent["Draft"] == counters.received["Draft"]
            assert (counters.sent["Draft"].messages, counters.sent["Draft"].bytes) == (len(drafts), size)
            assert counters.dropped == counters.malformed == counters.faults == counters.strays == 0


def test_each_peer_gets_its_own_answers() -> None:
    echo = Echo()
    first, second = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, echo) as cloud,
        DeviceLink(cloud.address, None, first) as one,
        DeviceLink(cloud.address, None, second) as other,
    ):
        echo.link = cloud
        for recorder in (first, second):
            recorder.wait(lambda recorder=recorder: recorder.connected)  # type: ignore[misc]
        for position in range(100):
            one.send(draft(2 * position))
            other.send(draft(2 * position + 1))
        first.wait(lambda: len(first.messages) == 100)
        second.wait(lambda: len(second.messages) == 100)
        assert first.received() == [draft(2 * position) for position in range(100)]
        assert second.received() == [draft(2 * position + 1) for position in range(100)]
        assert len({peer.connection for peer in echo.connected}) == 2


def test_many_threads_can_send_at_once_and_no_wake_up_is_lost() -> None:
    """Each thread waits for its own echo before it sends again: one lost wake-up, and it stands still."""
    heard = [threading.Semaphore(0) for _ in range(4)]

    def wake(peer: Peer, message: Message) -> None:
        heard[getattr(message, "position", 0)].release()

    echo, device = Echo(), Recorder(wake)
    with CloudLink(LOCAL, None, echo) as cloud, DeviceLink(cloud.address, None, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        lost = []

        def converse(number: int) -> None:
            for _ in range(150):
                link.send(draft(number))
                if not heard[number].acquire(timeout=SECONDS):
                    lost.append(number)
                    return

        threads = [threading.Thread(target=converse, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not lost


def test_a_burst_beyond_zeromqs_own_room_leaves_without_waiting_for_other_traffic() -> None:
    """3,000 messages through a room for 10: 1 s with retries, 30 s if only other timers moved them."""
    limits = Limits(high_water_mark=10)
    cloud_side, device = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, cloud_side, limits) as cloud,
        DeviceLink(cloud.address, None, device, limits) as link,
    ):
        device.wait(lambda: device.connected)
        burst = [draft(position) for position in range(3000)]
        assert all(link.send(each) for each in burst)
        cloud_side.wait(lambda: len(cloud_side.messages) == len(burst), seconds=15.0)
        assert cloud_side.received() == burst


def test_probes_are_answered_by_the_link_of_either_role() -> None:
    from_device, from_cloud = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, from_device) as cloud,
        DeviceLink(cloud.address, None, from_cloud) as link,
    ):
        from_cloud.wait(lambda: from_cloud.connected)
        before = time.monotonic_ns() // 1000
        link.send(Probe(5, before))
        [reply] = from_cloud.wait(lambda: from_cloud.received(ProbeReply))
        assert isinstance(reply, ProbeReply)
        assert (reply.sequence, reply.sent) == (5, before)
        assert before <= reply.received <= time.monotonic_ns() // 1000  # one machine, one clock
        [peer] = from_device.connected
        cloud.send(peer, Probe(6, 1))
        [reply] = from_device.wait(lambda: from_device.received(ProbeReply))
        assert isinstance(reply, ProbeReply)
        assert reply.sequence == 6
        assert not from_device.received(Probe) and not from_cloud.received(Probe)


def test_a_message_out_of_bounds_is_the_senders_error_and_never_on_the_wire() -> None:
    echo, device = Echo(), Recorder()
    with CloudLink(LOCAL, None, echo) as cloud, DeviceLink(cloud.address, None, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        with pytest.raises(ProtocolError):
            link.send(Cancel(2**32))
        with pytest.raises(ProtocolError):
            link.send(draft(1, bytes(PAYLOAD_LIMIT + 1)))
        link.send(draft(2))
        device.wait(lambda: device.received())
        assert [message.position for message in echo.received()] == [2]  # type: ignore[union-attr]


def test_a_larger_payload_passes_where_both_sides_allow_it() -> None:
    limits = Limits(payload_bytes=2**20)
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, None, echo, limits) as cloud,
        DeviceLink(cloud.address, None, device, limits) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        large = draft(1, bytes(2**20))
        link.send(large)
        device.wait(lambda: device.received())
        assert device.received() == [large]


def test_a_port_in_use_is_one_sentence_and_leaves_nothing_behind() -> None:
    with CloudLink(LOCAL, None, Recorder()) as cloud:
        with pytest.raises(TransportError, match=r"in use.*another port") as caught:
            CloudLink(cloud.address, None, Recorder())
        assert cloud.address in str(caught.value)
    with CloudLink(cloud.address, None, Recorder()) as again:  # and it is free as soon as close() returned
        assert port_of(again.address) == port_of(cloud.address)


def test_a_foreign_address_is_one_sentence() -> None:
    with pytest.raises(TransportError, match="not an address of this machine"):
        CloudLink("tcp://192.0.2.1:7500", None, Recorder(), insecure=True)
    with pytest.raises(TransportError, match="has no port"):
        DeviceLink("tcp://127.0.0.1:0", None, Recorder())


def test_both_roles_refuse_plaintext_off_loopback() -> None:
    with pytest.raises(TransportError, match="--insecure"):
        CloudLink("tcp://0.0.0.0:0", None, Recorder())
    with pytest.raises(TransportError, match="--insecure"):
        DeviceLink("tcp://cloud.example.org:7500", None, Recorder())


def test_ipv6_works() -> None:
    echo, device = Echo(), Recorder()
    try:
        cloud = CloudLink("tcp://[::1]:0", None, echo)
    except TransportError:
        pytest.skip("this machine has no IPv6 loopback")
    with cloud, DeviceLink(cloud.address, None, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(3))
        device.wait(lambda: device.received())


def test_a_link_closes_quickly_from_any_state_and_refuses_afterwards() -> None:
    device = Recorder()
    cloud = CloudLink(LOCAL, None, Recorder())
    cloud.close()  # never started
    link = DeviceLink("tcp://127.0.0.1:1", None, device)
    link.start()  # nobody listens there
    begun = time.monotonic()
    link.close()
    link.close()
    assert time.monotonic() - begun < 10.0, "nothing was waited for, such as the end of an attempt to connect"
    assert link.send(Cancel(1)) == 0
    assert link.status().state == "closed"


def test_a_handler_may_close_its_link() -> None:
    closed = threading.Event()

    class Quitter(Recorder):
        def on_connected(self, peer: Peer) -> None:
            link.close()
            closed.set()

    with CloudLink(LOCAL, None, Recorder()) as cloud:
        link = DeviceLink(cloud.address, None, Quitter())
        link.start()
        assert closed.wait(SECONDS)
        link.close()


def test_the_round_trip_is_far_below_a_decode_step() -> None:
    """A bound that only a timer exceeds: threads that wait for a busy machine's processor don't do so every time."""
    echo, device = Echo(), Recorder()
    with CloudLink(LOCAL, None, echo) as cloud, DeviceLink(cloud.address, None, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        times = []
        for position in range(200):
            begun = time.perf_counter()
            link.send(draft(position))
            device.wait(lambda position=position: len(device.messages) > position)  # type: ignore[misc]
            times.append(time.perf_counter() - begun)
        assert statistics.quantiles(times, n=10)[0] < 0.005
