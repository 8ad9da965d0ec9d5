"""The daemons of a run, the way between them, and what breaks them."""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Self

import psutil

from scripts.daemons import ROOT, Daemon, Pair, fill_library, free_port
from scripts.netlab.faulty_proxy import PERFECT, Direction, FaultyProxy, Line
from scripts.soak.checker import Library
from scripts.soak.plan import CLOUD_FILE, DEVICE_FILE, Fault

DOCUMENTS: Final = 40  # of each side
OTHER: Final = "elsewhere-"  # how titles of the other cloud begin
STEP_MS: Final = 30.0  # of a decode step: answers last, and leave the processor to the machine
SILENCE: Final = 15.0  # seconds until a worker that hangs is given up
PLACES: Final = 8  # of the cloud: one that is never given back is missed
DISK: Final = "96m"
WAY: Final = (0.05, 0.4)  # seconds one way, of a long one
RATE: Final = (40e3, 2e3)  # bytes per second, of a narrow one
NAME: Final = re.compile(r"(?<=[a-z,:] )[A-Z][a-z]{4,}\b")  # in the middle of a sentence
KNOWN: Final = frozenset([*calendar.day_name, *calendar.month_name])


def texts(role: str) -> dict[str, str]:
    """Documents of a role by name: some of the sample library, and a long one of others."""
    paths = sorted((ROOT / role / "sample_library").glob("*.md"))
    found = {path.stem: path.read_text("utf-8") for path in paths[:DOCUMENTS]}
    rest = [path.read_text("utf-8").strip() for path in paths[DOCUMENTS : DOCUMENTS + 9]]
    return found | {Path(CLOUD_FILE if role == "cloud" else DEVICE_FILE).stem: "\n\n".join(rest)}


def other_texts() -> dict[str, str]:
    """Documents of a cloud that is another one."""
    long = Path(CLOUD_FILE).stem
    return {
        name if name == long else OTHER + name: f"Elsewhere. {text[len(text) // 2 :] if name == long else text}"
        for number, (name, text) in enumerate(texts("cloud").items())
        if name == long or number % 2
    }


def titles() -> dict[str, Library]:
    """Titles of documents that only one of the clouds has."""
    own, other = texts("cloud").keys(), other_texts().keys()
    return {title: "first" if title in own else "other" for title in own ^ other}


def questions() -> tuple[str, ...]:
    """Questions about the sample libraries."""
    found = json.loads((ROOT / "scripts" / "demo" / "questions.json").read_text("utf-8"))
    return tuple(each["question"] for each in found)


def private_marks() -> frozenset[str]:
    """Names that no log may have: those of private documents."""
    return frozenset(name for text in texts("device").values() for name in NAME.findall(text)) - KNOWN


def prepare(folder: Path) -> None:
    """Fill the libraries of both roles below `folder`, which is emptied, and of the other cloud below its `other`."""
    unmount(folder)
    shutil.rmtree(folder, ignore_errors=True)
    for role in ("device", "cloud"):
        fill_library(folder, role, texts(role))
    fill_library(folder / "other", "cloud", other_texts())


@contextlib.contextmanager
def undisturbed(folder: Path, other: bool = False) -> Iterator[Pair]:
    """Daemons that nothing happens to, on the libraries below `folder`; with `other`, with the other cloud's."""
    device: dict[str, object] = {"privacy": "balanced", "patience": 120.0}
    pair = Pair(folder, device)
    if other:
        pair.cloud.environment = {"DRAGON_CLOUD_DATA": str(folder / "other" / "cloud")}
    with pair:
        yield pair
    for daemon in (pair.device, pair.cloud):  # a line of theirs is not one of the daemons that come next
        daemon.log.rename(daemon.log.with_suffix(".other-quiet.log" if other else ".quiet.log"))


