"""Each connection has estimates of its own; only this side's decode time is the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from common.estimates import profiler as module
from common.estimates.estimators import DecodeDelay, DecodeLine
from common.estimates.profiler import PeerEstimates, Profiler
from proto.messages import Hello, Probe, ProbeReply, Side
from tests.daemons.streaming import wait_until

LINE = DecodeLine.of(1e-5, 0.01, 256.0)


def hello(seconds: float) -> Hello:
    return Hello(
        "device", "m", "t", 10, "s", "e", ("race",), seconds, decode_slope=0.0, eos=(), library="", exactness="near"
    )


def outcome(**accepted: bool) -> tuple[None, dict[Side, bool]]:
    sides: tuple[Side, Side] = ("device", "cloud")
    return None, {side: accepted[side] for side in sides if side in accepted}


@pytest.fixture
def profiler() -> Iterator[Profiler]:
    profiler = Profiler("cloud", LINE)
    yield profiler
    profiler.close()


class TestProbes:
    def test_are_seldom_while_no_answer_uses_the_link_and_come_at_once_when_one_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, sent = 0.0, list[Probe]()
        clock = SimpleNamespace(monotonic=lambda: now, monotonic_ns=lambda: round(1e9 * now))
        monkeypatch.setattr(module, "time", clock)
        peer = PeerEstimates("device", DecodeDelay(LINE), LINE, sent.append)

        def probes(seconds: int) -> int:
            """Number of probes in so many seconds, each of which takes 20 ms."""
            nonlocal now
            before = len(sent)
            for _ in range(10 * seconds):
                at, count = now, len(sent)
                peer.meter.probe(now)
                now = at + 0.02
                for probe in sent[count:]:
                    peer.meter.replied(ProbeReply(probe.sequence, probe.sent, probe.sent))
                now = at + 0.1
            return len(sent) - before

        assert probes(5) >= 16, "it is new"
        assert probes(20) == 4
        peer.decoded(100)
        assert probes(10) == 20
        assert probes(20) == 4


class TestTwoDevices:
    """A cloud with a fast device whose drafts are right and a slow one whose drafts are wrong."""

    def test_decode_time_and_acceptance_are_those_of_the_device(self, profiler: Profiler) -> None:
        fast = profiler.watch(hello(0.02), lambda probe: None)
        slow = profiler.watch(hello(0.2), lambda probe: None)
        assert (fast.estimates.device_decode, slow.estimates.device_decode) == pytest.approx((0.02, 0.2))
        for _ in range(40):
            fast.observe_acceptance(*outcome(device=True, cloud=True))
            slow.observe_acceptance(*outcome(device=False, cloud=True))
            fast.remote_decoded(0.04)
        wait_until(lambda: fast.estimates.device_decode > 0.039, "digested")
        assert slow.estimates.device_decode == pytest.approx(0.2)
        assert fast.estimates.device_acceptance > 0.95
        wait_until(lambda: slow.estimates.device_acceptance < 0.05, "digested")
        assert slow.estimates.cloud_acceptance > 0.95

    def test_this_sides_decode_time_is_shared_and_seen_at_the_context_of_each(self, profiler: Profiler) -> None:
        short, long = (profiler.watch(hello(0.02), lambda probe: None) for _ in range(2))
        for _ in range(40):
            profiler.decoded(short, 100, 2 * LINE.predict(100))
        profiler.decoded(long, 1000, 2 * LINE.predict(100) + 900 * 11e-5)
        wait_until(lambda: short.estimates.cloud_decode > 1.9 * LINE.predict(100), "digested")
        wait_until(lambda: long.estimates.cloud_decode > 4 * short.estimates.cloud_decode, "digested")

    def test_round_trips_are_measured_until_the_connection_is_gone(self, profiler: Profiler) -> None:
        sent: list[Probe] = []
        peer = profiler.watch(hello(0.02), sent.append)
        wait_until(lambda: bool(sent), "probed")
        assert peer.estimates.rtt == 0.0
        peer.meter.replied(ProbeReply(sent[0].sequence, sent[0].sent, 0))
        assert peer.estimates.rtt > 0.0
        assert profiler.nobody.estimates.rtt == 0.0


def peer() -> PeerEstimates:
    return PeerEstimates("cloud", DecodeDelay(LINE), LINE, lambda probe: None)


def test_an_impossible_measurement_costs_only_itself() -> None:
    estimates = peer()
    estimates.remote_decoded(-1.0)
    estimates.observe_acceptance(*outcome(cloud=True))
    estimates.digest()
    assert estimates.estimates.cloud_acceptance == 0.75


def test_expectations_go_before_outcomes() -> None:
    estimates = peer()
    estimates.observe_acceptance((0.9, 0.1), {"device": False, "cloud": True})
    estimates.digest()
    found = estimates.estimates
    assert (found.device_acceptance, found.cloud_acceptance) == pytest.approx((0.7, 0.3))


def test_run_ahead_is_the_maximum_until_a_round_trip_is_known_and_falls_with_the_acceptance() -> None:
    sent: list[Probe] = []
    estimates = PeerEstimates("cloud", DecodeDelay(DecodeLine.of(0.0, 1e-6, 256.0)), LINE, sent.append)
    assert estimates.run_ahead(64) == 64
    estimates.meter.probe(0.0)
    estimates.meter.replied(ProbeReply(sent[0].sequence, sent[0].sent, 0))
    assert estimates.run_ahead(64) == 64  # the other side needs 10,000 times as long for a step
    for _ in range(200):
        estimates.observe_acceptance(*outcome(device=True, cloud=False))
    estimates.digest()
    assert estimates.run_ahead(64) == 2
