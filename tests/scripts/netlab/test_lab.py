"""Real namespaces, real sockets, real packets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from scripts.netlab.helper import LabFailed
from scripts.netlab.lab import NetLab
from scripts.netlab.self_check import Check
from scripts.netlab.setting import KILOBIT, LinkSetting
from scripts.netlab.trace import TracePoint, step
from tests.scripts.netlab.conftest import open_lab

PATIENCE = 60.0


def current() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


@contextmanager
def connected(lab: NetLab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection through the link: the device's end and the cloud's."""
    with ExitStack() as sockets:
        with lab.run_in("cloud"):
            listener = sockets.enter_context(socket.create_server((lab.address("cloud"), 0)))
        with lab.run_in("device"):
            device = sockets.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
        cloud, _ = listener.accept()
        sockets.enter_context(cloud)
        cloud.settimeout(PATIENCE)
        yield device, cloud


def receive(end: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = end.recv(1 << 16)
        assert part
        data += part
    return bytes(data)


def undisturbed(lab: NetLab, count: int, good: Callable[[Check], bool]) -> Check:
    """A check that is `good`, if one of three is: a machine that stands still for a while loses or delays packets."""
    for _ in range(3):
        if good(check := lab.check(count)):
            break
    return check


def rates(check: Check) -> tuple[float, float]:
    """Bytes per second of both trains, up and down; 0 for one that was not measured."""
    up, down = check.trains
    assert (up.direction, down.direction) == ("uplink", "downlink")
    return up.rate or 0.0, down.rate or 0.0


class TestLink:
    def test_round_trips_are_the_settings(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.04))
        # The fastest of them: a busy machine only adds.
        check = undisturbed(lab, 15, lambda check: check.lost == 0 and check.quantile(0.0) <= 0.055)
        assert check.lost == 0
        assert 0.04 <= check.quantile(0.0) <= 0.055

    def test_jitter_spreads_them(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.02, jitter=1.0))
        check = undisturbed(lab, 40, lambda check: check.lost < 40 and check.quantile(0.0) < 0.016)
        assert check.quantile(0.0) < 0.016 < 0.024 < check.quantile(0.9)  # a busy machine only adds

    def test_a_change_holds_at_once(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.2))
        assert undisturbed(lab, 3, lambda check: check.lost < 3).quantile(0.0) >= 0.2
        lab.set(LinkSetting())
        assert lab.setting == LinkSetting()
        assert undisturbed(lab, 9, lambda check: check.lost < 9).quantile(0.0) < 0.1

    def test_packets_arrive_in_order_whatever_the_jitter(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.04, jitter=1.0))
        with ExitStack() as sockets:
            ends = []
            for side in ("cloud", "device"):
                with lab.run_in("cloud" if side == "cloud" else "device"):
                    ends.append(sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            cloud, device = ends
            cloud.bind((lab.address("cloud"), 0))
            cloud.settimeout(PATIENCE)
            for number in range(150):
                device.sendto(bytes([number]), cloud.getsockname())
            assert [cloud.recv(1)[0] for _ in range(150)] == list(range(150))

    def test_loss_is_repaired_by_tcp(self, lab: NetLab) -> None:
        data = os.urandom(100_000)
        lab.set(LinkSetting(rtt=0.002, loss=0.05))
        # 9.75 % of 150 are 15; fewer than 1 has a probability of 2e-7.
        assert 0 < undisturbed(lab, 150, lambda check: check.lost < 60).lost < 60
        with connected(lab) as (device, cloud):
            threading.Thread(target=device.sendall, args=(data,), daemon=True).start()
            assert receive(cloud, len(data)) == data

    def test_rate_holds_back_what_is_sent(self, lab: NetLab) -> None:
        lab.set(LinkSetting(uplink=500_000))
        with connected(lab) as (device, cloud):
            begun = time.monotonic()
            threading.Thread(target=device.sendall, args=(bytes(100_000),), daemon=True).start()
            receive(cloud, 100_000)
            assert time.monotonic() - begun >= 0.19  # the first packet is 1500 of the 100000 bytes

    def test_each_direction_has_a_rate_of_its_own(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.02, uplink=40 * KILOBIT, downlink=10_000 * KILOBIT))

        def held(check: Check) -> bool:
            up, down = rates(check)
            return 0.6 * 5000 < up < 1.03 * 5000 and 10 * 5000 < down < 1.1 * 1.25e6

        # A busy machine delays a packet by a fraction of the train's .7 s, unless it stands still.
        check = undisturbed(lab, 3, held)
        assert held(check), check.trains

    def test_a_direction_may_be_without_a_limit(self, lab: NetLab) -> None:
        lab.set(LinkSetting(downlink=40 * KILOBIT))

        def held(check: Check) -> bool:
            up, down = rates(check)
            return 0 < down < 1.03 * 5000 < 4 * 5000 < up

        check = undisturbed(lab, 3, held)
        assert held(check), check.trains

    def test_nothing_passes_in_an_outage_and_connections_survive_it(self, lab: NetLab) -> None:
        lab.set(LinkSetting())
        with connected(lab) as (device, cloud):
            device.sendall(b"before")
            assert receive(cloud, 6) == b"before"
            lab.set(LinkSetting(loss=1.0))
            device.sendall(b"during")
            outage = lab.check(5)
            assert (outage.lost, outage.good) == (5, True)
            cloud.setblocking(False)
            with pytest.raises(BlockingIOError):
                cloud.recv(1)
            cloud.settimeout(PATIENCE)
            lab.set(LinkSetting())
            assert receive(cloud, 6) == b"during"

    def test_a_trace_is_followed_and_its_end_stays(self, lab: NetLab) -> None:
        settings = [LinkSetting(rtt=milliseconds / 1000) for milliseconds in (500, 300, 30)]
        lab.replay(tuple(TracePoint(index / 50, setting) for index, setting in enumerate(settings)))
        deadline = time.monotonic() + PATIENCE
        while lab.setting != settings[-1]:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert 0.03 <= undisturbed(lab, 5, lambda check: check.lost < 5).quantile(0.0) < 0.3

    def test_a_trace_ends_where_somebody_sets_the_link(self, lab: NetLab) -> None:
        lab.replay(step(LinkSetting(rtt=0.1), LinkSetting(rtt=0.2), at=0.2))
        lab.set(LinkSetting(rtt=0.01))
        threads = {thread.name for thread in threading.enumerate()}
        assert "trace replay" not in threads
        assert lab.setting == LinkSetting(rtt=0.01)


