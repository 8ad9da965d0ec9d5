"""`dragon device`, `dragon cloud` and `dragon up`: the daemons, in the foreground."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

import typer

from common.process.lifetime import show_presence
from common.process.machine import python_environment
from device.cli.failures import CommandFailed, bad_input, unfinished_answer
from device.cli.settings import load_device

if TYPE_CHECKING:
    from common.process.lifetime import ChildProcesses
    from device.settings import DeviceSettings

POLL: Final = 0.1  # seconds between checks for an end
STATUS_POLL: Final = 0.5  # seconds between status requests


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Flags added for both daemons, and their addresses."""

    device: list[str]
    cloud: list[str]
    settings: DeviceSettings
    port: int  # of the device
    url: str
    bind: str


def device(context: typer.Context) -> None:
    """Start the device daemon (flags are its settings)."""
    if {"-h", "--help"} & set(context.args):
        from common.configuration.flags import flags_help
        from device.settings import DeviceSettings

        print(flags_help(DeviceSettings))
        return
    settings = load_device(context.args)
    with ExitStack() as starting:
        starting.enter_context(show_presence(settings.starting))  # before the slow imports
        from device.daemon import run_device

        run_device(settings, starting.close)


def cloud(context: typer.Context) -> None:
    """Start the cloud daemon (flags are its settings)."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-P", "-m", "cloud", *context.args], python_environment())


def up() -> None:
    """Start both daemons on this machine.

    Both take their settings. Ctrl-C stops both.
    """
    device = load_device()
    with ExitStack() as starting:
        # Concurrent questions now wait for the daemon.
        starting.enter_context(show_presence(device.starting))
        _up(device, starting.close)


def _up(device: DeviceSettings, serving: Callable[[], object]) -> None:
    """Runs both daemons, and calls `serving` when both answer. Raises `CommandFailed`."""
    from common.process.lifetime import ChildProcesses, Stopped
    from common.process.machine import child_command

    plan = _planned(device)
    ways = {plan.url: "DRAGON_DEVICE_PORT=8610", plan.bind: "DRAGON_CLOUD_BIND=tcp://127.0.0.1:8611"}
    for address, way in ways.items():
        place = urlsplit(address)
        if _listens(place.hostname, place.port):
            raise bad_input(
                f"port {place.port} of this machine is in use, perhaps by a daemon; stop that program, or choose "
                f"another port: {way} dragon up"
            )
    commands = {
        "cloud": child_command("cloud.__main__", *plan.cloud, writes=True),
        "device": child_command("device.cli.main", "device", *plan.device, writes=True),
    }
    print("starting both daemons; Ctrl-C stops them", file=sys.stderr, flush=True)
    try:
        signals = _Signals()  # deferred during a start, whose child is unknown
        with ChildProcesses(commands, _print_line) as both:
            signals.begin()
            _wait_until_ready(both, plan)
            serving()
            while True:
                _check(both)
                time.sleep(POLL)
    except Stopped:
        print("both daemons have stopped", flush=True)


def _planned(device: DeviceSettings) -> LaunchPlan:
    from common.configuration.configuration import DEFAULT, origin_of
    from device.cli.settings import load_cloud, local_url

    cloud = load_cloud()
    flags: dict[str, list[str]] = {"device": [], "cloud": []}
    bind, met = _meeting(device, cloud.bind, origin_of(cloud, "bind") != DEFAULT)
    if bind != cloud.bind:
        flags["cloud"].append(f"--bind={bind}")
    if met != device.cloud:
        flags["device"].append(f"--cloud={met}")
    port = device.port or _free_port()
    if not device.port:
        flags["device"].append(f"--port={port}")
    return LaunchPlan(flags["device"], flags["cloud"], device, port, local_url(device, port), met)


def _meeting(device: DeviceSettings, bind: str, said: bool) -> tuple[str, str]:
    """The cloud's listening address, and the device's for it. `said`: a setting names `bind`."""
    from common.configuration.configuration import DEFAULT, origin_of
    from common.transport.address import is_local_address, split_address
    from device.cli.settings import reachable

    origin = origin_of(device, "cloud")
    if device.privacy == "offline" or device.cloud is None:
        setting = "privacy = 'offline'" if device.privacy == "offline" else f"cloud = 'none' ({origin})"
        raise bad_input(
            f"the device has no cloud ({setting}); start it alone with `dragon device`, or change the setting"
        )
    host, port = split_address(bind)
    reached = f"tcp://{reachable(host)}:{port}"
    if origin == DEFAULT:
        return bind, reached
    if not said and is_local_address(device.cloud):
        return device.cloud.replace("localhost", "127.0.0.1"), device.cloud
    if device.cloud in (bind, reached) or (is_local_address(device.cloud) and split_address(device.cloud)[1] == port):
        return bind, device.cloud
    raise bad_input(
        f"the device's cloud is {device.cloud} ({origin}), and this machine's would be {bind}; start the device alone"
        " with `dragon device`, or change one of them"
    )


def _wait_until_ready(both: ChildProcesses, plan: LaunchPlan) -> None:
    """Waits until both serve, and reports the addresses. Raises `CommandFailed` if one ends."""
    from device.cli.render import as_one_line

    at, bind = urlsplit(plan.url), urlsplit(plan.bind)
    while not (_listens(at.hostname, at.port) and _listens(bind.hostname, bind.port)):
        _check(both)
        time.sleep(POLL)
    while (status := _status(plan)) is None or status["cloud"]["state"] not in ("connected", "refused"):
        _check(both)
        time.sleep(STATUS_POLL)
    if status["cloud"]["state"] == "refused":
        print(f"the device answers without the cloud: {as_one_line(status['cloud']['detail'])}")
    print(f"both daemons are ready; the device at {plan.url}, OpenAI clients at {plan.url}/v1")
    if not status["documents"]:
        print("the device has no documents yet: dragon library add --watch FOLDER")
    other = any(flag.startswith("--port=") for flag in plan.device)
    print(f'ask with: {f"DRAGON_DEVICE_PORT={plan.port} " if other else ""}dragon ask "..."', flush=True)


def _status(plan: LaunchPlan) -> dict[str, Any] | None:
    """Returns the device's status, None if it is not ready."""
    from device.cli.connection import own_daemon

    try:
        # The daemon makes its key for this user when it begins to serve.
        with own_daemon(plan.settings, plan.port) as daemon:
            daemon.check_started()
            return daemon.status()
    except CommandFailed:  # `_check` reports an end
        return None


def _check(both: ChildProcesses) -> None:
    for name, code in both.ended().items():
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        both.stop()
        raise unfinished_answer(f"the {name} daemon ended with {how}; the other one was stopped")


class _Signals:
    """Makes SIGTERM or SIGINT raise `Stopped` once. A second one kills all processes."""

    def __init__(self) -> None:
        from common.process.lifetime import SIGNALS

        self._numbers = SIGNALS
        self._told = self._raising = False
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def begin(self) -> None:
        """Raises from now on, also for an earlier signal."""
        self._raising = True
        if self._told:
            self._stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        for each in self._numbers:
            signal.signal(each, signal.SIG_DFL)
        if self._raising:
            self._stop()

    def _stop(self) -> NoReturn:
        from common.process.lifetime import Stopped

        raise Stopped


def _print_line(name: str, line: str) -> None:
    from device.cli.render import strip_controls

    # In one write, as both daemons print.
    sys.stderr.write(f"{name:<6} | {strip_controls(line)}\n")
    sys.stderr.flush()


def _listens(host: str | None, port: int | None) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port
