"""Processor time that others take while something is measured."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from common.process import machine as neighbours
from common.process.machine import Neighbours

BUSY = "while True: pass"


def test_others_are_counted_and_this_process_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as other:
        try:
            process = psutil.Process(other.pid)
            began = time.monotonic()
            own = time.process_time()
            with Neighbours() as watched:
                before = process.cpu_times().user
                while process.cpu_times().user < before + 1.0:  # this process is as busy
                    pass
            own, seconds = time.process_time() - own, time.monotonic() - began
        finally:
            other.kill()
    used = watched.cores * seconds
    assert used > 0.9
    assert own > 0.1  # though others may have most of the machine
    assert used < seconds * (psutil.cpu_count() or 1) - own + 0.05, "this process's own time is counted"


@pytest.mark.parametrize(
    ("others", "threads", "lacked"),
    [(0.0, 2, 0.0), (0.2, 2, 0.0), (1.0, 1, 0.0), (1.0, 2, 0.75), (1.5, 1, 0.25)],
)
def test_cores_that_threads_lack(monkeypatch: pytest.MonkeyPatch, others: float, threads: int, lacked: float) -> None:
    monkeypatch.setattr(neighbours, "usable_cores", lambda: 2)
    watched = Neighbours()
    watched.cores = others
    assert watched.lacked(threads) == lacked
