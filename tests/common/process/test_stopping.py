"""A process that is told to stop ends in time, whatever holds it: real processes, real signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from scripts.daemons import ROOT
from tests.daemons.streaming import PATIENCE, wait_until

STUCK = """
import sys, threading, time
from contextlib import ExitStack
from common.process.lifetime import exit_on_stop, wait_until_stopped

def within_a_library():
    import hashlib
    while True:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # of no use, and deaf to signals

with exit_on_stop(), ExitStack() as stack:
    threading.Thread(target=threading.Event().wait).start()  # one that nobody ends
    if sys.argv[1] == "ending":
        stack.callback(lambda: (print("ending", flush=True), threading.Event().wait()))
    print("ready", flush=True)
    if sys.argv[1] == "library":
        within_a_library()
    wait_until_stopped()
"""


@contextmanager
def stuck(where: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STUCK, where]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_threads_that_nobody_ends() -> None:
    with stuck("nowhere") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("where", ["ending", "library"])
def test_an_end_that_does_not_come(where: str) -> None:
    with stuck(where) as process:
        if where == "library":
            started = psutil.Process(process.pid).cpu_times().user
            wait_until(lambda: psutil.Process(process.pid).cpu_times().user > started + 0.1, "it is within it")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + signal.SIGTERM
    assert re.fullmatch("dragon: stopping took longer than .* s; the process ends now.\n", said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_told_twice(number: int, code: int) -> None:
    with stuck("ending") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None and process.stdout.readline() == "ending\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
        assert (process.returncode, said) == (code, "")
