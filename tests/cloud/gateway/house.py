"""A gateway and its workers' links, joined by sockets, between devices and cloud halves that a test plays."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from cloud.gateway.channel import Channel, Kind, Note, WorkerLink
from cloud.gateway.gateway import Gateway
from common.transport.sending import Peer
from proto.errors import ProtocolError
from proto.framing import decode
from proto.messages import (
    Error,
    Fetch,
    Hello,
    Message,
    Open,
    Welcome,
)
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import wait_until

ONE, OTHER = Peer(1, "one"), Peer(2, "other")
HELLO = Hello("device", "m", "t", 100, "s", "e", ("race",), 0.1, 0.0, (), "", "near")
WELCOME = Welcome(replace(HELLO, role="cloud", library="l"), 8, 64, 1000)
FETCH = Fetch(9, "?", 1, "text")


@dataclass
class Devices:
    """The devices' link, whose messages are taken from it when a test wants it."""

    sent: list[tuple[Peer, Message]] = field(default_factory=list)
    waiting: dict[Peer, int] = field(default_factory=dict)

    def send(self, peer: Peer, message: Message) -> int:
        self.sent.append((peer, message))
        return 1

    def forward(self, peer: Peer, kind: str, frame: bytes) -> int:
        self.waiting[peer] = self.waiting.get(peer, 0) + len(frame)
        return self.send(peer, decode(frame, 2**21))

    def queued(self, peer: Peer) -> int:
        return self.waiting.get(peer, 0)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.sent if isinstance(message, kind)]


@dataclass
class Heard:
    """The sessions of a worker, which note what they hear."""

    events: list[object] = field(default_factory=list)

    def on_connected(self, peer: Peer) -> None:
        self.events.append(peer)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        self.events.append(message)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        raise AssertionError("the gateway lets nothing through that is not valid")

    def on_gone(self, peer: Peer) -> None:
        self.events.append(("gone", peer))


class House:
    """A gateway with two workers, in one process."""

    def __init__(self, folder: Path) -> None:
        address = f"ipc://{folder / 's'}"
        self.devices = Devices()
        self.readies = 0  # times that workers have said that they serve
        self._attached = threading.Event()
        self.channel = Channel(address, self._said, tick=self._tick, period=0.01)
        self.gateway = Gateway(self.channel, most_per_key=3)
        self.gateway.link = self.devices
        self.heard = {number: Heard() for number in (1, 2)}
        self.links = {number: WorkerLink(address, number, heard) for number, heard in self.heard.items()}
        self.channel.start()
        for number, link in self.links.items():
            self.channel.open(number)
            link.start()
            link.ready(100)
        wait_until(lambda: list(self.gateway.sessions) == [1, 2], "both workers serve")

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self.channel.close()

    def says(self, message: Message, peer: Peer = ONE) -> None:
        self.gateway.on_message(peer, message, 0)

    def told(self) -> list[str]:
        """Codes of the errors that devices have got."""
        return [error.code for error in self.devices.of(Error) if isinstance(error, Error)]

    def opened(self, session: int, peer: Peer = ONE) -> int:
        """The worker that hears of a session."""
        self.says(replace(OPEN, session=session), peer)
        wait_until(lambda: self.worker_of(session) is not None, "a worker hears of it")
        worker = self.worker_of(session)
        assert worker is not None
        return worker

    def worker_of(self, session: int) -> int | None:
        found = [
            number
            for number, heard in self.heard.items()
            if any(isinstance(each, Open | Fetch) and each.session == session for each in heard.events)
        ]
        return found[-1] if found else None

    def _said(self, number: int, note: Note) -> None:
        if note.kind is Kind.READY:
            self.gateway.joined(number)
            self.readies += 1
        else:
            self.gateway.said(number, note)

    def _tick(self) -> None:
        self.gateway.tick()
