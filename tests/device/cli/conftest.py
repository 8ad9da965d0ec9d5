"""The `dragon` command with settings of its own."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from device.cli.main import run_command

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended."""

    returncode: int
    stdout: str
    stderr: str


class Typed(str):
    """Input that is typed at a terminal, rather than piped."""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Dragon:
    """Runs the command with clean settings: in this process when called, in one of its own by `start`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name in [name for name in os.environ if name.startswith("DRAGON")]:
            monkeypatch.delenv(name)
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it would hide a missing flush
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.setenv(name, str(home))
        for role in ("DEVICE", "CLOUD"):
            monkeypatch.setenv(f"DRAGON_{role}_MODEL", "embedded")
            monkeypatch.setenv(f"DRAGON_{role}_SEARCH", "dense")

    def __call__(self, *arguments: str, given: str = "", **environment: str) -> Done:
        """Run it; `given` is what it can read from standard input."""
        with self._monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", _Terminal(given) if isinstance(given, Typed) else io.StringIO(given))
            returncode = run_command(list(arguments))
        captured = self._capsys.readouterr()
        return Done(returncode, captured.out, captured.err)

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "device.cli.main", *arguments]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
            try:
                yield process
            finally:
                process.kill()  # a failed test must not wait for it


@pytest.fixture
def dragon(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Dragon:
    return Dragon(monkeypatch, capsys, tmp_path)


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port
