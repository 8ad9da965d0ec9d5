"""Workers that are links in this process, launched by a fleet as others are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud.gateway.channel import ChannelKeys, WorkerLink
from cloud.gateway.fleet import WorkerProcess
from tests.cloud.gateway.house import Heard

VOCABULARY = 100
PATIENCE = 60.0  # seconds for what takes none
SILENCE = 1.0
REASON = "ended (for a test)"


@dataclass
class Worker:
    """Stands for the process of a worker: what it would have for the gateway is in this one."""

    link: WorkerLink
    how: str | None = None
    leaves: bool = False
    wrong: bool = False  # its settings

    def ended(self) -> str | None:
        return self.how

    def misconfigured(self) -> bool:
        return self.wrong

    def leaving(self) -> bool:
        return self.leaves

    def awaited(self) -> str:
        return "it waits for a test"

    def terminate(self) -> None:
        self.end()

    def kill(self) -> None:
        self.end()

    def end(self) -> None:
        self.link.close()
        self.how = REASON


@dataclass
class Launch:
    """Starts such workers."""

    address: str
    keys: ChannelKeys | None = None
    metrics: Callable[[int], bytes] = lambda place: f"# TYPE place gauge\nplace {place}\n".encode()
    workers: list[Worker] = field(default_factory=list)
    closed: bool = False
    hold: threading.Event = field(default_factory=threading.Event)  # set: those that start don't serve yet

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        link = WorkerLink(address, number, Heard(), keys=self.keys, metrics=lambda: self.metrics(place))
        link.start()
        if not self.hold.is_set():
            link.ready(VOCABULARY)
        self.workers.append(worker := Worker(link))
        return worker

    def close(self) -> None:
        self.closed = True
