"""Sessions of devices and the workers that have them. Pure: the gateway asks, and does what it is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from common.transport.interface import Peer, owner

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
        return self._of_keys[owner(peer)] >= self._most_per_key

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
        self._of_keys[owner(key[0])] += 1
        self._loads[worker] += 1
        return Opening(self.openings, worker, None if known else device.hello)

    def free(self, key: Key) -> None:
        """Note the end of a session, if it is open."""
        session = self._session(key)
        if session is None:
            return
        del self._devices[key[0]].sessions[key[1]]
        mine = owner(key[0])
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
