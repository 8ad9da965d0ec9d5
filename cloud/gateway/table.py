"""Sessions of devices and the workers that have them. Pure: the gateway asks, and does what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from common.transport.interface import Peer, owner

Key = tuple[Peer, int]  # a device's connection, and the number of its session


@dataclass(slots=True)
class _Device:
    """A connection that said hello."""

    hello: bytes  # its frame
    home: int | None = None  # the worker that it was introduced to first: its sessions go there as far as loads allow
    introduced: set[int] = field(default_factory=set)  # workers that know it
    told: bytes = b""  # the latest welcome that was passed on


@dataclass(frozen=True, slots=True)
class Opening:
    """The worker of a new session, and the device's hello where that does not know it yet."""

    worker: int
    hello: bytes | None


class Table:
    """Devices, workers and the sessions between them. For one thread at a time.

    A session stays with its worker. New ones of a device go where its others are, or were, unless another worker has
    `slack` sessions fewer: documents and prompts that a worker has read are quick to be read again.
    """

    def __init__(self, most_per_key: int, slack: int = 2) -> None:
        self._most_per_key = most_per_key
        self._slack = slack
        self._devices: dict[Peer, _Device] = {}
        self._sessions: dict[Key, int] = {}
        self._loads: dict[int, int] = {}  # sessions of the workers that serve
        self._leaving: set[int] = set()  # of these, those that get no new ones

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

    def greeted(self, peer: Peer, hello: bytes) -> int | None:
        """Note a device's hello; the worker that answers it, None where there is none now."""
        device = self._devices.setdefault(peer, _Device(hello))
        device.hello = hello
        if not self._takes(device.home):
            device.home = self._least()
        if device.home is not None:
            device.introduced.add(device.home)
        return device.home

    def welcomed(self, peer: Peer, welcome: bytes) -> bool:
        """Whether a worker's welcome is news for the device, which has to be passed on."""
        device = self._devices.get(peer)
        if device is None or device.told == welcome:
            return False
        device.told = welcome
        return True

    def gone(self, peer: Peer) -> list[int]:
        """Forget a device; the workers that have to be told."""
        knowing = self.known_to(peer)
        self._devices.pop(peer, None)
        for key in [key for key in self._sessions if key[0] == peer]:
            self.free(key)
        return knowing

    def known_to(self, peer: Peer) -> list[int]:
        """The workers that know a device."""
        device = self._devices.get(peer)
        return [] if device is None else sorted(device.introduced)

    # --- sessions

    def find(self, key: Key) -> int | None:
        """The worker of a session."""
        return self._sessions.get(key)

    def full(self, peer: Peer) -> bool:
        """Whether a device has as many sessions as it may, on all workers together."""
        mine = owner(peer)
        return sum(owner(key[0]) == mine for key in self._sessions) >= self._most_per_key

    def opened(self, key: Key) -> Opening | None:
        """Place a session; None where no worker serves, or the device has not said hello."""
        device, least = self._devices.get(key[0]), self._least()
        if device is None or least is None:
            return None
        home = device.home
        if home is None or not self._takes(home):
            device.home = home = least
        worker = home if self._loads[home] < self._loads[least] + self._slack else least
        self._sessions[key] = worker
        self._loads[worker] += 1
        known = worker in device.introduced
        device.introduced.add(worker)
        return Opening(worker, None if known else device.hello)

    def free(self, key: Key) -> None:
        """Note the end of a session, if it is open."""
        worker = self._sessions.pop(key, None)
        if worker in self._loads:
            self._loads[worker] -= 1

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
        self._leaving.discard(worker)
        ended = [key for key, its in self._sessions.items() if its == worker]
        for key in ended:
            del self._sessions[key]
        for device in self._devices.values():
            device.introduced.discard(worker)
        return ended

    def _takes(self, worker: int | None) -> bool:
        """Whether new sessions of a worker's devices go to it."""
        return worker in self._loads and worker not in self._leaving

    def _least(self) -> int | None:
        """The worker with the fewest sessions, one that leaves only where there is no other."""
        taking = [worker for worker in self._loads if worker not in self._leaving] or list(self._loads)
        return min(taking, key=lambda worker: (self._loads[worker], worker), default=None)
