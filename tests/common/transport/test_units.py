"""The parts of the link that need no socket: rates, probes, addresses, the queue."""

from __future__ import annotations

import select

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from common.estimates.estimators import ClockDifference, ClockOffset, RoundTrip, RoundTrips
from common.process.threads import TokenBucket
from common.transport.address import TransportError, is_local_address, require_safe, split_address
from common.transport.sending import (
    PATIENCE,
    ConnectionState,
    Delivery,
    Limits,
    LinkCounters,
    Outbox,
    OutgoingMessage,
    Peer,
    Quota,
    SendWindow,
    Signal,
    reply_to_probe,
)
from proto.framing import decode
from proto.messages import Probe, ProbeReply

STEPS = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200)


@given(rate=st.floats(0.1, 50.0), burst=st.floats(1.0, 20.0), steps=STEPS)
def test_a_bucket_never_lets_more_through_than_burst_and_rate_allow(
    rate: float, burst: float, steps: list[float]
) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    now = 0.0
    times: list[float] = []
    for step in steps:
        now += step
        if bucket.take(now):
            times.append(now)
        else:
            assert not bucket.full(now)
    for first in range(len(times)):
        for last in range(first, len(times)):
            allowed = burst + rate * (times[last] - times[first])
            assert last - first + 1 <= allowed + 1e-6


def test_a_refused_event_costs_nothing_and_a_clock_that_steps_back_gives_nothing() -> None:
    bucket = TokenBucket(1.0, 1.0, 0.0)
    assert bucket.take(0.0)
    assert not any(bucket.take(0.5) for _ in range(100))
    assert not bucket.take(0.2)
    assert bucket.take(1.2)
    assert bucket.full(2.2)


def test_limits_that_cannot_work_are_refused() -> None:
    for name in ("heartbeat_timeout", "queue_messages", "messages_burst"):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: 0})
    with pytest.raises(ValueError, match="payload_bytes"):
        Limits(payload_bytes=2**22)


# Probes. The peer's clock starts anywhere.

DELAYS = st.lists(st.tuples(st.integers(0, 250_000), st.integers(0, 250_000)), min_size=1, max_size=30)


def measured(offset: int, delays: list[tuple[int, int]]) -> tuple[list[RoundTrip], ClockOffset]:
    """The samples of a link whose ways out and back take `delays`, to a peer whose clock is `offset` ahead."""
    trips, clocks = RoundTrips(), ClockDifference()
    now, samples = 5_000_000, []
    for outward, homeward in delays:
        reply = reply_to_probe(trips.probe(now), now + outward + offset)
        now += outward + homeward
        sample = trips.reply(reply, now)
        assert sample is not None
        samples.append(sample)
        clocks.observe(sample)
    assert trips.outstanding == 0
    found = clocks.offset
    assert found is not None
    return samples, found


@given(offset=st.integers(10**9, 2**60), delays=DELAYS)
def test_samples_are_exact_whatever_the_peers_clock(offset: int, delays: list[tuple[int, int]]) -> None:
    samples, _ = measured(offset, delays)
    assert [sample.rtt for sample in samples] == [pytest.approx(sum(delay) / 1e6) for delay in delays]


@given(offset=st.integers(10**9, 2**60), delays=DELAYS)
def test_the_clocks_differ_by_what_is_said_up_to_half_of_the_asymmetry(
    offset: int, delays: list[tuple[int, int]]
) -> None:
    _, found = measured(offset, delays)
    outward, homeward = min(delays, key=sum)  # the first of equals
    assert found.ahead == 1000 * offset + 500 * (outward - homeward)
    assert abs(found.ahead - 1000 * offset) <= found.uncertainty == 500 * (outward + homeward)


def test_a_symmetric_link_tells_the_clocks_exactly_and_an_old_sample_is_forgotten() -> None:
    assert measured(77, [(40, 40)])[1] == ClockOffset(77_000, 40_000)
    assert ClockDifference().offset is None
    # A clock that drifts: the short round trip of long ago says what is no longer so.
    clocks = ClockDifference()
    clocks.observe(RoundTrip(0, 1000, 2))
    for number in range(40):
        clocks.observe(RoundTrip(1000 * number, 1000 * number + 510, 1000 * number + 20))
    assert clocks.offset == ClockOffset(500_000, 10_000)


