"""The proxy does what its faults say, so that tests built on it test something."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from scripts.netlab.faulty_proxy import FaultyProxy, Line, _Pipe
from tests.common.transport.support import SECONDS, port_of


class Server:
    """Accepts plain TCP connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(SECONDS)
        self.port = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(SECONDS)
        return connection


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.listener.close()


def dial(proxy: FaultyProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(proxy.address)), timeout=SECONDS)


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def test_bytes_pass_unchanged_both_ways_and_ends_pass_too(server: Server) -> None:
    blob = bytes(range(256)) * 4000
    with FaultyProxy(server.port) as proxy, dial(proxy) as device, server.accept() as cloud:
        for sender, receiver in ((device, cloud), (cloud, device)):
            thread = threading.Thread(target=sender.sendall, args=(blob,))
            thread.start()
            assert read(receiver, len(blob)) == blob
            thread.join()
        # The count is made after the bytes were handed on, so it may be there a moment later than they are.
        deadline = time.monotonic() + 10
        while proxy.forwarded != {"up": len(blob), "down": len(blob)} and time.monotonic() < deadline:
            time.sleep(0.001)
        assert proxy.forwarded == {"up": len(blob), "down": len(blob)}
        device.shutdown(socket.SHUT_WR)
        assert cloud.recv(1) == b""


def test_delay_is_per_direction_and_not_a_rate(server: Server) -> None:
    with (
        FaultyProxy(server.port, up=Line(delay=0.1), down=Line(delay=0.05)) as proxy,
        dial(proxy) as device,
        server.accept() as cloud,
    ):
        for sender, receiver, delay in ((device, cloud, 0.1), (cloud, device, 0.05)):
            times = list[float]()
            for _ in range(5):
                begun = time.monotonic()
                for _ in range(20):  # in flight together
                    sender.sendall(b"x")
                assert read(receiver, 20) == b"x" * 20
                times.append(time.monotonic() - begun)
            assert delay <= min(times) < 10 * delay  # a busy machine only adds


def test_jitter_spreads_arrivals_and_keeps_order() -> None:
    draw, line, times = random.Random(3), Line(jitter=0.02), list[float]()
    source, device = socket.socketpair()
    with source, device:
        pipe = _Pipe("up", source, source)
        for number in range(30):
            device.sendall(b"x")
            pipe.read(line, draw, float(number))
            times.append((pipe.due() or 0.0) - number)
            pipe.write(number + 1.0)
        assert read(device, 30) == b"x" * 30
        for number in range(30):
            device.sendall(bytes([number]))
            pipe.read(line, draw, 100.0)
        pipe.write(101.0)
        assert read(device, 30) == bytes(range(30))
    assert 0.0 <= min(times) < 0.006 and 0.014 < max(times) < 0.0201  # as floats are


def test_jitter_takes_time(server: Server) -> None:
    with (
        FaultyProxy(server.port, up=Line(jitter=0.02), seed=3) as proxy,
        dial(proxy) as device,
        server.accept() as cloud,
    ):
        draw, begun = random.Random(6), time.monotonic()
        for number in range(30):
            device.sendall(bytes([number]))
            assert cloud.recv(1) == bytes([number])
        assert time.monotonic() - begun >= 0.02 * sum(draw.random() for _ in range(30))


def test_rate_limits_throughput(server: Server) -> None:
    with (
        FaultyProxy(server.port, up=Line(rate=200_000)) as proxy,
        dial(proxy) as device,
        server.accept() as cloud,
    ):
        begun = time.monotonic()
        device.sendall(bytes(40_000))
        assert len(read(cloud, 40_000)) == 40_000
        assert time.monotonic() - begun >= 0.19


def test_a_lost_segment_comes_a_retransmission_later_and_in_order() -> None:
    draw, line, times = random.Random(3), Line(delay=0.3, loss=0.5), list[float]()
    source, device = socket.socketpair()
    with source, device:
        pipe = _Pipe("up", source, source)
        for number in range(200):
            device.sendall(bytes([number]))
            pipe.read(line, draw, 100.0 * number)
            times.append((pipe.due() or 0.0) - 100.0 * number)
            pipe.write(100.0 * number + 99.0)
        assert read(device, 200) == bytes(range(200))
    repeats = [round((seconds - 0.3) / 0.6, 6) for seconds in times]  # TCP waits for a round trip at least
    assert set(repeats) >= {0.0, 1.0, 2.0} and all(repeat == int(repeat) for repeat in repeats)
    assert 70 <= repeats.count(0.0) <= 130  # of 200, four standard deviations


