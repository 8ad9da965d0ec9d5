"""Floods whose connection ends in the middle: `python -m tests.attacks.dropped_floods [TRIES]`, beside two busy loops.

libzmq ends the process if a connection ends while its input is stopped, as it is where a queue is full, and a
heartbeat is sent or answered then. So nothing may stop its input, and nobody's flood may fill the memory instead.
"""

from __future__ import annotations

import contextlib
import random
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.sending import Limits, Peer
from proto.framing import encode
from proto.messages import Cancel, Draft, Message, Sync
from tests.attacks.side_by_side import ROOT, resident_bytes
from tests.common.transport.support import Echo, RawPeer, Recorder, draft

# Of whom is attacked: a heartbeat falls into every try, and a device comes again at once.
QUICK: Final = Limits(heartbeat_interval=0.05, backoff_last=0.1, pause_first=0.05, pause_last=0.1)
LARGE: Final = encode(Sync(999, 0, (1,) * 60_000, "device", False))  # takes long to read
SMALL: Final = encode(Cancel(7))
TINY: Final = b"\x00\x00"  # an empty frame
PING: Final = b"\x04\x07\x04PING\x00\x00"
FLOOD: Final = 600  # large messages of a try
PINGED: Final = 4000  # small ones, each followed by a PING
ANSWERED: Final = 20.0  # seconds in which a good peer beside must have its answer
RESET: Final = struct.pack("ii", 1, 0)
FULL_SPEED: Final = 4.0  # seconds of a flood without a pause, unless it is cut before
LOOK: Final = 0.05  # seconds between a link's looks at what comes in
HELD: Final = 64  # bytes of memory for each message beside its own
KEPT: Final = 64 * 2**20  # bytes; what a link lets wait, and allocators keep


class Victim:
    """A link in a process of its own. A context manager."""

    def __init__(self, role: str, address: str = "") -> None:
        command = [sys.executable, "-m", "tests.attacks.dropped_floods", role, *([address] if address else [])]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is not None:
                self.check()  # what ended the process is what went wrong first
        finally:
            self._process.kill()
            self._process.communicate()

    @property
    def memory(self) -> int:
        """Bytes."""
        return resident_bytes(self._process.pid)

    def check(self) -> None:
        code = self._process.poll()
        if code is not None:
            assert self._process.stderr is not None
            raise AssertionError(f"the process ended with {code}: {self._process.stderr.read()[-300:]}")

    def end(self) -> int:
        """Let it end in order; its exit code."""
        self._process.communicate(timeout=60)
        return self._process.returncode


def attacked_cloud() -> None:
    """Serve until the input ends."""
    echo = Echo()
    with CloudLink("tcp://127.0.0.1:0", None, Forgetful(echo), QUICK) as link:
        echo.link = link
        print(link.address, flush=True)
        sys.stdin.read()


def attacked_device(address: str) -> None:
    """Stay connected until the input ends, and greet whoever is there."""

    class Greeting(Recorder):
        def on_connected(self, peer: Peer) -> None:
            link.send(draft(1))

    with DeviceLink(address, None, Forgetful(Greeting()), QUICK) as link:
        print(address, flush=True)
        sys.stdin.read()


class Forgetful:
    """A handler that keeps nothing: what a test remembers is no leak of the link."""

    def __init__(self, handler: Recorder) -> None:
        self._handler = handler
        self.on_connected = handler.on_connected
        self.on_gone = handler.on_gone

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        self._handler.on_message(peer, message, size)
        self._handler.messages.clear()

    def on_invalid(self, peer: Peer, error: Exception) -> None:
        pass


