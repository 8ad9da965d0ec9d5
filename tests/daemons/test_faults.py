"""What breaks under a running answer: the device finishes it, and takes the cloud back in when it is there again."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from common.transport.faulty import FaultyProxy
from scripts.daemons import Daemon, Pair, free_port
from tests.daemons.streaming import PATIENCE, Stream, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class, and what could help me with my health problem?"
STEP_MS = 25.0  # of the device, so that there is time to do harm
BEGUN = 5  # pieces of text after which an answer is in full swing
LONG = 320  # tokens; at the device's pace 8 s
SHORT = 60
FIELDS: dict[str, Any] = {"temperature": 1.0, "seed": 7}
JUNK = (b"", b"\x93", b"\xc1" * 50, b"\x92\xcd\xff\xff\x01", b"\xdd\xff\xff\xff\xff", b"x" * 2000)


class Place:
    """An impatient device, a patient one, a cloud for one answer at a time and a spare one, behind a proxy."""

    def __init__(self, data: Path, proxy: FaultyProxy, port: int) -> None:
        self.proxy = proxy
        model = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
        cloud = model | {"max_sessions": 1, "threads": 1}
        device = model | {"emulate_decode_ms": STEP_MS}
        between = int(proxy.address.rpartition(":")[2])
        self.pair = Pair(data, device | {"patience": 0.5}, cloud, between=between, cloud_port=port)
        self.patient = Pair(data, device | {"patience": 60.0}, between=between)
        self.patient.device.log = data / "patient.log"
        self.spare_port = free_port()
        bind = {"bind": f"tcp://127.0.0.1:{self.spare_port}"}
        self.spare = Daemon("cloud", data, cloud | bind, data / "spare.log")

    def start(self) -> None:
        self.spare.start()
        self.patient.device.start()
        self.pair.__enter__()
        self.patient.wait_for_cloud("connected") if self._patient_is_up() else None
        self.spare.wait_for("cloud ready")

    def _patient_is_up(self) -> bool:
        self.patient.device.wait_for("device ready")
        return True

    def stop(self) -> None:
        self.patient.device.stop()
        self.pair.__exit__(None, None, None)
        self.spare.stop()
