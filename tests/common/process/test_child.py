"""Children end with their parent, however it ended, and whatever they are at: real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from common.process.machine import child_command, python_environment

ROOT = Path(__file__).resolve().parents[3]
ENOUGH = 20.0  # seconds within which a child has to be gone, on a machine with other work; by itself it would last on
PATIENCE = 60.0  # seconds until processes have started, on a machine with other work

# One step of a regular expression, which takes a minute and lets nothing else of its process run.
ENDLESS = b":" * 100_000
READING = """
import sys
from common.library.readers.isolated import IsolatedReader
reader = IsolatedReader()
reader.read(".html", b"<p>words")
print(reader._process.pid, flush=True)
reader.read(".rst", sys.stdin.buffer.read())
"""


def until(seen: Callable[[], bool], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not seen():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(process: psutil.Process) -> bool:
    """Whether it runs no more; one that nobody has waited for may be listed still."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@contextmanager
def parent_of(
    code: str, *arguments: str, content: bytes = b""
) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """A process that runs `code`, and the child whose number it prints."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write(content)
        parent.stdin.close()
        child = psutil.Process(int(parent.stdout.readline()))
        try:
            yield parent, child
        finally:
            parent.kill()
            if not gone(child):
                child.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_reader_within_a_document_ends_with_its_parent(number: signal.Signals) -> None:
    with parent_of(READING, content=ENDLESS) as (parent, child):
        begun = child.cpu_times().user
        assert until(lambda: child.cpu_times().user > begun + 0.3, PATIENCE)
        parent.send_signal(number)
        parent.wait()
        assert until(lambda: gone(child), ENOUGH)


def test_a_parent_that_ended_before_is_noticed_at_the_start() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as other:
        pass
    command = child_command("common.processors.trial")
    command[command.index(str(os.getpid()))] = str(other.pid)
    assert subprocess.run(command, env=python_environment(), input=b"", timeout=PATIENCE, check=False).returncode == 1


def test_where_the_kernel_tells_nothing_a_thread_looks() -> None:
    code = """
from common.process import child as child_process
child_process._told_by_the_kernel = lambda: False
import sys, threading
child_process.end_with(int(sys.argv[1]))
threading.Event().wait()
"""
    starting = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {code!r}, str(os.getpid())])
print(child.pid, flush=True)
child.wait()
"""
    with parent_of(starting) as (parent, child):
        assert until(lambda: child.num_threads() > 1, PATIENCE)
        parent.kill()
        parent.wait()
        assert until(lambda: gone(child), PATIENCE)