def test_an_old_sample_is_forgotten_on_a_link_that_is_seldom_probed() -> None:
    clocks, drift = ClockDifference(), 50e-6
    for number in range(20):
        sent, trip = 5_000_000 * number, 600 if number else 400
        clocks.observe(RoundTrip(sent, round((sent + trip / 2) * (1 + drift)), sent + trip))
    found = clocks.offset
    assert found is not None
    assert abs(found.ahead - 1000 * drift * sent) <= 1000 * drift * 16_000_000


def test_replies_count_once_and_only_if_asked_for() -> None:
    trips = RoundTrips()
    probe = trips.probe(100)
    assert trips.reply(ProbeReply(probe.sequence + 1, 100, 7), 200) is None
    assert trips.reply(ProbeReply(probe.sequence, 99, 7), 200) is None  # invented
    assert trips.reply(ProbeReply(probe.sequence, 100, 7), 50) is None  # before it was sent
    assert trips.reply(reply_to_probe(probe, 7), 200) is not None
    assert trips.reply(reply_to_probe(probe, 7), 200) is None  # duplicate


def test_a_silent_peer_costs_a_bounded_number_of_probes_and_the_newest_still_count() -> None:
    trips = RoundTrips(outstanding=4)
    probes = [trips.probe(now) for now in range(1000)]
    assert trips.outstanding == 4
    assert len({probe.sequence for probe in probes}) == 1000
    assert trips.reply(reply_to_probe(probes[0], 1), 2000) is None
    late = trips.reply(reply_to_probe(probes[-1], 1), 2000)
    assert late is not None and late.rtt == pytest.approx((2000 - 999) / 1e6)


def test_replies_may_overtake_each_other() -> None:
    trips = RoundTrips()
    first, second = trips.probe(0), trips.probe(10)
    assert trips.reply(reply_to_probe(second, 5), 30) is not None
    assert trips.reply(reply_to_probe(first, 5), 40) is not None


def test_lost_probes_are_not_under_way_for_ever() -> None:
    """One behind them has come back. Where it has overtaken them, they still count."""
    trips = RoundTrips()
    lost = [trips.probe(now) for now in range(8)]
    assert trips.outstanding == 8
    for now in range(8, 12):
        probe = trips.probe(now)
        assert trips.outstanding == (9 if now == 8 else 1)
        assert trips.reply(reply_to_probe(probe, now), 50) is not None
        assert trips.outstanding == 0
    waiting = trips.probe(12)
    assert trips.reply(reply_to_probe(lost[-1], 60), 60) is not None
    assert trips.outstanding == 1
    assert trips.reply(reply_to_probe(waiting, 61), 61) is not None


def test_an_answer_repeats_the_question() -> None:
    assert reply_to_probe(Probe(3, 4), 5) == ProbeReply(3, 4, 5)


# Addresses.


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://127.0.0.1:7500", ("127.0.0.1", 7500)),
        ("tcp://[::1]:0", ("::1", 0)),
        ("tcp://*:5555", ("*", 5555)),
        ("tcp://cloud.example.org:65535", ("cloud.example.org", 65535)),
    ],
)
def test_addresses_are_split(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1:7500", "ipc:///tmp/x", "tcp://127.0.0.1", "tcp://::1:80", "tcp://host:65536",
     "tcp://a b:1", "tcp://host:-1", "tcp://host:1;tcp://other:2", "tcp://host:80/path"],
)  # fmt: skip
def test_other_addresses_are_one_sentence_with_an_example(address: str) -> None:
    with pytest.raises(TransportError, match="tcp://host:port"):
        split_address(address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://127.8.9.1:1", "tcp://[::1]:1", "tcp://localhost:1"])
def test_loopback_needs_no_keys(address: str) -> None:
    assert is_local_address(address)
    require_safe(address, curve=False, insecure=False)


@pytest.mark.parametrize(
    "address",
    ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://host:1", "tcp://localhost.evil.org:1",
     "tcp://127.0.0.1.evil.org:1", "tcp://[::ffff:10.0.0.1]:1"],
)  # fmt: skip
def test_everything_else_needs_keys_or_the_word_insecure(address: str) -> None:
    with pytest.raises(TransportError, match="dragon keys new"):
        require_safe(address, curve=False, insecure=False)
    require_safe(address, curve=True, insecure=False)
    require_safe(address, curve=False, insecure=True)


# The queue.


def outgoing(connection: int, size: int = 10) -> OutgoingMessage:
    return OutgoingMessage(connection, "Draft", bytes(size), size)


