"""Passes messages between devices and workers. The only reachable process, with the keys."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Protocol

from cloud.gateway.channel import Kind, Note
from common.answer.request import no_handshake, starting_message, stopping_message, unknown_session
from common.process.threads import QuietLog
from common.transport.sending import LinkToDevices, Peer, tenant_of
from proto.errors import ProtocolError
from proto.framing import LARGEST_PAYLOAD, decode, encode
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Closed,
    Error,
    Fetch,
    Fetched,
    Hello,
    Message,
    Open,
    ProbeReply,
    Sync,
    Welcome,
)

# --- table
# Sessions and their workers. Pure.

Key = tuple[Peer, int]  # a device's connection and session


@dataclass(frozen=True, slots=True)
class _Session:
    worker: int
    fetches: bool  # only fetches documents
    opening: int  # number


@dataclass(slots=True)
class _Device:
    hello: bytes  # frame
    home: int | None = None  # its sessions' preferred worker
    introduced: dict[int, int] = field(default_factory=dict)  # workers, and the openings that introduced it
    told: bytes = b""  # the latest welcome
    sessions: dict[int, _Session] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """A new session's worker, and the device's hello if needed there."""

    number: int
    worker: int
    hello: bytes | None


class Table:
    """Devices, workers and sessions. For one thread at a time.

    A session stays with its worker. New ones go to the device's home, where known documents and prompts are reread
    fast, unless another worker has `slack` sessions fewer. Workers are home to equally many devices, except the ones
    that waited for the first worker.

    Opening and freeing take no longer with more sessions.
    """

    def __init__(self, most_per_key: int, slack: int = 2) -> None:
        self._most_per_key = most_per_key
        self._slack = slack
        self._devices: dict[Peer, _Device] = {}
        self._of_keys: Counter[str | int] = Counter()  # per tenant
        self._loads: dict[int, int] = {}  # per serving worker
        self._homes: Counter[int] = Counter()  # devices per worker
        self._leaving: set[int] = set()  # serving, without new sessions
        self.openings = 0  # so far: sessions, and introductions

    @property
    def workers(self) -> list[int]:
        return sorted(self._loads)

    @property
    def devices(self) -> list[Peer]:
        return list(self._devices)

    def load(self, worker: int) -> int:
        return self._loads.get(worker, 0)

    # --- devices

    def knows(self, peer: Peer) -> bool:
        return peer in self._devices

    def greeted(self, peer: Peer, hello: bytes) -> int | None:
        """Returns the worker that answers the hello, None if there is none."""
        device = self._devices.setdefault(peer, _Device(hello))
        device.hello = hello
        self._settle(device)
        if device.home is not None:
            self._introduce(device, device.home)
        return device.home

    def welcomed(self, peer: Peer, welcome: bytes) -> bool:
        """Whether a worker's welcome is new to the device."""
        device = self._devices.get(peer)
        if device is None or device.told == welcome:
            return False
        device.told = welcome
        return True

    @property
    def ungreeted(self) -> list[tuple[Peer, bytes]]:
        """Devices that nobody will answer, with their hellos: no welcome and no home."""
        return [(peer, each.hello) for peer, each in self._devices.items() if not each.told and each.home is None]

    def gone(self, peer: Peer) -> list[int]:
        """Forgets a device. Returns the workers to inform."""
        knowing = self.known_to(peer)
        for session in self._sessions(peer):
            self.free((peer, session))
        device = self._devices.pop(peer, None)
        if device is not None and device.home is not None:
            self._homes[device.home] -= 1
        return knowing

    def known_to(self, peer: Peer) -> list[int]:
        device = self._devices.get(peer)
        return [] if device is None else sorted(device.introduced)

    def hears(self, worker: int, peer: Peer, opening: int) -> bool:
        """Whether a worker's message still concerns a device; `opening` is the latest it took in.

        Messages from before the worker forgot the device are outdated.
        """
        device = self._devices.get(peer)
        return device is not None and worker in device.introduced and device.introduced[worker] <= opening

    def forgotten(self, worker: int, peer: Peer) -> bool:
        """Removes a device without home or sessions from a worker. Returns whether to inform it."""
        device = self._devices.get(peer)
        if device is None or device.home == worker or any(each.worker == worker for each in device.sessions.values()):
            return False
        return device.introduced.pop(worker, None) is not None

    # --- sessions

    def find(self, key: Key) -> int | None:
        """Returns a session's worker, None if unknown."""
        session = self._session(key)
        return None if session is None else session.worker

    def begun(self, key: Key, worker: int, opening: int) -> bool:
        """Whether the session is this worker's, begun by this opening or earlier."""
        session = self._session(key)
        return session is not None and session.worker == worker and session.opening <= opening

    def fetches(self, key: Key) -> bool:
        session = self._session(key)
        return session is not None and session.fetches

    def full(self, peer: Peer) -> bool:
        """Whether a device has its maximum of sessions."""
        return self._of_keys[tenant_of(peer)] >= self._most_per_key

    def opened(self, key: Key, fetches: bool = False) -> Opening | None:
        """Places a session. Returns None without a worker or the device's hello."""
        device, least = self._devices.get(key[0]), self._least()
        if device is None or least is None:
            return None
        self._settle(device)
        home = device.home
        assert home is not None
        worker = home if self._loads[home] < self._loads[least] + self._slack else least
        known = not self._introduce(device, worker)
        self.openings += 1
        device.sessions[key[1]] = _Session(worker, fetches, self.openings)
        self._of_keys[tenant_of(key[0])] += 1
        self._loads[worker] += 1
        return Opening(self.openings, worker, None if known else device.hello)

    def free(self, key: Key) -> None:
        session = self._session(key)
        if session is None:
            return
        del self._devices[key[0]].sessions[key[1]]
        mine = tenant_of(key[0])
        self._of_keys[mine] -= 1
        if not self._of_keys[mine]:
            del self._of_keys[mine]
        if session.worker in self._loads:
            self._loads[session.worker] -= 1

    # --- workers

    def joined(self, worker: int) -> None:
        self._loads.setdefault(worker, 0)

    def leaving(self, worker: int) -> None:
        """Stops new sessions of a worker if another can take them."""
        if worker in self._loads:
            self._leaving.add(worker)

    def lost(self, worker: int) -> list[Key]:
        """Returns the lost worker's sessions, which are freed."""
        self._loads.pop(worker, None)
        self._homes.pop(worker, None)
        self._leaving.discard(worker)
        ended = []
        for peer, device in self._devices.items():
            device.introduced.pop(worker, None)
            if device.home == worker:
                device.home = None
            ended += [(peer, number) for number, session in device.sessions.items() if session.worker == worker]
        for key in ended:
            self.free(key)
        return ended

    def _sessions(self, peer: Peer) -> list[int]:
        device = self._devices.get(peer)
        return [] if device is None else list(device.sessions)

    def _session(self, key: Key) -> _Session | None:
        device = self._devices.get(key[0])
        return None if device is None else device.sessions.get(key[1])

    def _introduce(self, device: _Device, worker: int) -> bool:
        """Returns whether the device is new to the worker."""
        if worker in device.introduced:
            return False
        self.openings += 1
        device.introduced[worker] = self.openings
        return True

    def _settle(self, device: _Device) -> None:
        """Gives a device a home, unless no worker serves."""
        if self._takes(device.home):
            return
        if device.home is not None:
            self._homes[device.home] -= 1
        device.home = min(self._taking(), key=lambda worker: (self._homes[worker], worker), default=None)
        if device.home is not None:
            self._homes[device.home] += 1

    def _takes(self, worker: int | None) -> bool:
        return worker in self._loads and worker not in self._leaving

    def _least(self) -> int | None:
        return min(self._taking(), key=lambda worker: (self._loads[worker], worker), default=None)

    def _taking(self) -> list[int]:
        """Workers for new sessions; leaving ones only without others."""
        return [worker for worker in self._loads if worker not in self._leaving] or list(self._loads)


