"""Starts and watches workers, and restarts ended and hanging ones."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from prometheus_client import generate_latest

from cloud.daemon import receiving
from cloud.gateway.channel import Channel, ChannelKeys, Kind, Note
from cloud.gateway.gateway import Gateway
from cloud.settings import CloudSettings
from common.answer.patience import Stopwatch
from common.configuration.configuration import ConfigurationError
from common.configuration.settings import KV_SHARE
from common.daemon.start import BAD_INPUT, Watchdog
from common.library.snapshots import forget, publish
from common.metrics import exposition
from common.metrics.answers import BUSY
from common.metrics.exposition import MetricValue, ValueCollector
from common.metrics.server import MetricsServer
from common.metrics.state import link_readings
from common.process.lifetime import ServiceManager, Startup, wait_until_stopped
from common.process.machine import child_command, cores_each, memory, python_environment
from common.process.threads import Died, end_process
from common.transport.cloud_link import CloudLink
from common.transport.keys import CloudKeys
from common.transport.sending import Limits, LinkCounters, Peer, largest_payload

# --- processes
# Worker processes, anywhere and local.

LOADS: Final = "it loads its models"


class WorkerProcess(Protocol):
    """A worker's process. For one thread."""

    def ended(self) -> str | None:
        """Describes the process's end, None while it runs."""

    def misconfigured(self) -> bool:
        """Whether its settings, shared by all workers, ended it."""

    def leaving(self) -> bool:
        """Whether its machine is about to be taken away."""

    def awaited(self) -> str:
        """Describes the reason why the worker does not serve yet."""

    def terminate(self) -> None:
        """Asks the process to end in order."""

    def kill(self) -> None:
        """Ends it at once, without waiting, as the system may take forever."""


class Launcher(Protocol):
    """Starts worker processes. For one lasting thread."""

    address: str  # for the gateway to listen: ipc, or tcp with `*` for a free port
    keys: ChannelKeys | None  # the workers' keys

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        """Starts worker `number`, for `address`; `place` counts concurrent workers."""

    def close(self) -> None:
        """Frees the launcher's resources after the workers' end."""


def worker_command(number: int, place: int, address: str) -> list[str]:
    """Returns a worker's command. Its settings are JSON on stdin.

    It ends with this process.
    """
    return child_command("cloud.gateway.worker", str(number), str(place), address)


def given_to_worker(
    settings: Mapping[str, object], keys: ChannelKeys | None, *, snapshots: bool, workers: int = 0, gpus: float = 0.0
) -> bytes:
    """Returns the JSON for a worker's stdin.

    `snapshots`: it searches them. `workers` share their machine's GPUs, or `gpus` are reserved for each.
    """
    parts = None if keys is None else [keys.gateway, keys.worker.public, keys.worker.secret]
    given = {"settings": dict(settings), "keys": parts, "snapshots": snapshots, "workers": workers, "gpus": gpus}
    return json.dumps(given, default=str).encode()


def start_process(command: Sequence[str], given: bytes) -> subprocess.Popen[bytes]:
    """Starts a process of this installation with `given` on stdin."""
    process = subprocess.Popen(command, env=python_environment(), stdin=subprocess.PIPE)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # its exit code shows the end
        process.stdin.write(given)
        process.stdin.close()
    return process


def describe_end(code: int, where: str = "") -> str:
    """Describes an end with `subprocess`'s `code`; `where` is a phrase."""
    if code < 0:
        return f"was killed{where} (signal {-code})"
    return f"ended{where} (exit code {code})"


class LocalLauncher:
    """Starts `count` local workers. They end with the starting thread."""

    def __init__(self, settings: Mapping[str, object], address: str, count: int) -> None:
        self.address = address
        self.keys: ChannelKeys | None = None  # a private socket
        self._given = given_to_worker(settings, None, snapshots=False, workers=count)

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        return LocalProcess(start_process(worker_command(number, place, address), self._given))

    def close(self) -> None:
        """Does nothing: no resources are left."""


class LocalProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ended(self) -> str | None:
        code = self._process.poll()
        return None if code is None else describe_end(code)

    def misconfigured(self) -> bool:
        return self._process.poll() == BAD_INPUT

    def leaving(self) -> bool:
        return False  # nor would the gateway stay

    def awaited(self) -> str:
        return LOADS

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


