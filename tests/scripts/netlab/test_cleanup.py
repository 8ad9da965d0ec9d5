"""Nothing of the lab stays, whatever ends the process that opened it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from scripts.daemons import ROOT
from scripts.netlab.watchdog import members
from tests.scripts.netlab.conftest import open_lab

PATIENCE = 20.0

# A lab with a process in each namespace, one of them deaf to everything but kill -9.
DRIVER = """
import os, subprocess, sys
from scripts.netlab.lab import NetLab

with NetLab() as lab:
    for side, ignored in (("device", ""), ("cloud", "trap '' TERM INT HUP;")):
        with lab.run_in(side):
            subprocess.Popen(["sh", "-c", ignored + " sleep 600 & echo up; wait"], stdout=sys.stdout)
    {ending}
"""
WAITING = "sys.stdin.read()"


@pytest.mark.parametrize(
    ("ending", "number"),
    [
        (WAITING, signal.SIGKILL),
        (WAITING, signal.SIGTERM),
        (WAITING, signal.SIGINT),
        ("sys.stdin.readline(); raise SystemExit(3)", None),
        ("sys.stdin.readline(); os._exit(4)", None),
    ],
)
def test_nothing_is_left(ending: str, number: signal.Signals | None) -> None:
    with ExitStack() as resources:
        open_lab(resources)  # or skip
    named = sorted(Path("/run/netns").glob("*"))
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(ending=ending)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    processes: list[int] = []
    try:
        assert driver.stdin is not None and driver.stdout is not None
        assert [driver.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        children = [child.pid for child in psutil.Process(driver.pid).children(recursive=True)]
        networks = {_network(child) for child in children} - {_network(os.getpid())}
        assert len(networks) == 2
        # Two shells with a sleep each; the driver itself may not have come back from starting the second one.
        assert len(set(members(networks)) - {driver.pid}) == 4
        processes += [os.pidfd_open(child) for child in children]
        if number is None:
            driver.stdin.write(b"end\n")
            driver.stdin.flush()
        else:
            driver.send_signal(number)
        for process in processes:
            assert select.select([process], [], [], PATIENCE)[0], "a process of the lab is still there"
        assert members(networks) == []
    finally:
        driver.kill()
        driver.communicate()
        for process in processes:
            os.close(process)
    assert sorted(Path("/run/netns").glob("*")) == named


def _network(pid: int) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/ns/net")
    return found.st_dev, found.st_ino