def test_each_connection_has_its_own_share_of_the_queue() -> None:
    signal = Signal()
    outbox = Outbox(3, 100, signal)
    assert not outbox.put(outgoing(1))  # unknown
    outbox.open(1)
    outbox.open(2)
    assert [outbox.put(outgoing(1)) for _ in range(5)] == [True, True, True, False, False]
    assert [outbox.put(outgoing(2, 60)) for _ in range(2)] == [True, False]
    taken = outbox.take()
    assert [each.connection for each in taken] == [1, 1, 1, 2]
    assert not outbox.put(outgoing(1))  # taken, but not yet with ZeroMQ: it still uses memory
    outbox.mark_sent(taken[0])
    assert outbox.put(outgoing(1))
    outbox.shut(1)
    assert not outbox.put(outgoing(1))
    outbox.mark_sent(taken[1])  # after the end: nothing to account for
    assert outbox.refused == 6
    outbox.close()
    signal.close()


class Socket:
    """A ROUTER's, that takes what comes until it is told otherwise."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.fails: zmq.ZMQError | None = None

    def send_multipart(self, frames: list[bytes], flags: int) -> None:
        if self.fails is not None:
            raise self.fails
        self.sent.append(frames[1])


def test_a_connection_that_ends_while_it_is_sent_to_is_forgotten() -> None:
    """The next one that waits for ZeroMQ's room is offered it soon."""
    limits, signal, socket, connections = Limits(window_bytes=8000), Signal(), Socket(), dict[int, ConnectionState]()
    outbox, counters = Outbox(limits.queue_messages, limits.queue_bytes, signal), LinkCounters()

    def forget(connection: ConnectionState) -> None:
        if connections.pop(connection.peer.connection, None) is not None:
            delivery.forget(connection)
            outbox.shut(connection.peer.connection)

    def connect(number: int) -> ConnectionState:
        quota, complaints, window = Quota(limits, 0.0), TokenBucket(1.0, 1.0, 0.0), SendWindow(limits, 0.0)
        connections[number] = made = ConnectionState(Peer(number, None), b"r", 9, quota, complaints, window)
        outbox.open(number)
        return made

    delivery = Delivery(outbox, counters, connections, forget)
    delivery.socket = socket  # type: ignore[assignment]
    gone = connect(1)
    assert all(outbox.put(outgoing(1, 500)) for _ in range(40))
    delivery.send()
    retries = [delivery.retry]  # its window is full
    probes = [each for each in map(decode, (each for each in socket.sent if any(each))) if isinstance(each, Probe)]
    gone.window.replied(reply_to_probe(probes[0], 0))
    socket.fails = zmq.ZMQError(zmq.EHOSTUNREACH)
    delivery.send()
    retries.append(delivery.retry)
    assert counters.dropped == 24
    connect(2)
    socket.fails = zmq.Again()
    outbox.put(outgoing(2))
    delivery.send()
    retries.append(delivery.retry)
    assert retries == [PATIENCE, None, 0.002]
    outbox.close()
    signal.close()


def test_the_signal_is_up_exactly_while_something_may_wait() -> None:
    signal = Signal()
    outbox = Outbox(10, 1000, signal)
    outbox.open(1)

    def signalled() -> bool:
        return bool(select.select([signal.fileno()], [], [], 0)[0])

    assert not signalled()
    for _ in range(3):
        outbox.put(outgoing(1))
    assert signalled()
    signal.take(signalled())
    outbox.put(outgoing(1))  # while the thread works, it need not be woken
    assert not signalled()
    signal.lower()
    outbox.put(outgoing(1))  # between lowering the signal and looking at the queue
    assert len(outbox.take()) == 5
    assert signalled()
    signal.take(signalled())
    signal.lower()
    assert outbox.take() == []
    outbox.put(outgoing(1))
    assert signalled()
    outbox.close()
    signal.close()


def test_a_signal_that_comes_while_the_thread_wakes_leaves_nothing_behind() -> None:
    """Given when the thread has polled already: the next poll returns at once, and then no more."""
    signal = Signal()
    signal.give()
    signal.take(readable=False)
    signal.lower()
    assert select.select([signal.fileno()], [], [], 0)[0]
    signal.take(readable=True)
    signal.lower()
    assert not select.select([signal.fileno()], [], [], 0)[0]
    signal.close()