class World:
    """Both daemons with a proxy between them, another cloud, and a stranger in a cloud's place. A context manager."""

    def __init__(self, folder: Path, seed: int, workers: int = 0) -> None:
        """The cloud answers by `workers` processes behind a gateway; 0: by one."""
        self.folder = folder
        self._workers = workers
        port = free_port()
        self.proxy = FaultyProxy(port, seed=seed)
        between = int(self.proxy.address.rpartition(":")[2])
        settings = {"emulate_decode_ms": STEP_MS}
        device, cloud = settings | {"privacy": "balanced"}, settings | {"max_sessions": PLACES}
        if workers:
            cloud |= {"workers": workers, "max_sessions_per_key": PLACES, "worker_silence_seconds": SILENCE}
        self.pair = Pair(folder, device, cloud, between=between, cloud_port=port)
        self.device, self.cloud = self.pair.device, self.pair.cloud
        self._ports = {"cloud": port, "other cloud": free_port(), "stranger": free_port()}
        self.other = self._cloud("other cloud", {"DRAGON_CLOUD_DATA": str(folder / "other" / "cloud")})
        alien = {"DRAGON_CLOUD_LOCAL_KEYS": str(folder / "stranger-keys")}
        self.stranger = self._cloud("stranger", alien | {"DRAGON_CLOUD_DATA": str(folder / "stranger")})
        self.lives = 1  # of the device daemon
        self.disks = False  # whether each daemon's data is on a disk of its own
        self._lock = threading.Lock()  # of starting and stopping one daemon
        self._closed = False

    def __enter__(self) -> Self:
        try:
            self.disks = all(_mount(self.folder / role) for role in ("device", "cloud"))
            for daemon in self.daemons:
                daemon.start()
            for daemon in self.daemons:
                daemon.wait_for(f"{daemon.role} ready")
            self.pair.wait_for_cloud("connected")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            for daemon in self.daemons:
                _signal(daemon, signal.SIGCONT)  # else it can't end
            for daemon in self.daemons:
                daemon.stop()
        self.proxy.close()
        unmount(self.folder)

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        return self.device, self.cloud, self.other, self.stranger

    def can(self, kind: str) -> bool:
        """Whether the fault can be: a full disk needs one of its own, which root can make, and a worker a gateway."""
        return (self.disks or "disk" not in kind) and (self._workers > 0 or "worker" not in kind)

    def harm(self, fault: Fault) -> Callable[[], None]:
        """Begin a fault; the result ends it."""
        what, _, how = fault.kind.partition(" ")
        match fault.kind:
            case "cloud killed":
                self._kill(self.cloud)
                return partial(self._start, self.cloud)
            case "device killed":
                self.lives += 1  # before and after it: a request that begins between the two knows neither
                self._kill(self.device)
                self.lives += 1
                return partial(self._start, self.device)
            case "cloud stopped" | "device stopped":
                daemon = self.cloud if what == "cloud" else self.device
                _signal(daemon, signal.SIGSTOP)
                return partial(_signal, daemon, signal.SIGCONT)
            case "worker killed" | "worker stopped":
                return self._harm_worker(how == "killed", fault.strength)
            case "other cloud" | "stranger":
                self._lead_to(fault.kind)
                return partial(self._lead_to, "cloud")
            case "link cut":
                self.proxy.cut()
                return self.proxy.cut
            case "black hole":
                self.proxy.black_hole(True)
                return partial(self.proxy.black_hole, False)
            case "stalled up" | "stalled down":
                direction: Direction = "up" if how == "up" else "down"
                self.proxy.stall(direction, True)
                return partial(self.proxy.stall, direction, False)
            case "long way":
                far = WAY[0] + fault.strength * (WAY[1] - WAY[0])
                return self._way(Line(delay=far, jitter=far / 4))
            case "narrow way":
                return self._way(Line(rate=RATE[0] * (RATE[1] / RATE[0]) ** fault.strength))
            case "device disk full" | "cloud disk full":
                return _fill(self.folder / what)
        raise ValueError(fault.kind)

    def _harm_worker(self, kill: bool, strength: float) -> Callable[[], None]:
        """Kill or stop one of the workers, if the cloud has any now."""
        workers: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):  # it has just ended
            found = self.cloud.workers
            workers = found[int(strength * len(found)) % max(1, len(found)) :][:1]
            for worker in workers:
                worker.send_signal(signal.SIGKILL if kill else signal.SIGSTOP)

        def end() -> None:
            with contextlib.suppress(psutil.Error):
                for worker in workers[: not kill]:
                    worker.send_signal(signal.SIGCONT)

        return end

    def _cloud(self, name: str, environment: dict[str, str]) -> Daemon:
        bind = {"threads": 1, "bind": f"tcp://127.0.0.1:{self._ports[name]}", "emulate_decode_ms": STEP_MS}
        log = self.folder / f"{name.replace(' ', '-')}.log"
        return Daemon("cloud", self.folder, bind, log, environment=environment)

    def _kill(self, daemon: Daemon) -> None:
        with self._lock:
            daemon.kill()

    def _start(self, daemon: Daemon) -> None:
        with self._lock:
            if self._closed:
                return
            daemon.start()
        daemon.wait_for(f"{daemon.role} ready")

    def _lead_to(self, name: str) -> None:
        self.proxy.set_target(self._ports[name])
        self.proxy.cut()

    def _way(self, line: Line) -> Callable[[], None]:
        def lead(line: Line) -> None:
            for direction in ("up", "down"):
                self.proxy.set_line(direction, line)

        lead(line)
        return partial(lead, PERFECT)


def settled(world: World, seconds: float) -> str:
    """Wait until the device is connected and has no answer under way; what is missing, if anything."""
    deadline, missing = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        try:
            status = world.pair.status()
        except Exception as error:
            missing = f"the device's status can't be read: {type(error).__name__}"
        else:
            state, active = status["cloud"]["state"], status["active"]
            if state == "connected" and not active:
                return ""
            missing = f"the cloud is {state}, and {active} answers are under way"
        time.sleep(0.2)
    return missing


def _signal(daemon: Daemon, number: int) -> None:
    if daemon.running and daemon.process is not None:
        daemon.process.send_signal(number)


def _mount(folder: Path) -> bool:
    """Put what is in the folder on a small disk of its own; whether that was possible."""
    aside = folder.with_name(f"{folder.name}-aside")
    folder.rename(aside)
    folder.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", f"size={DISK},mode=0700", "soak", str(folder)]
    mounted = (
        shutil.which("mount") and not subprocess.run(["mount", *options], check=False, capture_output=True).returncode
    )
    # Keys and values of documents are computed and stored anew.
    shutil.copytree(aside, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("document-kv"))
    return bool(mounted)


def unmount(folder: Path) -> None:
    """Take these disks away, also those that a run left which was killed."""
    for role in ("device", "cloud"):
        subprocess.run(["umount", str(folder / role)], check=False, capture_output=True)


def _fill(folder: Path) -> Callable[[], None]:
    """Take all room on a disk; the result gives it back."""
    path = folder / "filler"
    for size in (2**16, 1):  # at last byte by byte
        with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(size))
    return lambda: os.unlink(path)
