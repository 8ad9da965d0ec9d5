"""The workers of one machine: starts their processes, watches them, and starts those again that end or hang."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cloud.gateway.channel import Channel, Kind, Note
from common.process.python import child_command, python_environment
from common.process.vital import Died

log = logging.getLogger(__name__)

_TICK: Final = 0.02  # seconds
_FIRST_PAUSE: Final = 1.0  # seconds until a worker that ended is started again, doubled each time
_LAST_PAUSE: Final = 60.0
_PROVEN: Final = 60.0  # seconds of service after which it is as if it had never ended
_ENDING: Final = 0.6  # seconds that workers have for their end


class Serving(Protocol):
    """The gateway, as it is told of workers."""

    def joined(self, worker: int) -> None: ...

    def lost(self, worker: int) -> None: ...

    def said(self, worker: int, note: Note) -> None: ...

    def tick(self) -> None: ...


@dataclass(slots=True)
class _Worker:
    """One of the places for a worker. A process that comes after another has a number of its own."""

    number: int
    process: subprocess.Popen[bytes]
    ready: float | None = None  # when it began to serve
    heard: float = 0.0
    pause: float = _FIRST_PAUSE


class Fleet:
    """Implements `Workers`. All of its work is done on the channel's thread, which lasts: with it the processes end.

    `settings` are those of every worker; `silence` are the seconds without a sign of life after which one is killed.
    """

    def __init__(
        self, count: int, settings: Mapping[str, object], folder: Path, silence: float, died: Died | None = None
    ) -> None:
        """The socket is made in `folder`, which is this user's only."""
        self.vocabulary = 0  # of the workers' model, once one is ready
        self._begun = threading.Event()  # one serves, or has ended before any did
        self._serving: Serving | None = None
        self._settings = json.dumps(dict(settings), default=str).encode()
        self._silence = silence
        self._address = f"ipc://{folder / 'workers'}"
        self._channel = Channel(self._address, self._taken, died=died, tick=self._look, period=_TICK)
        self._last = 0
        self._closing = False
        self._places: list[_Worker | None] = [None] * count
        self._again: dict[int, tuple[float, float]] = dict.fromkeys(range(count), (0.0, _FIRST_PAUSE))
        self._closed = threading.Event()

    def start(self) -> None:
        self._channel.start()

    def until_one_serves(self) -> bool:
        """Wait until a worker serves; False where one has ended before: it has said why."""
        self._begun.wait()
        return self.vocabulary > 0

    def serve(self, gateway: Serving) -> None:
        """Tell `gateway` of workers from now on, those that are ready first."""
        done = threading.Event()

        def attach() -> None:
            self._serving = gateway
            for worker in self._workers():
                if worker.ready is not None:
                    gateway.joined(worker.number)
            done.set()

        self._channel.ask(attach)
        done.wait()

    def send(self, note: Note, number: int) -> bool:
        """Hand a note over for a worker, from any thread; False where it is gone, or too much waits for it."""
        return self._channel.send(note, number)

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the thread call `answer` soon, as a sign that it works. From any thread."""
        self._channel.ask(answer)

    def close(self) -> None:
        """End the workers, in order where that takes no longer than a moment, and the thread."""
        self._channel.ask(self._end)
        self._closed.wait(2 * _ENDING)
        self._channel.close()

    # --- on the channel's thread

    def _workers(self) -> list[_Worker]:
        return [worker for worker in self._places if worker is not None]

    def _taken(self, number: int, note: Note) -> None:
        worker = next((each for each in self._workers() if each.number == number), None)
        if worker is None:
            return  # last words of one that was given up
        worker.heard = time.monotonic()
        if note.kind is Kind.READY:
            worker.ready = worker.heard
            self.vocabulary = note.value
            log.info("worker %d serves", number)
            if self._serving is not None:
                self._serving.joined(number)
            self._begun.set()
        elif note.kind is Kind.MESSAGE and self._serving is not None:
            self._serving.said(number, note)

    def _look(self) -> None:
        if self._closing:
            return
        now = time.monotonic()
        for place, worker in enumerate(self._places):
            if worker is None:
                if now >= self._again[place][0]:
                    self._begin(place)
            elif worker.process.poll() is not None:
                self._give_up(place, worker, f"ended (exit code {worker.process.returncode})", now)
            elif worker.ready is not None and now - worker.heard > self._silence:
                worker.process.kill()
                worker.process.wait()
                self._give_up(place, worker, f"was killed: no sign of life for {self._silence:.0f} s", now)
        if self._serving is not None:
            self._serving.tick()

    def _begin(self, place: int) -> None:
        self._last += 1
        number = self._last
        command = child_command("cloud.gateway.worker", str(number), str(place), self._address)
        process = subprocess.Popen(command, env=python_environment(), stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(self._settings)
        process.stdin.close()
        self._channel.open(number)
        self._places[place] = _Worker(number, process, pause=self._again[place][1])

    def _give_up(self, place: int, worker: _Worker, what: str, now: float) -> None:
        log.warning("worker %d %s; another one is started", worker.number, what)
        self._places[place] = None
        self._channel.shut(worker.number)
        if worker.ready is None:
            self._begun.set()
        proven = worker.ready is not None and now - worker.ready > _PROVEN
        pause = _FIRST_PAUSE if proven else worker.pause
        self._again[place] = now + (0.0 if proven else pause), min(2 * pause, _LAST_PAUSE)
        if self._serving is not None:
            self._serving.lost(worker.number)

    def _end(self) -> None:
        self._closing = True
        for worker in self._workers():
            worker.process.terminate()
        until = time.monotonic() + _ENDING
        for worker in self._workers():
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._closed.set()
