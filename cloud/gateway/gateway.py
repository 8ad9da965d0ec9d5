"""Passes messages on between devices and workers: the only process that devices can reach, and that has the keys."""

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
# Sessions of devices and the workers that have them. Pure: the gateway asks, and does what it is told.

Key = tuple[Peer, int]  # a device's connection, and the number of its session


@dataclass(frozen=True, slots=True)
class _Session:
    worker: int
    fetches: bool  # it is nothing but a document that is fetched
    opening: int  # as the table counts them


@dataclass(slots=True)
class _Device:
    """A connection that said hello."""

    hello: bytes  # its frame
    home: int | None = None  # the worker that its sessions go to as far as loads allow
    introduced: dict[int, int] = field(default_factory=dict)  # workers that know it: since which opening
    told: bytes = b""  # the latest welcome that was passed on
    sessions: dict[int, _Session] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """The worker of a new session, and the device's hello where that does not know it yet."""

    number: int  # which one it is, as the table counts them
    worker: int
    hello: bytes | None


class Table:
    """Devices, workers and the sessions between them. For one thread at a time.

    A session stays with its worker. New ones of a device go to its home, as documents and prompts that a worker has
    read are quick to be read again, unless another worker has `slack` sessions fewer. All workers are home to as many
    devices, but for those that waited for the first one. Opening and freeing a session takes no longer because others
    have many.
    """

    def __init__(self, most_per_key: int, slack: int = 2) -> None:
        self._most_per_key = most_per_key
        self._slack = slack
        self._devices: dict[Peer, _Device] = {}
        self._of_keys: Counter[str | int] = Counter()  # sessions of devices, by what they count for
        self._loads: dict[int, int] = {}  # sessions of the workers that serve
        self._homes: Counter[int] = Counter()  # devices at home with each of them
        self._leaving: set[int] = set()  # of these, those that get no new ones
        self.openings = 0  # of sessions, and of workers to devices that these did not know: so far

    @property
    def workers(self) -> list[int]:
        """Those that serve."""
        return sorted(self._loads)

    @property
    def devices(self) -> list[Peer]:
        """Those that said hello."""
        return list(self._devices)

    def load(self, worker: int) -> int:
        """Sessions of a worker."""
        return self._loads.get(worker, 0)

    # --- devices

    def knows(self, peer: Peer) -> bool:
        """Whether a device has said hello."""
        return peer in self._devices

    def greeted(self, peer: Peer, hello: bytes) -> int | None:
        """Note a device's hello; the worker that answers it, None where there is none now."""
        device = self._devices.setdefault(peer, _Device(hello))
        device.hello = hello
        self._settle(device)
        if device.home is not None:
            self._introduce(device, device.home)
        return device.home

    def welcomed(self, peer: Peer, welcome: bytes) -> bool:
        """Whether a worker's welcome is news for the device, which has to be passed on."""
        device = self._devices.get(peer)
        if device is None or device.told == welcome:
            return False
        device.told = welcome
        return True

    @property
    def ungreeted(self) -> list[tuple[Peer, bytes]]:
        """Devices that no worker has answered, and none will: those without a welcome and a home; with their hellos."""
        return [(peer, each.hello) for peer, each in self._devices.items() if not each.told and each.home is None]

    def gone(self, peer: Peer) -> list[int]:
        """Forget a device; the workers that have to be told."""
        knowing = self.known_to(peer)
        for session in self._sessions(peer):
            self.free((peer, session))
        device = self._devices.pop(peer, None)
        if device is not None and device.home is not None:
            self._homes[device.home] -= 1
        return knowing

    def known_to(self, peer: Peer) -> list[int]:
        """The workers that know a device."""
        device = self._devices.get(peer)
        return [] if device is None else sorted(device.introduced)

    def hears(self, worker: int, peer: Peer, opening: int) -> bool:
        """Whether a device hears what a worker has said, of whose openings it had taken in this one last. What it said
        before it forgot the device is over, also when it knows that again.
        """
        device = self._devices.get(peer)
        return device is not None and worker in device.introduced and device.introduced[worker] <= opening

    def forgotten(self, worker: int, peer: Peer) -> bool:
        """Have a worker forget a device that isn't at home there and has no session; whether it has to be told."""
        device = self._devices.get(peer)
        if device is None or device.home == worker or any(each.worker == worker for each in device.sessions.values()):
            return False
        return device.introduced.pop(worker, None) is not None

    # --- sessions

    def find(self, key: Key) -> int | None:
        """The worker of a session."""
        session = self._session(key)
        return None if session is None else session.worker

    def begun(self, key: Key, worker: int, opening: int) -> bool:
        """Whether a session is this worker's, and was begun with this opening or before it."""
        session = self._session(key)
        return session is not None and session.worker == worker and session.opening <= opening

    def fetches(self, key: Key) -> bool:
        """Whether a session is nothing but a document that is fetched."""
        session = self._session(key)
        return session is not None and session.fetches

    def full(self, peer: Peer) -> bool:
        """Whether a device has as many sessions as it may, on all workers together."""
        return self._of_keys[tenant_of(peer)] >= self._most_per_key

    def opened(self, key: Key, fetches: bool = False) -> Opening | None:
        """Place a session; None where no worker serves, or the device has not said hello."""
        device, least = self._devices.get(key[0]), self._least()
        if device is None or least is None:
            return None
        self._settle(device)
        home = device.home
        assert home is not None  # one serves
        worker = home if self._loads[home] < self._loads[least] + self._slack else least
        known = not self._introduce(device, worker)
        self.openings += 1
        device.sessions[key[1]] = _Session(worker, fetches, self.openings)
        self._of_keys[tenant_of(key[0])] += 1
        self._loads[worker] += 1
        return Opening(self.openings, worker, None if known else device.hello)

    def free(self, key: Key) -> None:
        """Note the end of a session, if it is open."""
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
        """A worker serves from now on."""
        self._loads.setdefault(worker, 0)

    def leaving(self, worker: int) -> None:
        """A worker gets no new sessions if another one can have them; those that it has go on."""
        if worker in self._loads:
            self._leaving.add(worker)

    def lost(self, worker: int) -> list[Key]:
        """A worker serves no more; the sessions that it had, which are free."""
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
        """Note that a worker hears of a device; whether that is news for it."""
        if worker in device.introduced:
            return False
        self.openings += 1
        device.introduced[worker] = self.openings
        return True

    def _settle(self, device: _Device) -> None:
        """Give a device a home, unless it has one; none where no worker serves."""
        if self._takes(device.home):
            return
        if device.home is not None:
            self._homes[device.home] -= 1
        device.home = min(self._taking(), key=lambda worker: (self._homes[worker], worker), default=None)
        if device.home is not None:
            self._homes[device.home] += 1

    def _takes(self, worker: int | None) -> bool:
        """Whether new sessions of a worker's devices go to it."""
        return worker in self._loads and worker not in self._leaving

    def _least(self) -> int | None:
        """The worker with the fewest sessions."""
        return min(self._taking(), key=lambda worker: (self._loads[worker], worker), default=None)

    def _taking(self) -> list[int]:
        """Workers that get new sessions; those that leave only where there is no other."""
        return [worker for worker in self._loads if worker not in self._leaving] or list(self._loads)


