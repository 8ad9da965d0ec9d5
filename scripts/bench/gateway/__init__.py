"""The suite `gateway`: what a message takes more by way of the gateway, and what idle sessions take there.

Clouds without a model, processes of their own, reached over loopback with encryption: one answers messages where they
arrive, the other one passes them on to a worker and back. One message is under way at a time.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import psutil

from common.process.python import child_command, python_environment
from common.transport.interface import Peer
from common.transport.keys import DeviceKeys, KeyPair
from common.transport.limits import Limits
from common.transport.link import DeviceLink
from proto.digest import EMPTY
from proto.errors import ProtocolError
from proto.messages import Draft, Hello, Message, Open, Ready, Welcome
from scripts.bench.measuring import Spread, Table, load
from scripts.bench.results import Results

MODES: Final = {"direct": "answered where they arrive", "gateway": "by way of the gateway"}
HELLO: Final = Hello("device", "m", "t", 4096, "s", "e", ("race",), 0.1, 0.0, (), "", "near")
OPEN: Final = Open(1, "speculative", "?", "?", 4, 1, 0.0, "race", "race", 32, True, 1.0, "cloud", "both", 1, 40)
DRAFT: Final = Draft(1, 0, 0, EMPTY, 0.0, 0, b"\0" * 60)  # a few dozen bytes, as in an answer
PATIENCE: Final = 60.0  # seconds
LIMITS: Final = Limits(messages_per_second=1e6, messages_burst=1e6)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run."""

    rounds: int = 5
    messages: int = 4000  # there and back, in each round
    devices: int = 500
    sessions: int = 20  # of each device


class _Device:
    """A device that waits for one message at a time."""

    def __init__(self, address: str, key: str) -> None:
        self._came = threading.Event()
        self.last: Message | None = None
        own = KeyPair.new()
        self.link = DeviceLink(address, DeviceKeys(own, key), self, LIMITS)

    def on_connected(self, peer: Peer) -> None:
        self._came.set()

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        self.last = message
        self._came.set()

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        raise AssertionError("the suite's own messages are valid")

    def on_gone(self, peer: Peer) -> None:
        """The suite is over."""

    def begin(self) -> None:
        """Connect, and shake hands."""
        self.link.start()
        self.wait()
        assert isinstance(self.exchange(HELLO), Welcome)

    def wait(self) -> None:
        assert self._came.wait(PATIENCE), "nothing came"
        self._came.clear()

    def exchange(self, message: Message) -> Message | None:
        """The answer to a message."""
        self.link.send(message)
        self.wait()
        return self.last


def run(results: Results) -> None:
    """Send messages to both in turn, round by round; then open many sessions at the gateway."""
    plan = Plan(1, 50, 2, 3) if results.short else Plan()
    laps: list[dict[str, list[float]]] = []
    spent: list[float] = []
    with cloud("direct") as direct, cloud("gateway") as gateway:
        ways = {"direct": met(direct), "gateway": met(gateway)}
        for number in range(plan.rounds):
            results.say(f"round {number + 1} of {plan.rounds}: {plan.messages} messages each way")
            laps.append({mode: timed(device, plan.messages) for mode, device in ways.items()})
            spent.append(processor_time(gateway, ways["gateway"], plan.messages))
        for device in ways.values():
            device.link.close()
        results.say(f"{plan.devices} devices with {plan.sessions} sessions each")
        grown = idle(gateway, plan)
    results.samples("plan", plan)
    results.samples("microseconds", laps)
    note = f"Medians over {plan.rounds} rounds of {plan.messages} messages there and back; load {load()}."
    results.table("Gateway, a message", messages_table(laps), note)
    results.samples("processor microseconds", spent)
    rows = [[Spread.of(spent).short(), f"{1e6 / Spread.of(spent).median:.0f}"]]
    heads = ["µs of a core per message", "messages per second and core"]
    results.table(
        "Gateway, processor time", Table(heads, rows), "Of the gateway's process, encryption with devices included."
    )
    total = plan.devices * plan.sessions
    rows = [[str(plan.devices), str(total), f"{grown.connected / 2**20:.0f}", f"{grown.opened / 2**20:.0f}"]]
    heads = ["devices", "idle sessions", "MiB more with the devices", "MiB more with their sessions, too"]
    results.table("Gateway, idle sessions", Table(heads, rows), "Resident memory of the gateway's process.")


@contextmanager
def cloud(mode: str) -> Iterator[dict[str, Any]]:
    """A cloud's address, key and process."""
    command = child_command("scripts.bench.gateway.echo", mode)
    with subprocess.Popen(
        command, env=python_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()


def met(told: dict[str, Any]) -> _Device:
    """A device with an open session."""
    device = _Device(told["address"], told["key"])
    device.begin()
    assert isinstance(device.exchange(OPEN), Ready)
    return device


def timed(device: _Device, count: int) -> list[float]:
    """Microseconds of each message, there and back."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        device.exchange(DRAFT)
        taken.append(1e6 * (time.perf_counter() - began))
    return taken


def processor_time(told: dict[str, Any], device: _Device, count: int) -> float:
    """Microseconds of processor time that the gateway's process takes for a message, of many there and back."""
    process = psutil.Process(told["process"])
    before = process.cpu_times()
    timed(device, count)
    after = process.cpu_times()
    return float(1e6 * (after.user + after.system - before.user - before.system) / (2 * count))


@dataclass(frozen=True, slots=True)
class Grown:
    """Bytes of memory that a process has more than before."""

    connected: int
    opened: int


def idle(told: dict[str, Any], plan: Plan) -> Grown:
    """The gateway's memory with many devices, and with their sessions."""
    process = psutil.Process(told["process"])
    before = process.memory_info().rss
    devices = [_Device(told["address"], told["key"]) for _ in range(plan.devices)]
    for device in devices:
        device.begin()
    connected = process.memory_info().rss
    for device in devices:
        for session in range(1, plan.sessions + 1):
            device.exchange(replace(OPEN, session=session))
    opened = process.memory_info().rss
    for device in devices:
        device.link.close()
    return Grown(connected - before, opened - before)


def messages_table(laps: list[dict[str, list[float]]]) -> Table:
    """A row for each way; what is added is half of the medians' difference: a message passes the gateway once each way.

    Of single messages nothing follows: their round trips don't tell which way was the slow one.
    """
    heads = ["messages", "µs there and back", "99 of 100 within", "µs more per message"]
    direct = np.array([np.median(lap["direct"]) for lap in laps])
    rows = []
    for mode, name in MODES.items():
        medians, slowest = (np.array([np.percentile(lap[mode], share) for lap in laps]) for share in (50, 99))
        rows.append([name, *(Spread.of(list(each)).short() for each in (medians, slowest, (medians - direct) / 2))])
    return Table(heads, rows)
