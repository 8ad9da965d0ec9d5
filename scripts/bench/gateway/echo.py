"""`python -m scripts.bench.gateway.echo`: a cloud without a model, which sends every draft back.

    echo direct                   answers devices in the process that they reach, as a cloud of one process does
    echo gateway                  passes their messages on to a worker
    echo worker NUMBER ADDRESS    is the worker

The first two say address and public key on stdout, and end with stdin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from cloud.gateway.channel import ChannelKeys
from cloud.gateway.fleet import Fleet
from cloud.gateway.gateway import Gateway
from cloud.gateway.processes import LocalProcess, WorkerProcess
from cloud.gateway.worker_link import WorkerLink
from common.process.python import child_command, python_environment
from common.transport.interface import Peer
from common.transport.keys import CloudKeys, KeyPair
from common.transport.link import CloudLink
from proto.errors import ProtocolError
from proto.messages import Draft, Hello, Message, Open, Ready, Welcome
from scripts.bench.gateway import LIMITS

VOCABULARY: Final = 4096
SILENCE: Final = 3600.0  # seconds; a worker without a watchdog gives no signs of life


class Sends(Protocol):
    """A link to devices, direct or by way of the gateway."""

    def send(self, peer: Peer, message: Message) -> int: ...


class Echo:
    """Handler of either link."""

    link: Sends

    def on_connected(self, peer: Peer) -> None:
        """Nothing is known of it yet."""

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        raise AssertionError("the suite's own messages are valid")

    def on_gone(self, peer: Peer) -> None:
        """Nothing was kept."""

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case Draft():
                self.link.send(peer, message)
            case Hello():
                self.link.send(peer, Welcome(replace(message, role="cloud", library="none"), 2**19, 64, 1000))
            case Open():
                self.link.send(peer, Ready(message.session, (), 0, -1.0))


class _Launcher:
    """Starts workers that echo."""

    keys: ChannelKeys | None = None

    def __init__(self, folder: Path) -> None:
        self.address = f"ipc://{folder / 'workers'}"

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        command = child_command("scripts.bench.gateway.echo", "worker", str(number), address)
        return LocalProcess(subprocess.Popen(command, env=python_environment()))

    def close(self) -> None:
        """There is nothing but the processes."""


def serve(mode: str) -> None:
    """Be a cloud until stdin ends."""
    own = KeyPair.new()
    keys = CloudKeys(own, lambda key: True)
    with ExitStack() as stack:
        if mode == "direct":
            echo = Echo()
            link = CloudLink("tcp://127.0.0.1:0", keys, echo, LIMITS)
            echo.link = link
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            fleet = Fleet(1, _Launcher(folder), SILENCE)
            fleet.start()
            stack.callback(fleet.close)
            fleet.until_one_serves()
            gateway = Gateway(fleet, most_per_key=2**19)
            link = CloudLink("tcp://127.0.0.1:0", keys, gateway, LIMITS, beside=fleet.turns)
            gateway.link = link
            fleet.serve(gateway)
        stack.enter_context(link)
        print(json.dumps({"address": link.address, "key": own.public, "process": os.getpid()}), flush=True)
        sys.stdin.read()


def work(number: int, address: str) -> None:
    """Be a worker until the gateway ends."""
    echo = Echo()
    link = WorkerLink(address, number, echo)
    echo.link = link
    link.start()
    link.ready(VOCABULARY)
    threading.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(int(sys.argv[2]), sys.argv[3])
    else:
        serve(sys.argv[1])