# --- gateway

log = logging.getLogger(__name__)

CROWDED: Final = 1.0  # seconds after which a device tries again for which there is no place, or no worker
KNOWN: Final = 10.0  # seconds that a worker knows a device after its last session there, if it is at home elsewhere
TOLD: Final = 2**16  # bytes more or less of what waits for a device, of which its workers are told


class ForwardingLink(LinkToDevices, Protocol):
    """The link to the devices, as the gateway uses it."""

    def forward(self, peer: Peer, kind: str, frame: bytes) -> int:
        """As `send`, for a message that a worker has encoded; `kind` is the name of its type."""
        ...


class Workers(Protocol):
    """The way to the workers."""

    def full(self, number: int, peer: Peer) -> bool: ...

    def send(self, note: Note, number: int) -> bool: ...


class Gateway:
    """Handler of the devices' link and of what workers say, which one thread brings.

    A device's messages are validated here. The sessions of a worker that is lost end: their devices open them again, on
    another worker, with the tokens that they have.
    """

    def __init__(self, workers: Workers, most_per_key: int) -> None:
        self.link: ForwardingLink | None = None  # set before the link starts to deliver
        self.busy = 0  # sessions so far for which there was no place, or no worker
        self.sessions_lost = 0  # so far, with their workers
        self._workers = workers
        self._table = Table(most_per_key)
        self._passed: dict[tuple[int, Peer], _Passed] = {}
        self._left: dict[tuple[int, Peer], float] = {}  # when a device's session at a worker ended last, in that order
        self._lines = QuietLog(log)
        self._closing = False
        self._lock = threading.Lock()  # of the tables

    @property
    def sessions(self) -> dict[int, int]:
        """Open sessions by worker."""
        with self._lock:
            return {worker: self._table.load(worker) for worker in self._table.workers}

    @property
    def devices(self) -> int:
        """Devices that have shaken hands."""
        with self._lock:
            return len(self._table.devices)

    # --- the devices' link

    def on_connected(self, peer: Peer) -> None:
        """Nothing is known of it before it says hello."""

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
        """Tell the devices that the cloud ends; nothing is passed on any more."""
        with self._lock:
            self._closing = True
            peers = self._table.devices
        for peer in peers:
            self._send(peer, stopping_message())

    # --- workers

    def joined(self, worker: int) -> None:
        """A worker serves from now on, those first who wait for one."""
        with self._lock:
            self._table.joined(worker)
        self._greet_anew()

    def leaving(self, worker: int) -> None:
        """A worker gets no new sessions: it is taken away when it has none."""
        with self._lock:
            self._table.leaving(worker)

    def load(self, worker: int) -> int:
        """Sessions of a worker."""
        with self._lock:
            return self._table.load(worker)

    def lost(self, worker: int) -> None:
        """A worker is gone, and its sessions with it."""
        with self._lock:
            ended = self._table.lost(worker)
            self.sessions_lost += len(ended)
            for number, peer in [each for each in self._passed if each[0] == worker]:
                del self._passed[number, peer]
        for peer, session in ended:
            self._send(peer, unknown_session(session))
        self._greet_anew()

    def said(self, worker: int, note: Note) -> None:
        """Pass on what a worker has for a device."""
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
        """Tell workers what waits for devices no more, so that they send what else they have, and which devices they
        need not know any more.
        """
        link = self.link
        if link is None:
            return
        news: list[tuple[int, Peer, _Passed, int]] = []
        with self._lock:
            self._forget_those_that_left()
            for (worker, peer), passed in self._passed.items():
                if passed.bytes == passed.told:  # nearly all devices, at any time
                    continue
                gone = passed.bytes - link.queued(peer)
                if gone - passed.told >= TOLD or (gone == passed.bytes and gone > passed.told):
                    news.append((worker, peer, passed, gone))
        for worker, peer, passed, gone in news:
            if self._workers.send(Note(Kind.PASSED, peer, gone), worker):  # else it is tried again
                passed.told = gone

    # --- inside

    def _ends(self, peer: Peer, message: Message) -> bool:
        """Whether a worker's message is the last one of its session."""
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
        """Have those devices welcomed whose worker was lost before it did, or for whom there was none."""
        with self._lock:
            waiting = [] if self._closing else self._table.ungreeted
            unmet = [peer for peer, hello in waiting if not self._introduce(peer, hello)]
        for peer in unmet:
            self._send(peer, starting_message("waiting for a worker"))

    def _introduce(self, peer: Peer, hello: bytes, repeated: bool = False) -> bool:
        """Have a worker hear of a device; False where there is none. The caller holds the lock, so that a device's end
        comes behind this.
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
            self._forward(peer, message, worker)  # which has it already
        elif opening is None or not self._begin(peer, message, opening):
            self.busy += 1
            self._send(peer, Busy(message.session, int(1e6 * CROWDED)))

    def _begin(self, peer: Peer, message: Open | Fetch, opening: Opening) -> bool:
        """Have a worker begin a session; False where that gets no more now."""
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
        """Hand a device's message over for a worker; False where it was dropped, as too much waits for that already."""
        note = Note(Kind.MESSAGE, peer, opening, encode(message))
        return not self._workers.full(worker, peer) and self._workers.send(note, worker)

    def _free(self, key: Key, worker: int) -> None:
        """Note the end of a session. The caller holds the lock."""
        self._table.free(key)
        self._left.pop((worker, key[0]), None)  # to be the last again
        self._left[worker, key[0]] = time.monotonic()

    def _forget_those_that_left(self) -> None:
        """Have workers forget devices that are at home elsewhere, and which they would probe for ever. The caller holds
        the lock.
        """
        until = time.monotonic() - KNOWN
        while self._left and next(iter(self._left.values())) <= until:
            worker, peer = next(iter(self._left))
            del self._left[worker, peer]
            if self._table.forgotten(worker, peer):
                self._forget(worker, peer)

    def _forget(self, worker: int, peer: Peer) -> None:
        """Have a worker forget a device, as the table has. The caller holds the lock."""
        self._passed.pop((worker, peer), None)
        self._workers.send(Note(Kind.GONE, peer), worker)

    def _send(self, peer: Peer, message: Message) -> None:
        if self.link is not None:
            self.link.send(peer, message)


def session_of(message: Message) -> int:
    """The session that a message is of; 0: none."""
    return int(getattr(message, "session", 0))


class _Passed:
    """Bytes that a worker had for a device."""

    __slots__ = ("bytes", "told")

    def __init__(self) -> None:
        self.bytes = 0  # in all
        self.told = 0  # that were gone when it was told last