# --- fleet

log = logging.getLogger(__name__)

_TICK: Final = 0.02  # seconds
_TURN: Final = 0.005  # seconds between checks
_REMINDER: Final = 20.0  # seconds between log lines about a worker not serving yet
_FIRST_PAUSE: Final = 1.0  # seconds until a restart, doubled each time
_LAST_PAUSE: Final = 60.0
_PROVEN: Final = 60.0  # seconds of service that reset the pause
_ENOUGH: Final = 2  # ends per place, before any service, that fail the start
_ENDING: Final = 0.6  # seconds for workers to end


class Serving(Protocol):
    def joined(self, worker: int) -> None: ...

    def leaving(self, worker: int) -> None: ...

    def load(self, worker: int) -> int: ...

    def lost(self, worker: int) -> None: ...

    def said(self, worker: int, note: Note) -> None: ...

    def tick(self) -> None: ...


@dataclass(slots=True)
class _Worker:
    """The worker in one place. A replacement has a new number."""

    number: int
    process: WorkerProcess
    begun: float
    reminders: int = 0
    ready: float | None = None  # start of its service
    heard: float = 0.0  # last sign of life, by the fleet's clock
    pause: float = _FIRST_PAUSE


@dataclass(slots=True)
class _Scrape:
    """A running collection of all workers' metrics."""

    waiting: dict[int, int]  # unanswered places by number
    texts: dict[int, bytes] = field(default_factory=dict)  # by place
    done: threading.Event = field(default_factory=threading.Event)

    def came(self, number: int, text: bytes | None) -> None:
        """Takes a worker's answer; None means that none will come."""
        place = self.waiting.pop(number, None)
        if place is not None and text is not None:
            self.texts[place] = text
        if not self.waiting:
            self.done.set()


class Fleet:
    """Implements `Workers`, on the channel's lasting thread, as `Launcher` needs it.

    Kills a worker after `silence` seconds without a sign of life.
    """

    def __init__(self, count: int, launcher: Launcher, silence: float, died: Died | None = None) -> None:
        self.vocabulary = 0  # of the workers' model, once one is ready
        self._begun = threading.Event()  # one serves, or none can
        self._lost = [0] * count  # ended workers, by place
        self._serving: Serving | None = None
        self._launcher = launcher
        self._silence = silence
        self._clock = Stopwatch()  # of silence; stops while this process sleeps, e.g. in a paused container
        self._channel = Channel(
            launcher.address, self._taken, keys=launcher.keys, died=died, tick=self._look, period=_TICK
        )
        self.turns = self._channel.turns  # of the thread
        self._last = 0
        self._ends = {"ended": 0, "silent": 0}  # of workers, by cause
        self._scrape: _Scrape | None = None
        self._closing = False
        self._places: list[_Worker | None] = [None] * count
        self._leaving: list[_Worker] = []  # replaced, with open sessions
        self._killed: list[WorkerProcess] = []  # not ended yet; may take forever
        self._again: dict[int, tuple[float, float]] = dict.fromkeys(range(count), (0.0, _FIRST_PAUSE))
        self._closed = threading.Event()

    def start(self) -> None:
        self._channel.start()

    def until_one_serves(self) -> bool:
        """Waits for a serving worker. Returns False if none can serve; they have reported why."""
        self._begun.wait()
        return self.vocabulary > 0

    def serve(self, gateway: Serving) -> None:
        """Informs `gateway` about workers, first about ready ones."""

        def attach() -> None:
            self._serving = gateway
            for worker in self._workers():
                if worker.ready is not None:
                    self._join(gateway, worker)

        self.turns.perform(attach)

    def send(self, note: Note, number: int) -> bool:
        """Queues a note, from any thread. Returns False for a lost worker or a full queue."""
        return self._channel.send(note, number)

    def full(self, number: int, peer: Peer) -> bool:
        """Whether a worker's queue takes no droppable notes, in total or of this device."""
        return self._channel.full(number, peer)

    def ask(self, answer: Callable[[], None]) -> None:
        """Has the thread call `answer`, as a sign of life. From any thread."""
        self._channel.ask(answer)

    @property
    def serving(self) -> int:
        return sum(worker.ready is not None for worker in self._workers())

    @property
    def ends(self) -> tuple[tuple[str, int], ...]:
        """Numbers of workers that `ended`, or were killed because `silent`."""
        return tuple(self._ends.items())

    def metrics(self, patience: float) -> dict[int, bytes]:
        """Returns workers' metrics by place, within `patience` seconds. For one thread."""
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
        """Ends the workers, in order for a moment, then the thread."""
        self._channel.ask(self._end)
        self._closed.wait(2 * _ENDING)
        self._channel.close()

    # --- on the channel's thread

    def _workers(self) -> list[_Worker]:
        return [*(worker for worker in self._places if worker is not None), *self._leaving]

    def _taken(self, number: int, note: Note) -> None:
        worker = next((each for each in self._workers() if each.number == number), None)
        if worker is None:
            return
        if note.kind in (Kind.READY, Kind.ALIVE):  # other notes come from threads that may work while others hang
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
        if worker in self._leaving:  # since its start
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
        """Describes a worker's end, perhaps for silence just now; None while it lives."""
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
        log.info("worker %d stops, because its machine is removed; another one is started", worker.number)
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
                how = "left: it has no more work"
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
        except (OSError, RuntimeError) as error:
            log.warning("worker %d can't be started (%s); another one is tried in %.0f s", number, error, pause)
            self._channel.shut(number)
            self._again[place] = time.monotonic() + pause, min(2 * pause, _LAST_PAUSE)
            self._lost[place] += 1
            if min(self._lost) >= _ENOUGH:
                self._begun.set()
        else:
            self._places[place] = _Worker(number, process, time.monotonic(), pause=pause)

    def _again_at(self, place: int, worker: _Worker, now: float) -> None:
        """Schedules a worker's restart, later after each end."""
        self._places[place] = None
        proven = worker.ready is not None and now - worker.ready > _PROVEN
        pause = _FIRST_PAUSE if proven else worker.pause
        self._again[place] = now + (0.0 if proven else pause), min(2 * pause, _LAST_PAUSE)

    def _is_in_vain(self, worker: _Worker) -> bool:
        """Whether the start fails now: by settings, or with no other worker left.

        Killed workers and lost machines count only when repeated.
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
        """Waits for a moment for the processes' end."""
        until = time.monotonic() + _ENDING
        while any(process.ended() is None for process in processes) and time.monotonic() < until:
            time.sleep(_TURN)


