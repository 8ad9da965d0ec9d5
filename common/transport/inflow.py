"""Cuts connections that flood the link or fall silent.

ZeroMQ's input is never stopped: libzmq 4.3 aborts when a connection with stopped input ends while a heartbeat is
due. So ZeroMQ reads everything, but shows only whole messages, and only to the link's thread. The kernel's byte
counts show the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from common.process.threads import Died, vital_thread

# --- tcp
# TCP connections of ZeroMQ, reached by descriptor: the kernel's counts, and their end.

# Offset of tcpi_bytes_received in Linux's `struct tcp_info`.
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 8 + 24 * 4 + 3 * 8
_UNREAD = struct.Struct("i")
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST
_DROPPED: Final = 2**20  # bytes read at a time

MEASURED: Final = hasattr(socket, "TCP_INFO")  # whether the kernel counts received bytes


def remote_of(descriptor: int) -> Any:
    """Returns the peer's address, which identifies a reused descriptor. Raises `OSError`."""
    with _borrowed(descriptor) as connection:
        return connection.getpeername()


def tcp_received(descriptor: int, remote: Any) -> tuple[int, int] | None:
    """Returns the bytes received from `remote`, and the part that the program read.

    Returns None for a lost connection, or without byte counts.
    """
    if not MEASURED:
        return None
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            [unread] = _UNREAD.unpack(fcntl.ioctl(connection, termios.FIONREAD, bytes(_UNREAD.size)))
            if len(information) >= _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
                [arrived] = _BYTES_RECEIVED.unpack_from(information, _BYTES_RECEIVED_AT)
                return arrived, arrived - unread
    return None


def end_connection(descriptor: int, remote: Any) -> None:
    """Ends the connection to `remote` in order: sent bytes arrive."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            connection.shutdown(socket.SHUT_RDWR)


def cut_connection(descriptor: int, remote: Any) -> None:
    """Resets the connection to `remote` and drops its input."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
            while connection.recv(_DROPPED, socket.MSG_TRUNC | socket.MSG_DONTWAIT):
                pass


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A second handle, for a moment: it delays the connection's end."""
    duplicate = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise
    with connection:
        yield connection


# --- inflow

_SWEEP: Final = 0.05  # seconds between checks
_SHARE: Final = 20  # divisor of processor time for checks
_LATE: Final = 0.25  # seconds; a later check shows that the process was suspended
# Heartbeats aren't messages: a silent connection may receive this many bytes per second.
_TRICKLE: Final = 1024
_WORTH_WAITING: Final = 250.0  # bytes per second of a message worth waiting for; 2 kb/s
_SMOOTHING: Final = 2.0  # seconds of averaging, as segments arrive one by one
_EVIDENCE: Final = 500  # messages needed to estimate the waiting ones' length
_SMALL: Final = 2**20  # bytes; connections with fewer waiting are never cut for the total

# "endless": message without end; "flood": above a limit; "silent": no bytes; "crowd": too many connections.
Reason = Literal["endless", "flood", "silent", "crowd"]


@dataclass(frozen=True, slots=True)
class InflowLimits:
    message: int  # bytes of an incomplete message
    waiting: int  # bytes per connection not yet taken by the link's thread
    waiting_in_all: int  # bytes of all connections
    messages: float  # waiting per connection, estimated from earlier lengths; a small one takes 64 bytes


@dataclass(slots=True)
class _Flow:
    remote: Any  # the peer's TCP address
    patience: float  # seconds without a byte
    heard_at: float  # time of the last bytes
    since: float  # time of the last exact `known`
    messages: int = 0  # got by the link's thread, the only writer of these two
    taken: int = 0  # their bytes
    cut: Reason | None = None
    # The guard's thread owns the rest.
    emptied_at: tuple[int, int] = (0, 0)  # `messages` and `taken` when nothing waited
    counted: int = 0  # `taken` at the last check
    arrived: int = 0
    read: int = 0  # bytes read by ZeroMQ
    known: int = 0  # bytes of `read` that the link's thread got, or that were no messages
    waiting: int = 0  # the other bytes of `read`
    looked: float = 0.0  # time of the last check
    speed: float = 0.0  # bytes per second lately without a complete message


