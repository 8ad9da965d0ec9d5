"""Start and stop daemons as separate processes, for the demonstration, the benchmarks and the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import psutil

from common.transport.keys import KeyFolder
from proto.messages import Side

if TYPE_CHECKING:
    from scripts.netlab.lab import NetLab

ROOT = Path(__file__).resolve().parent.parent
START_PATIENCE = 120.0  # seconds; loading torch and two models on a busy machine
STOP_PATIENCE = 10.0
ANSWER_PATIENCE = 300.0  # 200 tokens, each a slow round trip
POLL = 0.05
# Plain HTTP on this machine: no proxy, and no certificates, which take 20 ms of processor time to load each time.
LOCALLY: dict[str, Any] = {"trust_env": False, "verify": False}
# The same for what is answered at once: httpx would wait for 5 s, which a busy machine may stand still for.
PATIENTLY: dict[str, Any] = LOCALLY | {"timeout": 60.0}

# Ports of each worker of a test run, below those that Linux gives to whoever asks for any.
FIRST_PORT = 20_000
PORTS = 500
KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_tried = count(os.getpid())  # test runs beside each other begin elsewhere


class StartFailed(RuntimeError):
    """A daemon did not come up; the text is what it printed."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses now. Raises `OSError` where there is none.

    A daemon listens there seconds later only. So that nobody else takes it meanwhile, the workers of a test run have a
    range each, of which a port comes again when all others have had their turn.
    """
    for candidate in _candidates():
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", candidate))
            port: int = listener.getsockname()[1]
            return port
    raise OSError("no port is free")


def own_ports(worker: str, kernels: str) -> range:
    """Ports of the test run's `worker`, as pytest-xdist names it, that are none of the kernel's; else an empty range.

    `kernels` are the first and the last port that the kernel gives away, as it tells them.
    """
    if not (worker.removeprefix("gw").isdecimal() and kernels):
        return range(0)
    start = FIRST_PORT + PORTS * int(worker.removeprefix("gw"))
    own, (first, last) = range(start, start + PORTS), map(int, kernels.split())
    return own if own.stop <= min(first, 2**16) or last < own.start <= 2**16 - PORTS else range(0)


def _candidates() -> Iterator[int]:
    """Ports to try, at last 0, which is any."""
    kernels = KERNELS.read_text() if KERNELS.exists() else ""
    own = own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""), kernels)
    for _ in own:
        yield own[next(_tried) % len(own)]
    yield 0


def run_command(
    arguments: Sequence[str], environment: Mapping[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m device.cli.main` to its end. Raises `subprocess.TimeoutExpired`."""
    command = [sys.executable, "-m", "device.cli.main", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


perform: Callable[[Sequence[str], Mapping[str, str], float | None], subprocess.CompletedProcess[str]] = run_command


def dragon(*arguments: str, data: Path | None = None, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run one `dragon` command to its end; with `data`, on the state of both roles below that folder."""
    return perform(arguments, _environment(data), timeout)


def add_documents(data: Path, role: str, source: Path) -> str:
    """Run `dragon library add` for `role` below `data`; returns what it says. Raises `RuntimeError` where it fails."""
    done = dragon("library", "add", "--role", role, str(source), data=data)
    if done.returncode:
        raise RuntimeError(f"the {role}'s library can't be filled: {done.stderr.strip()}")
    return done.stderr.strip()


def fill_library(data: Path, role: str, texts: Mapping[str, str], suffix: str = ".md") -> None:
    """Write `texts` by name below `data`, and add them to the library of `role` in this process."""
    folder = data / f"{role}-documents"
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}{suffix}").write_text(text, "utf-8")
    from cloud.settings import CloudSettings
    from common.library.commands import add_documents
    from device.settings import DeviceSettings

    kinds: dict[str, Any] = {"device": DeviceSettings, "cloud": CloudSettings}
    if add_documents(kinds[role](data=data / role), [folder]) != 0:
        raise StartFailed(f"the documents in {folder} could not be added")


class Process(Protocol):
    """A process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


def run_module(module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """Start `python -m module`, its output going to `log`."""
    command = [sys.executable, "-m", module, *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


launch: Callable[[str, Sequence[str], Mapping[str, str], Path], Process] = run_module  # tests have a quicker way


@dataclass
class Daemon:
    """One daemon process. `flags` are settings; its output goes to `log`; `environment` is on top of the usual one.

    `patience` are the seconds that it may take to start.
    """

    role: str
    data: Path
    flags: Mapping[str, object]
    log: Path
    process: Process | None = field(default=None)
    _before: int = field(default=0, init=False)  # bytes of its log when it was started
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = START_PATIENCE

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        module, command = ("cloud.__main__", []) if self.role == "cloud" else ("device.cli.main", ["device"])
        self._before = self.log.stat().st_size if self.log.exists() else 0
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.flags.items()]
        self.process = launch(module, command + flags, _environment(self.data) | dict(self.environment), self.log)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def workers(self) -> list[psutil.Process]:
        """The processes of a cloud's workers on this machine, the oldest first; none of one that does not run.

        Raises `psutil.Error` where one ends meanwhile.
        """
        if not self.running or self.process is None:
            return []
        children = psutil.Process(self.process.pid).children()
        return sorted((each for each in children if "cloud.gateway.worker" in each.cmdline()), key=lambda one: one.pid)

    def stop(self) -> None:
        """Ask it to stop, and make it stop when it does not."""
        if self.process is None:
            return
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def wait_for(self, text: str) -> None:
        """Wait until the daemon has logged `text` since it was started. Raises `StartFailed`."""
        deadline = time.monotonic() + self.patience
        while text not in self.log.read_bytes()[self._before :].decode(errors="replace"):
            if not self.running or time.monotonic() > deadline:
                how = f"did not start within {self.patience:.0f} s" if self.running else "ended"
                raise StartFailed(f"the {self.role} daemon {how}:\n{self.log.read_text()[-2000:]}")
            time.sleep(POLL)


class Pair:
    """A cloud and a device daemon on this machine, on free ports. A context manager: both are up inside.

    `between` is the port that the device connects to when it is not the cloud's own (a proxy's). In an open `lab` each
    daemon runs in its side's place, and the link between them is encrypted. `patience` are the seconds that each of
    them, and the link, may take to come up.
    """

    def __init__(
        self,
        data: Path,
        device: Mapping[str, object] | None = None,
        cloud: Mapping[str, object] | None = None,
        between: int | None = None,
        cloud_port: int | None = None,
        lab: NetLab | None = None,
        patience: float = START_PATIENCE,
    ) -> None:
        self.data = data
        self.lab = lab
        self.cloud_port = cloud_port or free_port()
        self.http_port = free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        host, reached = ("127.0.0.1", between or self.cloud_port) if lab is None else lab.route(self.cloud_port)
        bind = {"bind": f"tcp://{host}:{self.cloud_port}"}
        connect = {"port": self.http_port, "cloud": f"tcp://{host}:{reached}"}
        self._patience = patience

        def daemon(role: Side, flags: dict[str, object]) -> Daemon:
            return Daemon(role, data, {"threads": 1} | flags, data / f"{role}.log", patience=patience)

        self.cloud = daemon("cloud", bind | dict(cloud or {}))
        self.device = daemon("device", connect | dict(device or {}))

    def __enter__(self) -> Pair:
        try:
            if self.lab is not None:
                exchange_keys(self.data)
            with self.inside("cloud"):
                self.cloud.start()
            with self.inside("device"):
                self.device.start()
            self.cloud.wait_for("cloud ready")
            self.device.wait_for("device ready")
            self.wait_for_cloud("connected")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.device.stop()
        self.cloud.stop()

    def inside(self, side: Side) -> AbstractContextManager[None]:
        """The place to start that side's daemon in, and to talk to it over loopback."""
        return nullcontext() if self.lab is None else self.lab.run_in(side)

    def status(self) -> dict[str, Any]:
        """The device's `/status`."""
        with self.inside("device"):
            response = httpx.get(f"{self.url}/status", **PATIENTLY).raise_for_status()
        result: dict[str, Any] = response.json()
        return result

    def wait_for_cloud(self, state: str) -> None:
        """Wait until the device sees its cloud in `state`. Raises `StartFailed`."""
        deadline = time.monotonic() + self._patience
        while (seen := self.status()["cloud"])["state"] != state:
            if time.monotonic() > deadline:
                raise StartFailed(f"the cloud is {seen['state']}, not {state}: {seen['detail']}")
            time.sleep(POLL)

    def ensure_cloud(self) -> None:
        """Start the cloud unless it runs, and wait until the device sees it. Raises `StartFailed`."""
        if not self.cloud.running:
            self.cloud.start()
            self.wait_for_cloud("connected")

    def complete(self, question: str, **fields: Any) -> dict[str, Any]:
        """The answer to `question` as the HTTP interface gives it, report in `dragon`."""
        body = {"model": "dragon", "messages": [{"role": "user", "content": question}]} | fields
        with self.inside("device"):
            response = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=ANSWER_PATIENCE, **LOCALLY)
        if response.is_error:
            raise RuntimeError(response.text)
        result: dict[str, Any] = response.json()
        return result


def exchange_keys(data: Path) -> None:
    """Exchange keys as `dragon keys new` and `dragon keys trust` do, for a link that leaves the machine."""
    roles: tuple[Side, Side] = ("device", "cloud")
    for role, other in zip(roles, reversed(roles), strict=True):
        folder, trusting = (KeyFolder(data / each / "keys") for each in (role, other))
        if not any(peer.name == role for peer in trusting.trusted()):
            trusting.trust(role, folder.new().public)


def _environment(data: Path | None) -> dict[str, str]:
    """Environment of a daemon, without the settings of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAGON_")}
    kept["PYTHONPATH"] = str(ROOT)
    if data is not None:
        kept["DRAGON_DEVICE_DATA"] = str(data / "device")
        kept["DRAGON_CLOUD_DATA"] = str(data / "cloud")
        kept["DRAGON_DEVICE_LOCAL_KEYS"] = kept["DRAGON_CLOUD_LOCAL_KEYS"] = str(data / "local-keys")
        kept["DRAGON_DEVICE_MODELS"] = kept["DRAGON_CLOUD_MODELS"] = str(data / "models")
        # What the embedded model's world was measured with: its texts share most of their words.
        kept["DRAGON_DEVICE_MODEL"] = kept["DRAGON_CLOUD_MODEL"] = "embedded"
        kept["DRAGON_DEVICE_SEARCH"] = kept["DRAGON_CLOUD_SEARCH"] = "dense"
        kept["DRAGON_DEVICE_END_REPETITION"] = "false"  # answers are as long as they are asked for
        kept["DRAGON_DEVICE_UNMATCHED"] = "answer"  # from documents, however far they are from the question
        kept["XDG_CONFIG_HOME"] = str(data / "config")
    return kept
