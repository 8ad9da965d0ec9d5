"""Commands whose standard streams are closed, full, or in another encoding, and that are interrupted early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from device.http.server import HttpServer
from tests.device.cli.conftest import ROOT
from tests.device.table_engine import WAIT

COMMAND = f"{sys.executable} -m device.cli.main"

pytestmark = pytest.mark.usefixtures("dragon")


def shell(line: str, given: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command with arguments and redirections."""
    return subprocess.run(
        ["sh", "-c", f"{COMMAND} {line}"],
        input=given,
        capture_output=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=WAIT,
    )


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # as locales have it
@pytest.mark.parametrize("command", ["ask", "ask -", "chat"])
def test_a_question_in_another_encoding(server: HttpServer, command: str, errors: str) -> None:
    done = shell(f"{command} --url {server.url}", b"Wo ist das B\xfcro?\n", PYTHONIOENCODING=f"utf-8:{errors}")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"dragon: standard input is not text in the encoding utf-8: convert it, for example with iconv\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_output_that_can_not_be_written(server: HttpServer) -> None:
    for line in (f"ask one --url {server.url}", "config", "--version"):
        done = shell(f"{line} > /dev/full")
        said = b"dragon: standard output can't be written: no space left on device\n"
        assert (done.returncode, done.stderr.endswith(said)) == (1, True), done
        assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


def test_closed_streams(server: HttpServer) -> None:
    assert shell(f"ask one --url {server.url} <&-").stdout == b"one\n"
    for line in ("ask", "ask -"):
        done = shell(f"{line} --url {server.url} <&-")
        assert (done.returncode, done.stderr) == (2, b"dragon: the question is empty\n")
    assert shell(f"chat --url {server.url} <&-").returncode == 0
    assert shell(f"ask one --url {server.url} >&-").returncode == 0
    done = shell("ask --prot 2>&-")
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_a_daemon_without_output_leaves_its_files_alone(role: str) -> None:
    """Nothing that it opens gets the number of a stream that a library may print to."""
    done = shell(f"{role} --prot 1 <&- >&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"dragon: " if role == "device" else b"dragon cloud: "), done.stderr
    assert done.stderr.count(b"\n") == 1


def test_the_numbers_of_closed_streams_are_taken() -> None:
    code = """
import os, sys
os.close(0), os.close(1)
sys.stdin = sys.stdout = None
from common.process.machine import open_closed_streams
open_closed_streams()
print("nowhere", flush=True)
assert sys.stdin.read() == ""
assert os.open("/", os.O_RDONLY) > 2
assert os.get_inheritable(0) and os.get_inheritable(1)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_an_interrupt_while_modules_are_imported(tmp_path: Path) -> None:
    """The first of many imports takes its time here, in which Ctrl-C comes."""
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "device.cli.main", "status"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=WAIT)
    assert (process.returncode, said) == (130, b"")
