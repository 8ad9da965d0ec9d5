"""Watch what connections send, and cut those that send too much, or nothing any more.

ZeroMQ's input is never stopped: libzmq 4.3 ends the process when a connection ends whose input is stopped, and a
heartbeat is due. So it takes in whatever comes, and shows it when the link's thread gets to it; of a message without
an end it shows nothing at all. The kernel knows how much a connection received, whatever that thread is doing.
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
# TCP connections that ZeroMQ owns, reached by their descriptors: what the kernel tells of them, and their end.

# tcpi_bytes_received in Linux's `struct tcp_info`: 8 bytes, 24 32-bit and 3 64-bit fields precede it.
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 8 + 24 * 4 + 3 * 8
_UNREAD = struct.Struct("i")
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST
_DROPPED: Final = 2**20  # bytes at a time

MEASURED: Final = hasattr(socket, "TCP_INFO")  # whether the kernel tells how much a connection received


def remote_of(descriptor: int) -> Any:
    """The peer's address, by which a descriptor that is used again is told apart. Raises `OSError`."""
    with _borrowed(descriptor) as connection:
        return connection.getpeername()


def tcp_received(descriptor: int, remote: Any) -> tuple[int, int] | None:
    """Bytes of the connection to `remote` that the kernel has received, and of these those that the program has read.

    Returns None if the connection is not there any more, or if nobody knows.
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
    """End the connection to `remote` in order, under ZeroMQ, which then closes it: what was sent arrives."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            connection.shutdown(socket.SHUT_RDWR)


def cut_connection(descriptor: int, remote: Any) -> None:
    """End the connection to `remote` without the peer's consent, and drop what ZeroMQ has not read of it."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
            while connection.recv(_DROPPED, socket.MSG_TRUNC | socket.MSG_DONTWAIT):
                pass


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A second handle, closed again at once: while it is open the connection outlives ZeroMQ's closing it."""
    duplicate = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise
    with connection:
        yield connection


# --- inflow

_SWEEP: Final = 0.05  # seconds between looks; what comes between two of them is taken in
_SHARE: Final = 20  # of the processor's time that looking may take: one part in so many
_LATE: Final = 0.25  # seconds by which a look may be late; what is more, this process has slept
# Heartbeats aren't messages: an otherwise silent connection may receive this many bytes per second forever.
_TRICKLE: Final = 1024
_WORTH_WAITING: Final = 250.0  # bytes per second of a message that is on its way in; 2 kb/s
_SMOOTHING: Final = 2.0  # seconds over which that is looked at: segments come one by one
_EVIDENCE: Final = 500  # messages by whose length those behind them are judged
_SMALL: Final = 2**20  # bytes that wait of a connection that isn't to blame if too many do in all

# "endless": a message without an end; "flood": more than fits; "silent": nothing; "crowd": there is no room for it.
Reason = Literal["endless", "flood", "silent", "crowd"]


@dataclass(frozen=True, slots=True)
class InflowLimits:
    message: int  # bytes of a message that isn't whole yet
    waiting: int  # bytes of one connection that wait for the link's thread
    waiting_in_all: int  # bytes
    messages: float  # of one connection that wait, if they are as long as those before: a small one takes 64 bytes


@dataclass(slots=True)
class _Flow:
    remote: Any  # the peer's TCP address
    patience: float  # seconds without a byte
    heard_at: float  # when bytes came last
    since: float  # when `known` was set right
    messages: int = 0  # that the link's thread got so far; only that thread writes these two
    taken: int = 0  # their bytes
    cut: Reason | None = None
    # The rest is the guard's own.
    emptied_at: tuple[int, int] = (0, 0)  # `messages` and `taken` when nothing waited
    counted: int = 0  # of `taken`, at the last look
    arrived: int = 0
    read: int = 0  # by ZeroMQ
    known: int = 0  # of the bytes read, those that the link's thread got, or that were no messages
    waiting: int = 0  # the others
    looked: float = 0.0  # time of the last look
    speed: float = 0.0  # bytes per second that came in lately, with no whole message among them


