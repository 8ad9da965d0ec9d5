"""The lock of one process: held once, let go by any end, and not by a file that was removed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.process.lifetime import LockHeld, sole_process
from common.process.machine import python_environment

HOLDER = """
import subprocess, sys
from pathlib import Path
from common.process.lifetime import sole_process
with sole_process(Path(sys.argv[1])):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        print(child.pid, flush=True)
"""


def test_it_is_held_once(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    with sole_process(file):
        for _ in range(2):
            with pytest.raises(LockHeld), sole_process(file):
                pass
        with sole_process(tmp_path / "b.lock"):
            pass
    with sole_process(file):
        pass
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_process_that_is_stopped_holds_it_and_its_child_does_not(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, env=python_environment(), stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            holder.send_signal(signal.SIGSTOP)
            with pytest.raises(LockHeld), sole_process(file):
                pass
            holder.kill()
            holder.wait()
            with sole_process(file):  # while the child lives
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_that_was_removed_guards_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its opening and its locking here, whoever had the lock removes it, and another one makes it anew."""
    file = tmp_path / "a.lock"
    lock = fcntl.flock
    removed: list[int] = []

    def slow(descriptor: int, kind: int) -> None:
        if not removed:
            removed.append(descriptor)
            file.unlink()
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", slow)
    with sole_process(file), pytest.raises(LockHeld), sole_process(file):
        pass
    assert removed


def test_where_nothing_can_be_locked(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "link.lock").symlink_to(tmp_path / "elsewhere")
    for file in (tmp_path / "nowhere" / "a.lock", tmp_path / "link.lock"):
        with pytest.raises(OSError), sole_process(file):
            pass
