"""`dragon chat` at a real terminal: what is pasted at once is one question."""

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
    code = f"import sys\n{hidden}from device.cli.main import run\nsys.exit(run(sys.argv[1:]))"
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
            terminal.wait_for("bytes/token")
            terminal.wait_for("> ")
            terminal.write("four\n")
            assert engine.generation(count=2).request.question == "four"
            terminal.wait_for("bytes/token")
            terminal.wait_for("> ")
        assert len(engine.generations) == 2

    def test_a_marked_paste_waits_for_enter(self, server: HttpServer, engine: TableEngine) -> None:
        with chatting(server.url, library=True) as terminal:
            terminal.write(f"{PASTE}one\rtwo{PASTED}")
            terminal.wait_for("two")
            assert engine.generations == []
            terminal.write(" three\n")
            assert engine.generation().request.question == "one\ntwo three"
            terminal.wait_for("bytes/token")
            terminal.wait_for("> ")

    def test_the_last_line_of_a_paste_may_be_finished(self, server: HttpServer, engine: TableEngine) -> None:
        with chatting(server.url, library=True) as terminal:
            terminal.write("one\ntwo")
            terminal.wait_for("two")
            terminal.write(" three\n")
            assert engine.generation().request.question == "one\ntwo three"
            terminal.wait_for("bytes/token")
            terminal.wait_for("> ")