# --- gateway

log = logging.getLogger(__name__)

CROWDED: Final = 1.0  # seconds until a refused device retries
KNOWN: Final = 10.0  # seconds that a worker knows a device, after the last session away from home
TOLD: Final = 2**16  # change of a device's waiting bytes to report to workers


class ForwardingLink(LinkToDevices, Protocol):
    def forward(self, peer: Peer, kind: str, frame: bytes) -> int:
        """Like `send`, for an encoded message of type `kind`."""
        ...


class Workers(Protocol):
    def full(self, number: int, peer: Peer) -> bool: ...

    def send(self, note: Note, number: int) -> bool: ...


class Gateway:
    """Handler of the devices' link and of the workers' messages, on one thread.

    Validates the devices' messages. Devices reopen a lost worker's sessions, with their tokens, on another worker.
    """

    def __init__(self, workers: Workers, most_per_key: int) -> None:
        self.link: ForwardingLink | None = None  # set before the link starts to deliver
        self.busy = 0  # sessions without a slot or worker
        self.sessions_lost = 0  # with their workers
        self._workers = workers
        self._table = Table(most_per_key)
        self._passed: dict[tuple[int, Peer], _Passed] = {}
        self._left: dict[tuple[int, Peer], float] = {}  # ends of last sessions at a worker, in order
        self._lines = QuietLog(log)
        self._closing = False
        self._lock = threading.Lock()  # of the tables

    @property
    def sessions(self) -> dict[int, int]:
        with self._lock:
            return {worker: self._table.load(worker) for worker in self._table.workers}

    @property
    def devices(self) -> int:
        with self._lock:
            return len(self._table.devices)

    # --- the devices' link

    def on_connected(self, peer: Peer) -> None:
        """Does nothing: a device is unknown before its hello."""

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        self._lines.tell(logging.WARNING, "refused a malformed message: %s", error)

    def on_gone(self, peer: Peer) -> None:
        with self._lock:
            for worker in self._table.gone(peer):
                self._forget(worker, peer)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case Hello():
                self._greet(peer, encode(message))
            case ProbeReply():
                with self._lock:
                    workers = self._table.known_to(peer)
                for worker in workers:
                    self._forward(peer, message, worker)
            case Open() | Fetch():
                self._open(peer, message)
            case _:
                self._pass_on(peer, message)

    def close(self) -> None:
        """Announces the end to devices, and stops passing messages."""
        with self._lock:
            self._closing = True
            peers = self._table.devices
        for peer in peers:
            self._send(peer, stopping_message())

    # --- workers

    def joined(self, worker: int) -> None:
        """Adds a serving worker, and welcomes waiting devices."""
        with self._lock:
            self._table.joined(worker)
        self._greet_anew()

    def leaving(self, worker: int) -> None:
        """Stops new sessions of a worker, which leaves once it has none."""
        with self._lock:
            self._table.leaving(worker)

    def load(self, worker: int) -> int:
        with self._lock:
            return self._table.load(worker)

    def lost(self, worker: int) -> None:
        with self._lock:
            ended = self._table.lost(worker)
            self.sessions_lost += len(ended)
            for number, peer in [each for each in self._passed if each[0] == worker]:
                del self._passed[number, peer]
        for peer, session in ended:
            self._send(peer, unknown_session(session))
        self._greet_anew()

    def said(self, worker: int, note: Note) -> None:
        peer, frame = note.peer, note.frame
        if peer is None or self.link is None or self._closing:
            return
        message = decode(frame, LARGEST_PAYLOAD)
        with self._lock:
            if not self._table.hears(worker, peer, note.value):
                return
            news = not isinstance(message, Welcome) or self._table.welcomed(peer, frame)
            self._passed.setdefault((worker, peer), _Passed()).bytes += len(frame)
            key = peer, session_of(message)
            if self._ends(peer, message) and self._table.begun(key, worker, note.value):
                self._free(key, worker)
        if news:
            self.link.forward(peer, type(message).__name__, frame)

    def tick(self) -> None:
        """Tells workers about bytes that left the devices' queues, so that they send more.

        Also makes workers forget devices that they no longer need to know.
        """
        link = self.link
        if link is None:
            return
        news: list[tuple[int, Peer, _Passed, int]] = []
        with self._lock:
            self._forget_those_that_left()
            for (worker, peer), passed in self._passed.items():
                if passed.bytes == passed.told:  # usually
                    continue
                gone = passed.bytes - link.queued(peer)
                if gone - passed.told >= TOLD or (gone == passed.bytes and gone > passed.told):
                    news.append((worker, peer, passed, gone))
        for worker, peer, passed, gone in news:
            if self._workers.send(Note(Kind.PASSED, peer, gone), worker):  # otherwise retried
                passed.told = gone

    # --- inside

    def _ends(self, peer: Peer, message: Message) -> bool:
        if isinstance(message, Fetched):
            last = message.count == 0 or (message.index + 1, message.part + 1) == (message.count, message.parts)
            return last and self._table.fetches((peer, message.session))
        return isinstance(message, Closed | Busy | Error)

    def _greet(self, peer: Peer, hello: bytes) -> None:
        with self._lock:
            met = self._introduce(peer, hello, repeated=self._table.knows(peer))
        if not met:
            self._send(peer, starting_message("waiting for a worker"))

    def _greet_anew(self) -> None:
        """Introduces devices that no worker has answered."""
        with self._lock:
            waiting = [] if self._closing else self._table.ungreeted
            unmet = [peer for peer, hello in waiting if not self._introduce(peer, hello)]
        for peer in unmet:
            self._send(peer, starting_message("waiting for a worker"))

    def _introduce(self, peer: Peer, hello: bytes, repeated: bool = False) -> bool:
        """Introduces a device to a worker. Returns False without one.

        The caller holds the lock, so that a device's end follows.
        """
        worker = self._table.greeted(peer, hello)
        if worker is not None and not (repeated and self._workers.full(worker, peer)):
            self._workers.send(Note(Kind.MESSAGE, peer, self._table.openings, hello), worker)
        return worker is not None

    def _open(self, peer: Peer, message: Open | Fetch) -> None:
        key = peer, message.session
        with self._lock:
            known, worker, opening = self._table.knows(peer), self._table.find(key), None
            if worker is None and not self._closing and not self._table.full(peer):
                opening = self._table.opened(key, fetches=isinstance(message, Fetch))
        if not known:
            self._send(peer, no_handshake(message))
        elif worker is not None:
            self._forward(peer, message, worker)  # it has the session
        elif opening is None or not self._begin(peer, message, opening):
            self.busy += 1
            self._send(peer, Busy(message.session, int(1e6 * CROWDED)))

    def _begin(self, peer: Peer, message: Open | Fetch, opening: Opening) -> bool:
        """Starts a session on a worker. Returns False for a full queue."""
        if opening.hello is not None:
            self._workers.send(Note(Kind.MESSAGE, peer, opening.number, opening.hello), opening.worker)
        begun = self._forward(peer, message, opening.worker, opening.number)
        if not begun:
            with self._lock:
                self._free((peer, message.session), opening.worker)
        return begun

    def _pass_on(self, peer: Peer, message: Message) -> None:
        session = session_of(message)
        with self._lock:
            worker = self._table.find((peer, session))
            if worker is not None and isinstance(message, Cancel | Error):
                self._free((peer, session), worker)
        if worker is None:
            if isinstance(message, Sync | Close):
                self._send(peer, unknown_session(session))
        elif isinstance(message, Cancel | Error):
            self._workers.send(Note(Kind.MESSAGE, peer, frame=encode(message)), worker)
        else:
            self._forward(peer, message, worker)

    def _forward(self, peer: Peer, message: Message, worker: int, opening: int = 0) -> bool:
        """Queues a device's message for a worker. Returns False for a full queue."""
        note = Note(Kind.MESSAGE, peer, opening, encode(message))
        return not self._workers.full(worker, peer) and self._workers.send(note, worker)

    def _free(self, key: Key, worker: int) -> None:
        """The caller holds the lock."""
        self._table.free(key)
        self._left.pop((worker, key[0]), None)  # moves it to the end
        self._left[worker, key[0]] = time.monotonic()

    def _forget_those_that_left(self) -> None:
        """Stops workers' probes of devices with other homes. The caller holds the lock."""
        until = time.monotonic() - KNOWN
        while self._left and next(iter(self._left.values())) <= until:
            worker, peer = next(iter(self._left))
            del self._left[worker, peer]
            if self._table.forgotten(worker, peer):
                self._forget(worker, peer)

    def _forget(self, worker: int, peer: Peer) -> None:
        """The caller holds the lock."""
        self._passed.pop((worker, peer), None)
        self._workers.send(Note(Kind.GONE, peer), worker)

    def _send(self, peer: Peer, message: Message) -> None:
        if self.link is not None:
            self.link.send(peer, message)


def session_of(message: Message) -> int:
    return int(getattr(message, "session", 0))


class _Passed:
    __slots__ = ("bytes", "told")

    def __init__(self) -> None:
        self.bytes = 0  # in total
        self.told = 0  # reported as gone