class InflowGuard:
    """Checks TCP connections by descriptor. Has its own thread, as the link's may be busy.

    Other methods are for the link's thread. Without byte counts, only `disconnect` cuts.
    """

    def __init__(self, limits: InflowLimits, name: str, died: Died | None) -> None:
        self._limits = limits
        self._flows: dict[int, _Flow] = {}
        self._left = 0  # bytes of cut connections that may still wait
        self._emptied = 0  # times that nothing waited; written by the link's thread
        self._emptied_before = 0
        self._pause = _SWEEP  # seconds until the next check
        self._swept: float | None = None  # time of the last check
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, f"{name}-guard", died)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch(self, descriptor: int, patience: float, now: float) -> None:
        """Watches a new connection, cut after `patience` seconds of silence."""
        try:
            self._flows[descriptor] = _Flow(remote_of(descriptor), patience, now, now)
        except OSError:
            self._flows.pop(descriptor, None)  # already ended

    def be_patient(self, descriptor: int, patience: float) -> None:
        """Changes a connection's seconds of allowed silence."""
        flow = self._flows.get(descriptor)
        if flow is not None:
            flow.patience = patience

    def forget(self, descriptor: int) -> Reason | None:
        """Forgets an ended connection. Returns the reason if it was cut, else None."""
        flow = self._flows.pop(descriptor, None)
        return None if flow is None else flow.cut

    def reason(self, descriptor: int) -> Reason | None:
        """Returns the reason if the connection was cut, else None."""
        flow = self._flows.get(descriptor)
        return None if flow is None else flow.cut

    def heard(self, descriptor: int, size: int) -> bool:
        """Counts a message taken from ZeroMQ. Returns False for a cut connection."""
        flow = self._flows.get(descriptor)
        if flow is None:
            return True
        flow.messages += 1
        flow.taken += size
        return flow.cut is None

    def emptied(self) -> None:
        """Notes that nothing waits inside ZeroMQ."""
        self._emptied += 1

    def arriving(self, descriptor: int) -> bool:
        """Whether a message is arriving fast enough. From any thread."""
        flow = self._flows.get(descriptor)
        return flow is not None and flow.speed >= _WORTH_WAITING

    def disconnect(self, descriptor: int, reason: Reason) -> None:
        """Cuts a connection, which ZeroMQ then reports."""
        flow = self._flows.get(descriptor)
        if flow is not None and flow.cut is None:
            self._cut(descriptor, flow, reason)

    def end_all(self) -> int:
        """Ends all connections in order. Returns their number."""
        for descriptor, flow in self._flows.items():
            end_connection(descriptor, flow.remote)
        return len(self._flows)

    def sweep(self, now: float) -> None:
        """Checks all connections; cuts silent ones and those above a limit."""
        slept = 0.0 if self._swept is None else max(0.0, now - self._swept - self._pause - _LATE)
        self._swept = now
        emptied = self._emptied
        drained, self._emptied_before = emptied != self._emptied_before, emptied
        if drained:
            self._left = 0
        # `copy` is atomic; the link's thread changes flows.
        flows = [(descriptor, flow) for descriptor, flow in self._flows.copy().items() if flow.cut is None]
        for descriptor, flow in flows:
            # Suspended time is not the peer's silence.
            flow.heard_at = min(now, flow.heard_at + slept)
            if (reason := self._judged(descriptor, flow, drained, now)) is not None:
                self._cut(descriptor, flow, reason)
        waiting = self._left + sum(flow.waiting for _, flow in flows if flow.cut is None)
        for descriptor, flow in sorted(flows, key=lambda each: each[1].waiting, reverse=True):
            if waiting <= self._limits.waiting_in_all or flow.waiting < _SMALL:
                break
            if flow.cut is None:
                self._cut(descriptor, flow, "flood")

    def _judged(self, descriptor: int, flow: _Flow, drained: bool, now: float) -> Reason | None:
        received = tcp_received(descriptor, flow.remote)
        if received is None:
            return None
        arrived, read = received
        self._measure(flow, arrived, now)
        if arrived != flow.arrived:
            flow.arrived, flow.heard_at = arrived, now
        elif now - flow.heard_at > flow.patience:
            return "silent"
        got, flow.counted = flow.taken - flow.counted, flow.taken
        before, flow.read = flow.read, read
        flow.known = min(flow.known + got, flow.read)
        if drained:
            # Bytes read before ZeroMQ was empty, and not taken, are heartbeats and an incomplete message.
            kept = before - flow.known
            if kept > self._limits.message + _TRICKLE * (now - flow.since):
                return "endless"
            flow.emptied_at = flow.messages, flow.taken
            if got:
                flow.known, flow.since = max(flow.known, before), now
        flow.waiting = flow.read - flow.known
        if flow.waiting > self._limits.waiting + self._limits.message or self._are_many(flow):
            return "flood"
        return None

    @staticmethod
    def _measure(flow: _Flow, arrived: int, now: float) -> None:
        passed, flow.looked = max(now - flow.looked, 1e-3), now
        weight = min(1.0, passed / _SMOOTHING)
        speed = (1.0 - weight) * flow.speed + weight * (arrived - flow.arrived) / passed
        flow.speed = 0.0 if flow.taken != flow.counted else speed

    def _are_many(self, flow: _Flow) -> bool:
        """Estimates the number of waiting messages from the length of earlier ones."""
        messages, taken = flow.messages - flow.emptied_at[0], flow.taken - flow.emptied_at[1]
        return messages > _EVIDENCE and flow.waiting * messages > self._limits.messages * taken

    def _cut(self, descriptor: int, flow: _Flow, reason: Reason) -> None:
        flow.cut = reason  # before the event of the end
        self._left += flow.waiting
        cut_connection(descriptor, flow.remote)

    def _run(self) -> None:
        while not self._closing.wait(self._pause):
            # Processor time, as delays by other threads must not lengthen the pause.
            began = time.thread_time()
            self.sweep(time.monotonic())
            self._pause = max(_SWEEP, _SHARE * (time.thread_time() - began))