# --- librarian
# The process that keeps a distributed cloud's library.

_PAUSE: Final = 10.0  # seconds until a restart
_LIBRARIAN_ENDING: Final = 0.3  # for its end


class Librarian:
    """Keeps the process running. Without it, answers use the latest snapshot."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = json.dumps(dict(settings), default=str).encode()
        self._closing = threading.Event()
        self._lock = threading.Lock()  # of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="librarian", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the process, in order for a moment."""
        with self._lock:
            self._closing.set()
            process = self._process
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LIBRARIAN_ENDING)
            process.kill()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                process = self._started()
            except OSError as error:
                log.warning("the process that keeps the library can't be started (%s); it is tried again", error)
                self._closing.wait(_PAUSE)
                continue
            if process is None:
                return
            code = process.wait()
            if not self._closing.is_set():
                log.warning("the process that keeps the library ended (exit code %d); it is started again", code)
                self._closing.wait(_PAUSE)

    def _started(self) -> subprocess.Popen[bytes] | None:
        command = child_command("cloud.gateway.librarian_process")
        with self._lock:
            if self._closing.is_set():
                return None
            self._process = process = start_process(command, self._settings)
        return process


# --- metrics
# Metrics of a cloud with workers: the gateway's, and each worker's labelled by place.

PATIENCE: Final = 2.0  # seconds; Prometheus waits 10 by default


