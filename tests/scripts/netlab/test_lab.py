"""Real sockets and real bytes over both emulators of the link."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import get_args

import pytest

from scripts.netlab.lab import Kind, NetLab
from scripts.netlab.namespaces import Unavailable
from scripts.netlab.setting import LinkSetting

PATIENCE = 60.0


@pytest.fixture(scope="module", params=get_args(Kind))
def lab(request: pytest.FixtureRequest) -> Iterator[NetLab]:
    """One lab for many tests; each sets the link as it needs it."""
    with ExitStack() as resources:
        try:
            lab = resources.enter_context(NetLab(kind=request.param, seed=4))
        except Unavailable as error:
            pytest.skip(str(error))
        yield lab


@contextmanager
def connected(lab: NetLab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection through the link: the device's end and the cloud's."""
    with ExitStack() as sockets:
        with lab.run_in("cloud"):
            listener = sockets.enter_context(socket.create_server((lab.route(1)[0], 0)))
        host, port = lab.route(listener.getsockname()[1])
        with lab.run_in("device"):
            device = sockets.enter_context(socket.create_connection((host, port), PATIENCE))
        listener.settimeout(PATIENCE)
        cloud = sockets.enter_context(listener.accept()[0])
        cloud.settimeout(PATIENCE)
        for end in (device, cloud):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield device, cloud


def receive(end: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = end.recv(1 << 16)
        assert part
        data += part
    return bytes(data)


def round_trips(device: socket.socket, cloud: socket.socket, count: int) -> list[float]:
    """Seconds of lone messages there and back, sorted."""
    found = []
    for _ in range(count):
        begun = time.monotonic()
        device.sendall(b"x")
        cloud.sendall(receive(cloud, 1))
        receive(device, 1)
        found.append(time.monotonic() - begun)
    return sorted(found)


class TestLink:
    def test_round_trips_are_the_settings(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.04))
        with connected(lab) as ends:
            assert 0.04 <= round_trips(*ends, 15)[0] <= 0.055  # a busy machine only adds

    def test_jitter_spreads_them(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.02, jitter=1.0))
        with connected(lab) as ends:
            trips = round_trips(*ends, 40)
        assert trips[0] < 0.016 < 0.024 < trips[36]  # a busy machine only adds

    def test_a_change_holds_at_once(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.2))
        with connected(lab) as ends:
            assert round_trips(*ends, 3)[0] >= 0.2
            lab.set(LinkSetting())
            assert lab.setting == LinkSetting()
            assert round_trips(*ends, 9)[0] < 0.1

    def test_bytes_arrive_in_order_whatever_the_jitter(self, lab: NetLab) -> None:
        lab.set(LinkSetting(rtt=0.04, jitter=1.0))
        with connected(lab) as (device, cloud):
            for number in range(150):
                device.sendall(bytes([number]))
            assert list(receive(cloud, 150)) == list(range(150))

    def test_loss_is_repaired_and_takes_time(self, lab: NetLab) -> None:
        data = os.urandom(100_000)
        lab.set(LinkSetting(rtt=0.002, loss=0.05))
        with connected(lab) as (device, cloud):
            threading.Thread(target=device.sendall, args=(data,), daemon=True).start()
            assert receive(cloud, len(data)) == data
            # Of 100 round trips 9.75 % meet a loss: none at all has a probability of 4e-5.
            assert round_trips(device, cloud, 100)[-1] > 0.1

    def test_each_direction_has_a_rate_of_its_own(self, lab: NetLab) -> None:
        lab.set(LinkSetting(uplink=100_000))
        with connected(lab) as (device, cloud):
            seconds = []
            for sender, receiver in ((device, cloud), (cloud, device)):
                begun = time.monotonic()
                threading.Thread(target=sender.sendall, args=(bytes(100_000),), daemon=True).start()
                receive(receiver, 100_000)
                seconds.append(time.monotonic() - begun)
        assert seconds[0] >= 0.95
        assert seconds[1] < seconds[0]

    def test_nothing_passes_in_an_outage_and_connections_survive_it(self, lab: NetLab) -> None:
        lab.set(LinkSetting())
        with connected(lab) as (device, cloud):
            device.sendall(b"before")
            assert receive(cloud, 6) == b"before"
            lab.set(LinkSetting(loss=1.0))
            device.sendall(b"during")
            cloud.settimeout(0.3)
            with pytest.raises(TimeoutError):
                cloud.recv(1)
            cloud.settimeout(PATIENCE)
            lab.set(LinkSetting())
            assert receive(cloud, 6) == b"during"

    def test_a_trace_is_followed_and_its_end_stays(self, lab: NetLab) -> None:
        settings = [LinkSetting(rtt=milliseconds / 1000) for milliseconds in (500, 300, 30)]
        lab.replay(tuple((index / 50, setting) for index, setting in enumerate(settings)))
        deadline = time.monotonic() + PATIENCE
        while lab.setting != settings[-1]:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        with connected(lab) as ends:
            assert 0.03 <= round_trips(*ends, 5)[0] < 0.3

    def test_a_trace_ends_where_somebody_sets_the_link(self, lab: NetLab) -> None:
        lab.replay(((0.0, LinkSetting(rtt=0.1)), (PATIENCE, LinkSetting(rtt=0.2))))
        lab.set(LinkSetting(rtt=0.01))
        assert "trace replay" not in {thread.name for thread in threading.enumerate()}
        assert lab.setting == LinkSetting(rtt=0.01)


class TestNamespaces:
    @pytest.fixture(autouse=True)
    def only_with_namespaces(self, lab: NetLab) -> None:
        if lab.kind != "netem":
            pytest.skip("the user-space link has no namespaces")

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


def test_without_netem_the_link_is_in_user_space(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PATH", "")  # no `tc`
    with pytest.raises(Unavailable), NetLab(kind="netem"):
        pass
    with NetLab() as lab:
        assert lab.kind == "user-space link"


def current() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino
