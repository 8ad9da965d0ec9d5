"""Keeps workers running: has them started, watches them, and has those started again that end or hang."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cloud.gateway.channel import Channel, Kind, Note
from cloud.gateway.processes import Launcher, WorkerProcess
from common.answer.watch import Stopwatch
from common.process.vital import Died
from common.transport.interface import Peer

log = logging.getLogger(__name__)

_TICK: Final = 0.02  # seconds
_TURN: Final = 0.005  # seconds between two looks at a worker that is told to end
_REMINDER: Final = 20.0  # seconds between two sentences about a worker that does not serve yet
_FIRST_PAUSE: Final = 1.0  # seconds until a worker that ended is started again, doubled each time
_LAST_PAUSE: Final = 60.0
_PROVEN: Final = 60.0  # seconds of service after which it is as if it had never ended
_ENOUGH: Final = 2  # ends in each place, before any has served, that make a start one in vain
_ENDING: Final = 0.6  # seconds that workers have for their end


class Serving(Protocol):
    """The gateway, as it is told of workers."""

    def joined(self, worker: int) -> None: ...

    def leaving(self, worker: int) -> None: ...

    def load(self, worker: int) -> int: ...

    def lost(self, worker: int) -> None: ...

    def said(self, worker: int, note: Note) -> None: ...

    def tick(self) -> None: ...


@dataclass(slots=True)
class _Worker:
    """One of the places for a worker. A process that comes after another has a number of its own."""

    number: int
    process: WorkerProcess
    begun: float
    reminders: int = 0
    ready: float | None = None  # when it began to serve
    heard: float = 0.0  # when it gave a sign of life, by the fleet's clock
    pause: float = _FIRST_PAUSE


@dataclass(slots=True)
class _Scrape:
    """The metrics of all workers, on their way."""

    waiting: dict[int, int]  # places by number, of those that have not answered
    texts: dict[int, bytes] = field(default_factory=dict)  # by place
    done: threading.Event = field(default_factory=threading.Event)

    def came(self, number: int, text: bytes | None) -> None:
        """Note an answer, None where there won't be one."""
        place = self.waiting.pop(number, None)
        if place is not None and text is not None:
            self.texts[place] = text
        if not self.waiting:
            self.done.set()


class Fleet:
    """Implements `Workers`. All of its work is done on the channel's thread, which lasts, as a `Launcher` wants it.

    `silence` are the seconds without a sign of life after which a worker is killed.
    """

    def __init__(self, count: int, launcher: Launcher, silence: float, died: Died | None = None) -> None:
        self.vocabulary = 0  # of the workers' model, once one is ready
        self._begun = threading.Event()  # one serves, or none can
        self._lost = [0] * count  # workers that have ended, by place
        self._serving: Serving | None = None
        self._launcher = launcher
        self._silence = silence
        self._clock = Stopwatch()  # of silence: while this process sleeps, as in a container that is paused, all may
        self._channel = Channel(
            launcher.address, self._taken, keys=launcher.keys, died=died, tick=self._look, period=_TICK
        )
        self.turns = self._channel.turns  # of the thread
        self._last = 0
        self._ends = {"ended": 0, "silent": 0}  # of workers, by what happened
        self._scrape: _Scrape | None = None
        self._closing = False
        self._places: list[_Worker | None] = [None] * count
        self._leaving: list[_Worker] = []  # which others have replaced, and which have sessions still
        self._killed: list[WorkerProcess] = []  # that have not ended yet: the system may take long, or for ever
        self._again: dict[int, tuple[float, float]] = dict.fromkeys(range(count), (0.0, _FIRST_PAUSE))
        self._closed = threading.Event()

    def start(self) -> None:
        self._channel.start()

    def until_one_serves(self) -> bool:
        """Wait until a worker serves; False where none can: those that have ended before have said why."""
        self._begun.wait()
        return self.vocabulary > 0

    def serve(self, gateway: Serving) -> None:
        """Tell `gateway` of workers from now on, those that are ready first."""

        def attach() -> None:
            self._serving = gateway
            for worker in self._workers():
                if worker.ready is not None:
                    self._join(gateway, worker)

        self.turns.perform(attach)

    def send(self, note: Note, number: int) -> bool:
        """Hand a note over for a worker, from any thread; False where it is gone, or too much waits for it."""
        return self._channel.send(note, number)

    def full(self, number: int, peer: Peer) -> bool:
        """Whether so much waits for a worker, of all or of this device, that it gets no more of what may be dropped."""
        return self._channel.full(number, peer)

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the thread call `answer` soon, as a sign that it works. From any thread."""
        self._channel.ask(answer)

    @property
    def serving(self) -> int:
        """Workers that serve."""
        return sum(worker.ready is not None for worker in self._workers())

    @property
    def ends(self) -> tuple[tuple[str, int], ...]:
        """Ends of workers so far: those that `ended`, and those that were killed because they were `silent`."""
        return tuple(self._ends.items())

    def metrics(self, patience: float) -> dict[int, bytes]:
        """The metrics of all workers that serve and tell them within `patience` seconds, by place. For one thread."""
        scrapes: list[_Scrape] = []
        asked = threading.Event()

        def ask() -> None:
            places = enumerate(self._places)
            waiting = {worker.number: place for place, worker in places if worker and worker.ready is not None}
            self._scrape = scrape = _Scrape(waiting)
            scrapes.append(scrape)
            for number in waiting:
                self._channel.send(Note(Kind.METRICS), number)
            if not waiting:
                scrape.done.set()
            asked.set()

        self._channel.ask(ask)
        if not asked.wait(patience):
            return {}
        scrapes[0].done.wait(patience)
        return dict(scrapes[0].texts)

    def close(self) -> None:
        """End the workers, in order where that takes no longer than a moment, and the thread."""
        self._channel.ask(self._end)
        self._closed.wait(2 * _ENDING)
        self._channel.close()

    # --- on the channel's thread

    def _workers(self) -> list[_Worker]:
        return [*(worker for worker in self._places if worker is not None), *self._leaving]

    def _taken(self, number: int, note: Note) -> None:
        worker = next((each for each in self._workers() if each.number == number), None)
        if worker is None:
            return  # last words of one that was given up
        if note.kind in (Kind.READY, Kind.ALIVE):  # all else comes from threads that may work while others hang
            worker.heard = self._clock.total
        if note.kind is Kind.READY:
            worker.ready = time.monotonic()
            self.vocabulary = note.value
            log.info("worker %d serves", number)
            if self._serving is not None:
                self._join(self._serving, worker)
            self._begun.set()
        elif note.kind is Kind.MESSAGE and self._serving is not None:
            self._serving.said(number, note)
        elif note.kind is Kind.METRICS and self._scrape is not None:
            self._scrape.came(number, note.frame)

    def _join(self, gateway: Serving, worker: _Worker) -> None:
        gateway.joined(worker.number)
        if worker in self._leaving:  # since it began to load
            gateway.leaving(worker.number)

    def _look(self) -> None:
        if self._closing:
            return
        now = time.monotonic()
        self._clock.look(now)
        for place, worker in enumerate(self._places):
            if worker is None:
                if now >= self._again[place][0]:
                    self._begin(place)
            elif (how := self._end_of(worker, now)) is not None:
                self._again_at(place, worker, now)
                self._give_up(worker, how)
                self._lost[place] += 1
                if worker.ready is None and self._is_in_vain(worker):
                    self._begun.set()
            elif worker.process.leaving():
                self._replace(place, worker, now)
            elif worker.ready is None and now - worker.begun > _REMINDER * (worker.reminders + 1):
                worker.reminders += 1
                log.info(
                    "worker %d does not serve after %.0f s: %s",
                    worker.number,
                    now - worker.begun,
                    worker.process.awaited(),
                )
        self._look_at_leaving(now)
        self._killed = [process for process in self._killed if process.ended() is None]
        if self._serving is not None:
            self._serving.tick()

    def _end_of(self, worker: _Worker, now: float) -> str | None:
        """The end of a worker, for people, who may have been silent and was killed just now; None while it lives."""
        how = worker.process.ended()
        if how is not None:
            self._ends["ended"] += 1
        elif worker.ready is not None and self._clock.total - worker.heard > self._silence:
            worker.process.kill()
            self._killed.append(worker.process)
            self._ends["silent"] += 1
            how = f"was killed: no sign of life for {self._silence:.0f} s"
        return how

    def _replace(self, place: int, worker: _Worker, now: float) -> None:
        """Start another worker, elsewhere, and let this one finish what it has."""
        log.info("worker %d leaves: its machine is taken away; another one is started", worker.number)
        self._places[place], self._again[place] = None, (now, _FIRST_PAUSE)
        self._leaving.append(worker)
        if self._serving is not None:
            self._serving.leaving(worker.number)

    def _idle(self, worker: _Worker) -> bool:
        return self._serving is not None and self._serving.load(worker.number) == 0

    def _look_at_leaving(self, now: float) -> None:
        for worker in list(self._leaving):
            how = self._end_of(worker, now)
            if how is None and self._idle(worker) and any(each and each.ready is not None for each in self._places):
                worker.process.terminate()
                how = "left: it has nothing to do any more"
            if how is not None:
                self._leaving.remove(worker)
                self._give_up(worker, how)

    def _begin(self, place: int) -> None:
        self._last += 1
        number = self._last
        pause = self._again[place][1]
        self._channel.open(number)
        try:
            process = self._launcher.start(number, place, self._channel.address)
        except (OSError, RuntimeError) as error:  # there is no process or no thread to be had
            log.warning("worker %d can't be started (%s); another one is tried in %.0f s", number, error, pause)
            self._channel.shut(number)
            self._again[place] = time.monotonic() + pause, min(2 * pause, _LAST_PAUSE)
            self._lost[place] += 1
            if min(self._lost) >= _ENOUGH:
                self._begun.set()
        else:
            self._places[place] = _Worker(number, process, time.monotonic(), pause=pause)

    def _again_at(self, place: int, worker: _Worker, now: float) -> None:
        """Have another worker started in the place of one that has ended, later where it ends each time."""
        self._places[place] = None
        proven = worker.ready is not None and now - worker.ready > _PROVEN
        pause = _FIRST_PAUSE if proven else worker.pause
        self._again[place] = now + (0.0 if proven else pause), min(2 * pause, _LAST_PAUSE)

    def _is_in_vain(self, worker: _Worker) -> bool:
        """Whether a start that has lost this worker won't succeed: for its settings all end, or no other one is left.

        One that was killed, or whose machine was lost, says nothing about the others, unless that goes on.
        """
        lives = any(each is not None and each.process.ended() is None for each in self._places)
        return worker.process.misconfigured() or not lives or min(self._lost) >= _ENOUGH

    def _give_up(self, worker: _Worker, how: str) -> None:
        log.warning("worker %d %s", worker.number, how)
        self._channel.shut(worker.number)
        if self._scrape is not None:
            self._scrape.came(worker.number, None)
        if self._serving is not None:
            self._serving.lost(worker.number)

    def _end(self) -> None:
        self._closing = True
        processes = [worker.process for worker in self._workers()]
        for process in processes:
            process.terminate()
        self._await(processes)
        for process in processes:
            if process.ended() is None:
                process.kill()
        self._await(processes)
        self._launcher.close()
        self._closed.set()

    @staticmethod
    def _await(processes: Sequence[WorkerProcess]) -> None:
        """Wait for the end of processes, no longer than a moment."""
        until = time.monotonic() + _ENDING
        while any(process.ended() is None for process in processes) and time.monotonic() < until:
            time.sleep(_TURN)