class GatewayMetrics:
    """Reads metrics of gateway and workers on request."""

    def __init__(self, gateway: Gateway, fleet: Fleet, link: Callable[[], LinkCounters]) -> None:
        """`link` returns the counts of the link to devices."""
        self._gateway = gateway
        self._fleet = fleet
        self._link = link
        self._registry = exposition.make_registry(process=True)
        self._registry.register(ValueCollector(self._readings))

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' text format, without late workers."""
        workers = {str(place): text for place, text in sorted(self._fleet.metrics(PATIENCE).items())}
        return exposition.merged(generate_latest(self._registry), workers, "worker")

    def _readings(self) -> Iterator[MetricValue]:
        gateway = self._gateway
        yield MetricValue("dragon_workers_serving", "Workers that serve", float(self._fleet.serving))
        ends = tuple((why, float(count)) for why, count in self._fleet.ends)
        yield MetricValue("dragon_worker_ends", "Ends of workers that were not asked to end", ends, "why", counts=True)
        moved = "Sessions whose worker ended, which their devices open again"
        yield MetricValue("dragon_worker_sessions_lost", moved, float(gateway.sessions_lost), counts=True)
        yield MetricValue("dragon_peers_connected", "Devices that have shaken hands", float(gateway.devices))
        refused = ((BUSY, float(gateway.busy)),)
        yield MetricValue("dragon_request_failures", "Answers that were refused", refused, "kind", counts=True)
        yield from link_readings(self._link())


# --- daemon
# The cloud daemon as a gateway with keys, allow-list and address.

_LONGEST_PATH: Final = 90  # bytes of a socket's path; systems allow more


def serve_by_workers(
    settings: CloudSettings,
    keys: CloudKeys | None,
    stack: ExitStack,
    manager: ServiceManager,
    scraped: MetricsServer | None,
) -> None:
    """Serves with `settings.workers` processes until `Stopped`; the `stack` ends them.

    `scraped` serves metrics. Raises `ConfigurationError` if no worker can serve.
    """
    startup = Startup(manager.status)
    with receiving(settings, keys, startup, end_process) as address:
        if settings.ray is None:
            forget(settings.library)
        else:
            startup.at("copying the library for the workers")
            publish(settings.library)
            stack.callback(Librarian(settings_of_worker(settings)).close)
        fleet = Fleet(settings.workers, _launcher(settings, stack), settings.worker_silence_seconds, end_process)
        fleet.start()
        stack.callback(fleet.close)
        startup.at("loading the workers' models")
        if not fleet.until_one_serves():
            raise ConfigurationError("no worker could be started; it has said why")
    gateway = Gateway(fleet, settings.max_sessions_per_key)
    limits = Limits(payload_bytes=largest_payload(fleet.vocabulary))
    link = CloudLink(address, keys, gateway, limits, insecure=settings.insecure, died=end_process, beside=fleet.turns)
    gateway.link = link
    fleet.serve(gateway)
    stack.enter_context(link)
    stack.callback(gateway.close)
    if scraped is not None:
        scraped.serve(GatewayMetrics(gateway, fleet, link.counters).text)
    manager.ready(f"serving devices on {link.address}")
    stack.enter_context(Watchdog(manager, {"link": link.ask, "channel": fleet.ask}, end_process))
    log.info("cloud ready on %s with workers", link.address)
    wait_until_stopped()


def _launcher(settings: CloudSettings, stack: ExitStack) -> Launcher:
    values = settings_of_worker(settings)
    if settings.ray is not None:
        from cloud.gateway.ray_launcher import RayLauncher

        return RayLauncher(settings.ray, values, settings.workers, values["threads"], settings.worker_gpus)
    folder = socket_folder(settings.data / "workers")
    stack.callback(partial(shutil.rmtree, folder, ignore_errors=True))
    return LocalLauncher(values, f"ipc://{folder / 'workers'}", settings.workers)


def settings_of_worker(settings: CloudSettings) -> dict[str, Any]:
    """Returns a worker's settings, with its part of cores and memory."""
    values = {name: getattr(settings, name) for name in CloudSettings.model_fields}
    count = settings.workers
    kv_bytes = settings.kv_bytes or memory().total // KV_SHARE
    values |= {"workers": 0, "ray": None, "worker_gpus": 0.0, "metrics": None}
    values["threads"] = settings.threads or cores_each(count, settings.shares_machine)
    values["kv_bytes"] = max(2**20, kv_bytes // count)
    return values


def socket_folder(folder: Path) -> Path:
    """Makes the private folder of the workers' socket. Raises `ConfigurationError`."""
    if len(os.fsencode(folder)) > _LONGEST_PATH:
        raise ConfigurationError(f"data = {folder.parent}: the path is too long for the socket of workers; shorten it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
