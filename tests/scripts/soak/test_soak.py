"""A short run of real processes: it ends, says how it went, and leaves none of them behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scripts.daemons import ROOT

pytestmark = [pytest.mark.suite, pytest.mark.timeout(900)]  # daemons to start, on a busy machine


def started(seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "scripts.soak", "--minutes", "0.5", "--seed", str(seed)]
    return subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, text=True)


def left_of(seed: int) -> list[str]:
    """Command lines of the processes that work in the run's folder."""
    folder = str(ROOT / "build" / "soak" / str(seed))
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        if (process.info["environ"] or {}).get("TMPDIR", "").startswith(folder):
            found.append(" ".join(process.info["cmdline"]))
    return found


def test_a_short_run() -> None:
    run = started(990001)
    shown, _ = run.communicate()
    assert run.returncode == 0, shown
    assert shown.startswith("seed 990001; the same again: make soak MINUTES=0.5 SEED=990001\n")
    record = json.loads((ROOT / "build" / "soak" / "990001.json").read_text())
    assert record["faults"]
    assert sum(each["compared"] for each in record["requests"]) > 0
    assert not left_of(990001)
    assert not any(str(990001) in line for line in Path("/proc/mounts").read_text().splitlines())


def test_interrupted_in_the_middle() -> None:
    with started(990002) as run:
        assert run.stdout is not None
        while "reference answers" not in run.stdout.readline():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        rest = run.stdout.read()
        assert run.wait() == 0, rest
    assert "until it was interrupted" in rest
    assert not left_of(990002)
