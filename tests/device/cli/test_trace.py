"""`dragon trace` where it can't show anything; what it shows is tested with real daemons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from device.http.server import HttpServer
from tests.device.cli.conftest import Dragon
from tests.device.table_engine import TableEngine


def test_a_trace_is_asked_for_and_a_daemon_without_one_is_told(
    dragon: Dragon, server: HttpServer, engine: TableEngine
) -> None:
    done = dragon("trace", "one two", "--url", server.url)
    assert engine.generation().request.trace is True
    assert (done.returncode, done.stdout) == (1, "")
    assert "the daemon sent no trace" in done.stderr


def test_an_empty_question_is_refused(dragon: Dragon) -> None:
    done = dragon("trace", "-", given=" \n")
    assert (done.returncode, done.stderr) == (2, "dragon: the question is empty\n")


def test_without_matplotlib_it_says_so_before_it_asks(
    dragon: Dragon, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = dragon("trace", "one", "--png", str(tmp_path / "x.png"), "--url", server.url)
    assert done.returncode == 2
    assert "pip install matplotlib" in done.stderr
    assert engine.generations == []


@pytest.mark.parametrize("flag", ["--png", "--output"])
def test_a_file_that_can_not_be_written_is_told_before_it_asks(
    dragon: Dragon, server: HttpServer, engine: TableEngine, flag: str, tmp_path: Path
) -> None:
    for path, said in ((tmp_path / "missing" / "x", "there is no folder"), (tmp_path, "it is a folder")):
        done = dragon("trace", "one", flag, str(path), "--url", server.url)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
    assert engine.generations == []


def test_a_name_that_no_file_can_have_is_one_line(dragon: Dragon, server: HttpServer) -> None:
    done = dragon("trace", "one", "--output", "n" * 300, "--url", server.url)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2), "the answer, and that there is no trace"