class InflowGuard:
    """Looks at TCP connections, by descriptor, on a thread of its own: the link's may be busy.

    The other methods are for the link's thread. Where the kernel does not tell what connections received, it cuts
    none but those that it is told to.
    """

    def __init__(self, limits: InflowLimits, name: str, died: Died | None) -> None:
        self._limits = limits
        self._flows: dict[int, _Flow] = {}
        self._left = 0  # bytes of connections that were cut, which the link's thread may not have got rid of yet
        self._emptied = 0  # how often nothing waited; only the link's thread writes it
        self._emptied_before = 0
        self._pause = _SWEEP  # until the next look
        self._swept: float | None = None  # when the last look was
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, f"{name}-guard", died)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for the thread."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch(self, descriptor: int, patience: float, now: float) -> None:
        """A connection was made; it is cut after `patience` seconds of silence."""
        try:
            self._flows[descriptor] = _Flow(remote_of(descriptor), patience, now, now)
        except OSError:
            self._flows.pop(descriptor, None)  # it has ended already

    def be_patient(self, descriptor: int, patience: float) -> None:
        """Change the seconds of silence after which a connection is cut."""
        flow = self._flows.get(descriptor)
        if flow is not None:
            flow.patience = patience

    def forget(self, descriptor: int) -> Reason | None:
        """The connection has ended; why, if it was cut here."""
        flow = self._flows.pop(descriptor, None)
        return None if flow is None else flow.cut

    def reason(self, descriptor: int) -> Reason | None:
        """The reason for which a connection was cut, if it was."""
        flow = self._flows.get(descriptor)
        return None if flow is None else flow.cut

    def heard(self, descriptor: int, size: int) -> bool:
        """A whole message, of `size` bytes on the wire, was taken out of ZeroMQ; False if its connection was cut."""
        flow = self._flows.get(descriptor)
        if flow is None:
            return True
        flow.messages += 1
        flow.taken += size
        return flow.cut is None

    def emptied(self) -> None:
        """Nothing waits inside ZeroMQ."""
        self._emptied += 1

    def arriving(self, descriptor: int) -> bool:
        """Whether part of a message is coming in, no slower than one that is worth waiting for. From any thread."""
        flow = self._flows.get(descriptor)
        return flow is not None and flow.speed >= _WORTH_WAITING

    def disconnect(self, descriptor: int, reason: Reason) -> None:
        """Cut a connection; ZeroMQ then reports it as disconnected."""
        flow = self._flows.get(descriptor)
        if flow is not None and flow.cut is None:
            self._cut(descriptor, flow, reason)

    def end_all(self) -> int:
        """Begin the end of all connections, in order: what was sent arrives. How many there are."""
        for descriptor, flow in self._flows.items():
            end_connection(descriptor, flow.remote)
        return len(self._flows)

    def sweep(self, now: float) -> None:
        """Look at all connections, and cut those that are above a limit or silent."""
        slept = 0.0 if self._swept is None else max(0.0, now - self._swept - self._pause - _LATE)
        self._swept = now
        emptied = self._emptied
        drained, self._emptied_before = emptied != self._emptied_before, emptied
        if drained:
            self._left = 0
        # Copied in one step, as the link's thread adds and drops flows meanwhile. A list of pairs is made pair by pair.
        flows = [(descriptor, flow) for descriptor, flow in self._flows.copy().items() if flow.cut is None]
        for descriptor, flow in flows:
            # A process that was paused, or on a machine that was, tells nothing of its peers' silence.
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
            # What ZeroMQ had read before it was empty, and nobody got, are heartbeats and the begin of a message.
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
        """Whether too many messages wait behind a lot of others, going by how long those were."""
        messages, taken = flow.messages - flow.emptied_at[0], flow.taken - flow.emptied_at[1]
        return messages > _EVIDENCE and flow.waiting * messages > self._limits.messages * taken

    def _cut(self, descriptor: int, flow: _Flow, reason: Reason) -> None:
        flow.cut = reason  # before the end, so that whoever hears of that finds the reason
        self._left += flow.waiting
        cut_connection(descriptor, flow.remote)

    def _run(self) -> None:
        while not self._closing.wait(self._pause):
            # By the processor's clock: a look that others have held up must not be followed by a long pause.
            began = time.thread_time()
            self.sweep(time.monotonic())
            self._pause = max(_SWEEP, _SHARE * (time.thread_time() - began))
