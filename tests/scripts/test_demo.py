"""`make demo` as a user sees it: both daemons, both sample libraries, every question through the client."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import psutil
import pytest

from scripts.daemons import ROOT

QUESTIONS = json.loads((ROOT / "scripts" / "demo" / "questions.json").read_text())


def in_demonstration(process: psutil.Process) -> bool:
    """Whether its data lies in a demonstration's folder; other tests have daemons of their own."""
    try:
        return "dragon-demo-" in process.environ().get("DRAGON_DEVICE_DATA", "")
    except psutil.Error:
        return False


@pytest.mark.timeout(600)
def test_the_demonstration_answers_right_and_leaves_nothing_running() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo"], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Real texts: [2-4] of 4 questions right together and wrong from either side alone", done.stdout)
    shown = " ".join(done.stdout.split())
    for question in QUESTIONS:
        assert question["question"] in shown
        assert f"together {question['answer']} right" in shown
        if question["needs"] == "both":
            assert f"device alone {question['answer']} right" not in shown
            assert f"cloud alone {question['answer']} right" not in shown
    ours = [process.pid for process in psutil.process_iter() if in_demonstration(process)]
    assert ours == []


def test_enough_questions_need_both_libraries() -> None:
    assert len(QUESTIONS) >= 4
    assert sum(question["needs"] == "both" for question in QUESTIONS) >= 2
