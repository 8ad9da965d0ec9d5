"""The user-space link: a TCP proxy on loopback with the delays and the faults of a network.

The network lab takes it where the kernel has no netem. Tests and benchmarks choose its faults one by one.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

Direction = Literal["up", "down"]  # up is from the device to the cloud

_HOST: Final = "127.0.0.1"
_HELD: Final = 2**22  # bytes in flight per direction; beyond them the sender is held back, as by a TCP window
_SEGMENT: Final = 1448  # bytes; a rate and losses apply to each
_BACKLOG: Final = 1.0  # seconds of waiting for the rate; beyond them the sender is held back
_RETRANSMISSION: Final = 0.2  # seconds after which TCP repeats a lost segment, at least
_CHUNK: Final = 2**16
_PATIENCE: Final = 10.0  # seconds in which a command must have taken effect
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST


@dataclass(frozen=True, slots=True)
class Line:
    """One direction of the network."""

    delay: float = 0.0  # seconds, one way
    jitter: float = 0.0  # seconds, uniform on top; order is kept, as TCP does
    rate: float | None = None  # bytes per second
    loss: float = 0.0  # share of the segments that TCP repeats; 1 is an outage

    def __post_init__(self) -> None:
        if not (self.delay >= 0 and self.jitter >= 0 and (self.rate is None or self.rate > 0) and 0 <= self.loss <= 1):
            raise ValueError(f"{self} needs a delay and a jitter of at least 0, a rate above 0 and a loss from 0 to 1.")


PERFECT: Final = Line()


class _Pipe:
    """One direction of one connection: bytes and when they are due at the other end."""

    def __init__(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        self.direction = direction
        self.source = source
        self.sink = sink
        self.ended = False
        self.blocked = False  # the sink takes no more at the moment
        self.held = 0
        self._parts: deque[tuple[float, bytes]] = deque()  # an empty part is the end
        self._free_at = 0.0

    def due(self) -> float | None:
        return self._parts[0][0] if self._parts else None

    def wants(self, line: Line, now: float) -> bool:
        """Whether it reads on."""
        waiting = 0.0 if line.rate is None else self._free_at - now
        return not self.ended and self.held < _HELD and line.loss < 1 and waiting <= _BACKLOG

    def read(self, line: Line, draw: random.Random, now: float) -> int:
        """Take what has arrived; how many bytes that were."""
        data = self.source.recv(_SEGMENT if line.rate or line.loss else _CHUNK)
        if line.rate is not None:
            self._free_at = max(self._free_at, now) + len(data) / line.rate
        arrival = max(now, self._free_at) + line.delay + line.jitter * draw.random()
        while line.loss and draw.random() < line.loss:
            arrival += max(_RETRANSMISSION, 2 * line.delay)
        self._parts.append((arrival, data))  # one that is due before its predecessor waits for it
        self.held += len(data)
        self.ended = not data
        return len(data)

    def write(self, now: float) -> tuple[int, bool]:
        """Deliver what is due; how many bytes that were, and whether the end was among it."""
        delivered = 0
        self.blocked = False
        while self._parts and self._parts[0][0] <= now:
            due, data = self._parts.popleft()
            if not data:
                return delivered, True
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                sent = 0
            delivered += sent
            self.held -= sent
            if sent < len(data):
                self._parts.appendleft((due, data[sent:]))
                self.blocked = True
                break
        return delivered, False


class FaultyProxy:
    """Forwards connections from its own `address` to the cloud at `port`, both on loopback.

    Faults hold from the moment the method returns. Jitter is drawn from `seed`, in the order in which pieces
    arrive. Setting up a connection itself takes no time, whatever the delay.
    """

    def __init__(self, port: int, up: Line = PERFECT, down: Line = PERFECT, *, seed: int = 0, listen: int = 0) -> None:
        self._port = port
        self._lines: dict[Direction, Line] = {"up": up, "down": down}
        self._draw: dict[Direction, random.Random] = {
            "up": random.Random(2 * seed),
            "down": random.Random(2 * seed + 1),
        }
        self._forwarded: dict[Direction, int] = {"up": 0, "down": 0}
        self._stalled: set[Direction] = set()
        self._dark = False
        self._pairs: list[tuple[_Pipe, _Pipe]] = []
        self._commands: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._listener = socket.create_server((_HOST, listen))
        self._listener.setblocking(False)
        self._receiver, self._sender = socket.socketpair()
        self._running = True
        self.seen: list[tuple[float, Direction, int]] = []  # time, direction and bytes of every piece that arrived
        self.address = f"tcp://{_HOST}:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def forwarded(self) -> dict[Direction, int]:
        """Bytes delivered so far in each direction."""
        return dict(self._forwarded)

    def set_line(self, direction: Direction, line: Line) -> None:
        """Change delay, jitter, rate and loss for what is sent from now on."""
        self._order(lambda: self._lines.update({direction: line}))

    def set_delay(self, seconds: float) -> None:
        """Change the one-way delay of both directions."""
        for direction in ("up", "down"):
            self.set_line(direction, replace(self._lines[direction], delay=seconds))

    def set_target(self, port: int) -> None:
        """Forward new connections to `port`."""
        self._order(lambda: setattr(self, "_port", port))

    def black_hole(self, dark: bool) -> None:
        """Forward nothing, connect nobody, until switched off. What was sent arrives then: TCP repeats it."""
        self._order(lambda: setattr(self, "_dark", dark))

    def stall(self, direction: Direction, stalled: bool) -> None:
        """Stop reading one direction: its sender meets a full window, as with a stopped or slow reader."""
        self._order(lambda: (self._stalled.add if stalled else self._stalled.discard)(direction))

    def cut(self) -> None:
        """Reset every connection; what is under way is lost. New connections are forwarded."""
        self._order(self._drop_all)

    def close(self) -> None:
        """Reset every connection and stop."""
        if self._running:
            self._order(lambda: setattr(self, "_running", False))
        self._thread.join()

    def _order(self, command: Callable[[], None]) -> None:
        done = threading.Event()
        self._commands.append((command, done))
        self._sender.send(b"\0")
        if not done.wait(_PATIENCE):
            raise RuntimeError("The proxy's thread doesn't answer.")

    def _run(self) -> None:
        while self._running:
            readable, writable, _ = select.select(*self._interests(), [], self._patience())
            if self._receiver in readable:
                self._obey()
            if not self._dark:
                if self._listener in readable:
                    self._accept()
                for pair in list(self._pairs):
                    self._forward(pair, set(readable), set(writable))
        self._drop_all()
        for each in (self._listener, self._receiver, self._sender):
            each.close()

    def _obey(self) -> None:
        self._receiver.recv(_CHUNK)
        while self._commands:
            command, done = self._commands.popleft()
            command()
            done.set()

    def _interests(self) -> tuple[list[socket.socket], list[socket.socket]]:
        if self._dark:
            return [self._receiver], []
        pipes = [pipe for pair in self._pairs for pipe in pair]
        now = time.monotonic()
        reading = [pipe.source for pipe in pipes if self._wants(pipe, now)]
        return [self._receiver, self._listener, *reading], [pipe.sink for pipe in pipes if pipe.blocked]

    def _wants(self, pipe: _Pipe, now: float) -> bool:
        return pipe.direction not in self._stalled and pipe.wants(self._lines[pipe.direction], now)

    def _patience(self) -> float | None:
        if self._dark:
            return None
        dues = [pipe.due() for pair in self._pairs for pipe in pair if not pipe.blocked]
        times = [due for due in dues if due is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _accept(self) -> None:
        try:
            device, _ = self._listener.accept()
        except OSError:
            return
        try:
            cloud = socket.create_connection((_HOST, self._port), timeout=1.0)
        except OSError:
            _reset(device)
            return
        for each in (device, cloud):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs.append((_Pipe("up", device, cloud), _Pipe("down", cloud, device)))

    def _forward(self, pair: tuple[_Pipe, _Pipe], readable: set[socket.socket], writable: set[socket.socket]) -> None:
        try:
            for pipe in pair:
                now = time.monotonic()
                if pipe.source in readable and self._wants(pipe, now):
                    size = pipe.read(self._lines[pipe.direction], self._draw[pipe.direction], now)
                    self.seen.append((now, pipe.direction, size))
                if not pipe.blocked or pipe.sink in writable:
                    delivered, ended = pipe.write(time.monotonic())
                    self._forwarded[pipe.direction] += delivered
                    if ended:
                        self._drop(pair, abort=False)
                        return
        except OSError:
            self._drop(pair, abort=True)

    def _drop(self, pair: tuple[_Pipe, _Pipe], abort: bool) -> None:
        self._pairs.remove(pair)
        for each in (pair[0].source, pair[0].sink):
            if abort:
                _reset(each)
            else:
                each.close()

    def _drop_all(self) -> None:
        for pair in list(self._pairs):
            self._drop(pair, abort=True)


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