def strike(connection: socket.socket, number: int) -> None:
    """Send faster than anybody reads, then end the connection: by FIN or RST, soon or when a heartbeat is due."""
    with contextlib.suppress(OSError):
        if number % 2:
            connection.sendall((frame(SMALL) + PING) * PINGED)
        else:
            block = frame(LARGE) * 10
            for _ in range(FLOOD // 10):
                connection.sendall(block)
        time.sleep(random.uniform(0.0, 0.1))
    if number % 4 < 2:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def frame(body: bytes) -> bytes:
    return (struct.pack(">BB", 0, len(body)) if len(body) < 256 else struct.pack(">BQ", 2, len(body))) + body


class LyingCloud:
    """Lets devices in, by hand, and strikes at once."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ANSWERED)
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self) -> socket.socket:
        """A device's connection after its first message."""
        while True:
            connection, _ = self._listener.accept()
            connection.settimeout(10)
            with contextlib.suppress(OSError, AssertionError):
                RawPeer.greet(connection, b"ROUTER")
                connection.recv(1)
                return connection
            connection.close()

    def close(self) -> None:
        self._listener.close()


@dataclass(slots=True)
class GoodPeer:
    """A device beside the attack; `answer` is one exchange with the cloud."""

    link: DeviceLink
    seen: Recorder
    number: int = 0

    def answer(self) -> float:
        """Seconds until an answer came."""
        self.number += 1
        begun = time.monotonic()
        assert self.link.send(draft(self.number)), self.link.status()
        self.seen.wait(lambda: draft(self.number) in self.seen.received(Draft), ANSWERED)
        self.seen.messages.clear()
        return time.monotonic() - begun


@contextlib.contextmanager
def good_peer(address: str) -> Iterator[GoodPeer]:
    seen = Recorder()
    with DeviceLink(address, None, seen) as link:
        seen.wait(lambda: seen.connected)
        yield GoodPeer(link, seen)
        assert not seen.gone, "the good device lost its connection"


@contextlib.contextmanager
def busy_loops(count: int = 2) -> Iterator[None]:
    """Other work on the machine."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def attack_cloud(tries: int) -> list[float]:
    """Strike a cloud; seconds of the good peer's answers."""
    with Victim("cloud") as victim:
        times = []
        with good_peer(victim.address) as good:
            for number in range(tries):
                strike(_let_in(victim), number)
                victim.check()
                times.append(good.answer())
        assert victim.end() == 0
        return times


def _let_in(victim: Victim) -> socket.socket:
    """A new connection; while what a cut one left behind is cleared away, newcomers are turned away."""
    deadline = time.monotonic() + ANSWERED
    while True:
        try:
            return RawPeer(victim.address).connection
        except (OSError, AssertionError):
            if time.monotonic() > deadline:
                raise


def attack_device(tries: int) -> list[float]:
    """Strike a device; seconds until it comes again."""
    cloud = LyingCloud()
    with contextlib.closing(cloud), Victim("device", cloud.address) as victim:
        times = []
        for number in range(tries):
            begun = time.monotonic()
            connection = cloud.accept()
            times.append(time.monotonic() - begun)
            strike(connection, number)
            victim.check()
        cloud.accept().close()
        assert victim.end() == 0
        return times


@dataclass(frozen=True, slots=True)
class Flooded:
    """A flood, and the memory above that before, in bytes: at the most, and in the end."""

    most: int
    after: int
    seconds: float  # until it was cut
    sent: int  # messages
    size: int  # bytes of each on the wire

    @property
    def worth(self) -> int:
        """Bytes of memory that all of it would take."""
        return self.sent * (self.size + HELD)

    def allowed(self, looks: int) -> float:
        """Bytes of memory that a cloud may take which looks so late: what comes meanwhile is taken in at any speed."""
        return KEPT + min(1.0, looks * LOOK / self.seconds) * self.worth

    def __str__(self) -> str:
        after, worth = (each / 2**20 for each in (self.after, self.worth))
        told = f"{self.most / 2**20:.0f} MiB more, {after:.0f} afterwards, of {worth:.0f}"
        return f"{self.size} bytes on the wire: cut after {self.seconds:.2f} s, {told}"


def flood(body: bytes, seconds: float = FULL_SPEED) -> Flooded:
    """Flood a cloud."""
    with Victim("cloud") as victim, good_peer(victim.address) as good:
        good.answer()
        before, most, done = victim.memory, 0, threading.Event()

        def look() -> None:
            nonlocal most
            while not done.wait(0.01):
                most = max(most, victim.memory - before)

        looking = threading.Thread(target=look)
        looking.start()
        connection = RawPeer(victim.address).connection
        size = len(frame(body))
        together, sent = max(1, 2**18 // size), 0
        block, begun = frame(body) * together, time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < begun + seconds:
                connection.sendall(block)
                sent += together
        lasted = time.monotonic() - begun
        connection.close()
        good.answer()
        done.set()
        looking.join()
        victim.check()
        return Flooded(most, victim.memory - before, lasted, sent, size)


def main() -> None:
    """The attack in full, and what it costs."""
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with busy_loops():
        for attack in (attack_cloud, attack_device):
            times = attack(tries // 2)
            print(f"{attack.__name__}: {len(times)} tries, {statistics.median(times):.2f} s, once {max(times):.2f} s")
    for size in (0, 20, 1000, 60_000):
        print(flood(bytes(size)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["cloud"]:
        attacked_cloud()
    elif sys.argv[1:2] == ["device"]:
        attacked_device(sys.argv[2])
    else:
        main()
