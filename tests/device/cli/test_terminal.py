"""`dragon chat` at a real terminal, where what is pasted at once is one question; and encodings of terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from device.http.server import HttpServer
from tests.device.cli.conftest import ROOT
from tests.device.table_engine import WAIT, TableEngine

PASTE, PASTED = "\x1b[200~", "\x1b[201~"  # between which a terminal puts what is pasted, if it was asked to


class Terminal:
    """A pseudo-terminal with a program in it."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self.shown = ""

    def write(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` is on the screen behind what was waited for before."""
        deadline = time.monotonic() + WAIT
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.shown += os.read(self._leader, 4096).decode(errors="replace")
        self.shown = self.shown.partition(text)[2]


@contextmanager
def chatting(url: str, *, library: bool) -> Iterator[Terminal]:
    """`dragon chat` in a terminal, with the library for line editing or without."""
    leader, follower = pty.openpty()
    hidden = "" if library else "sys.modules['readline'] = None\n"
    code = f"import sys\n{hidden}from device.cli.main import run_command\nsys.exit(run_command(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "chat", "--url", url]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    ends = {"stdin": follower, "stdout": follower, "stderr": follower}
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **ends) as process:  # type: ignore[call-overload]
        os.close(follower)
        try:
            terminal = Terminal(leader)
            terminal.wait_for("> ")
            yield terminal
            terminal.write("/quit\n")
            assert process.wait(WAIT) == 0
        finally:
            process.kill()
            os.close(leader)


@pytest.mark.usefixtures("dragon")
class TestPaste:
    @pytest.mark.parametrize("library", [True, False], ids=["edited", "plain"])
    def test_lines_that_come_at_once_are_one_question(
        self, server: HttpServer, engine: TableEngine, library: bool
    ) -> None:
        with chatting(server.url, library=library) as terminal:
            terminal.write("one two\n\n/sources of it\nthree\n")
            assert engine.generation().request.question == "one two\n\n/sources of it\nthree"
            terminal.wait_for("left this device")
            terminal.wait_for("> ")
            terminal.write("four\n")
            assert engine.generation(count=2).request.question == "four"
            terminal.wait_for("left this device")
            terminal.wait_for("> ")
        assert len(engine.generations) == 2

    def test_a_marked_paste_waits_for_enter(self, server: HttpServer, engine: TableEngine) -> None:
        with chatting(server.url, library=True) as terminal:
            terminal.write(f"{PASTE}one\rtwo{PASTED}")
            terminal.wait_for("two")
            assert engine.generations == []
            terminal.write(" three\n")
            assert engine.generation().request.question == "one\ntwo three"
            terminal.wait_for("left this device")
            terminal.wait_for("> ")

    def test_the_last_line_of_a_paste_may_be_finished(self, server: HttpServer, engine: TableEngine) -> None:
        with chatting(server.url, library=True) as terminal:
            terminal.write("one\ntwo")
            terminal.wait_for("two")
            terminal.write(" three\n")
            assert engine.generation().request.question == "one\ntwo three"
            terminal.wait_for("left this device")
            terminal.wait_for("> ")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_a_character_that_the_encoding_lacks_ends_nothing(encoding: str) -> None:
    code = "import device.cli.main as cli\ncli.run_command = lambda arguments: print('caf\xe9 \u0448') or 0\ncli.main()"
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, env=environment, timeout=WAIT)
    cafe = b"caf\\xe9" if encoding == "ascii" else b"caf\xe9"
    assert (done.returncode, done.stdout) == (0, cafe + b" \\u0448\n")


def test_arguments_of_another_encoding_are_bad_input() -> None:
    command = [sys.executable.encode(), b"-m", b"device.cli.main", b"ask", b"caf\xe9"]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, timeout=WAIT, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "dragon: 'caf\\udce9' is not text in this terminal's encoding: set it to UTF-8 (LC_ALL=C.UTF-8)\n"
    )