class TestNamespaces:
    def test_threads_and_processes_are_where_they_were_started(self, lab: NetLab) -> None:
        outside = current()
        seen: dict[str, int] = {}
        for side in ("device", "cloud"):
            with lab.run_in("device" if side == "device" else "cloud"):
                thread = threading.Thread(target=lambda side=side: seen.update({side: current()}))
                thread.start()
                thread.join()
                command = [sys.executable, "-c", "import os; print(os.stat('/proc/self/ns/net').st_ino)"]
                assert int(subprocess.check_output(command)) == seen[side] == current()
        assert current() == outside
        assert len({outside, *seen.values()}) == 3

    def test_an_error_inside_leaves_the_namespace(self, lab: NetLab) -> None:
        outside = current()
        with pytest.raises(ValueError), lab.run_in("device"), lab.run_in("cloud"):
            raise ValueError
        assert current() == outside

    def test_nothing_but_the_other_side_is_reachable(self, lab: NetLab) -> None:
        with lab.run_in("device"):
            assert {name for _, name in socket.if_nameindex()} <= {"lo", "link0", "tunl0", "sit0", "ip6tnl0", "gre0"}
            for address in ("192.0.2.1", "10.77.0.3"):
                with pytest.raises(OSError, match="unreachable"):
                    socket.create_connection((address, 80), 1)
            with socket.create_server(("127.0.0.1", 0)) as listener:  # but loopback works
                socket.create_connection(listener.getsockname(), PATIENCE).close()


class TestFailures:
    def test_a_closed_lab_says_so(self) -> None:
        with ExitStack() as resources:
            lab = open_lab(resources)
        for use in (lambda: lab.set(LinkSetting()), lab.check, lambda: lab.run_in("cloud")):
            with pytest.raises(LabFailed, match="not open"):
                use()

    def test_a_dead_link_is_one_sentence(self) -> None:
        with ExitStack() as resources:
            lab = open_lab(resources, "user-space link")
            lab._link._process.process.kill()  # type: ignore[union-attr]
            with pytest.raises(LabFailed, match=r"forwarder of the network lab has ended"):
                lab.set(LinkSetting())