def test_a_rate_holds_its_sender_back_after_a_second(server: Server) -> None:
    with (
        FaultyProxy(server.port, down=Line(rate=20_000)) as proxy,
        dial(proxy) as device,
        server.accept() as cloud,
    ):
        cloud.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        cloud.setblocking(False)
        with pytest.raises(BlockingIOError):
            for _ in range(2000):  # 4 MB, which the proxy would hold otherwise
                cloud.send(bytes(2000))
        proxy.set_line("down", Line())
        cloud.settimeout(SECONDS)
        assert device.recv(1)


def test_a_black_hole_swallows_nothing_but_time(server: Server) -> None:
    with FaultyProxy(server.port) as proxy, dial(proxy) as device, server.accept() as cloud:
        proxy.black_hole(True)
        device.sendall(b"kept")
        with dial(proxy) as late:  # the kernel accepts, nobody answers
            cloud.settimeout(0.1)
            with pytest.raises(TimeoutError):
                cloud.recv(1)
            server.listener.settimeout(0.05)
            with pytest.raises(TimeoutError):
                server.listener.accept()
            server.listener.settimeout(SECONDS)
            cloud.settimeout(SECONDS)
            proxy.black_hole(False)
            assert read(cloud, 4) == b"kept"
            late.sendall(b"also")
            with server.accept() as other:
                assert read(other, 4) == b"also"


def test_a_black_hole_also_holds_what_is_on_its_way(server: Server) -> None:
    with (
        FaultyProxy(server.port, up=Line(delay=0.03)) as proxy,
        dial(proxy) as device,
        server.accept() as cloud,
    ):
        device.sendall(b"kept")
        proxy.black_hole(True)
        cloud.settimeout(0.1)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                cloud.recv(1)
            proxy.set_delay(0.0)  # any command wakes the proxy's thread
        cloud.settimeout(SECONDS)
        proxy.black_hole(False)
        assert read(cloud, 4) == b"kept"


def test_a_cut_resets_both_ends_and_lets_new_connections_in(server: Server) -> None:
    with (
        FaultyProxy(server.port, up=Line(delay=5.0)) as proxy,
        dial(proxy) as device,
        server.accept() as cloud,
    ):
        device.sendall(b"under way")
        proxy.cut()
        for each in (device, cloud):
            with pytest.raises(ConnectionResetError):
                each.recv(1)
        proxy.set_delay(0.0)
        with dial(proxy) as again, server.accept() as other:
            again.sendall(b"new")
            assert read(other, 3) == b"new"


def test_a_stall_holds_the_sender_back_in_one_direction_only(server: Server) -> None:
    with FaultyProxy(server.port) as proxy, dial(proxy) as device, server.accept() as cloud:
        proxy.stall("down", True)
        cloud.setblocking(False)
        sent = 0
        with pytest.raises(BlockingIOError):
            for _ in range(2000):
                sent += cloud.send(bytes(2**16))
        device.sendall(b"up")
        device.settimeout(0.1)
        with pytest.raises(TimeoutError):
            device.recv(1)
        device.settimeout(SECONDS)
        cloud.settimeout(SECONDS)
        assert read(cloud, 2) == b"up"
        proxy.stall("down", False)
        assert len(read(device, sent)) == sent


def test_without_a_cloud_a_connection_is_reset_and_the_target_can_change(server: Server) -> None:
    with FaultyProxy(1) as proxy:  # nobody listens on port 1
        with pytest.raises(ConnectionResetError), dial(proxy) as device:
            device.recv(1)
        proxy.set_target(server.port)
        with dial(proxy) as device, server.accept() as cloud:
            device.sendall(b"x")
            assert read(cloud, 1) == b"x"


def test_lines_that_cannot_be_are_refused() -> None:
    for wrong in ({"delay": -1.0}, {"jitter": -0.1}, {"rate": 0.0}, {"loss": 1.5}, {"delay": float("nan")}):
        with pytest.raises(ValueError, match="Line"):
            Line(**wrong)
