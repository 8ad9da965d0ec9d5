"""`make demo` as a user sees it: both daemons, both sample libraries, every question through the client."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scripts.daemons import ROOT
from scripts.demo.__main__ import main
from tests.daemons.conftest import starts

__all__ = ["starts"]  # daemons and clients, fifty of them, without the time that imports take

Demonstration = Callable[..., str]
QUESTIONS = json.loads((ROOT / "scripts" / "demo" / "questions.json").read_text())


def running(folder: Path) -> list[int]:
    """Processes that write below `folder`, as every daemon does to its log."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(file.path).is_relative_to(folder) for file in process.open_files()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Demonstration:
    """Show the parts that are named; what is told. It must answer right and leave nothing running."""

    def show(*parts: str) -> str:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        code = main(parts)
        told, complained = capsys.readouterr()
        assert code == 0, told + complained
        assert running(tmp_path) == []
        assert not list(tmp_path.iterdir())
        return told

    return show


@pytest.mark.walkthrough
@pytest.mark.timeout(600)
def test_the_invented_world_is_answered_right(demonstration: Demonstration) -> None:
    told = demonstration("world")
    assert "Real texts" not in told
    says_what_is_expected(told)


@pytest.mark.suite  # a minute of the default language model's time
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")  # the first run on a machine imports the model
def test_the_whole_demonstration_is_answered_right(demonstration: Demonstration) -> None:
    told = demonstration()
    assert re.search(r"Real texts: [23] of 3 questions right together and wrong from either side alone", told)
    says_what_is_expected(told)


def says_what_is_expected(told: str) -> None:
    """Check every answer about the invented world."""
    shown = " ".join(told.split())
    for question in QUESTIONS:
        assert question["question"] in shown
        assert f"together {question['answer']} [right]" in shown
        if question["needs"] == "both":
            assert f"device alone {question['answer']} [right]" not in shown
            assert f"cloud alone {question['answer']} [right]" not in shown
    assert re.search(rf"Invented world: {len(QUESTIONS)} questions, .* no unexpected answers", shown)


def test_enough_questions_need_both_libraries() -> None:
    assert len(QUESTIONS) >= 4
    assert sum(question["needs"] == "both" for question in QUESTIONS) >= 2
