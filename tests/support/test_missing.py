"""A run tells of missing programs, in one process and with workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.daemons import ROOT

TESTS = """
import pytest
from tests.support.missing import skip_without

@pytest.fixture(scope="module")
def browser():
    skip_without("Chromium", "apt-get install chromium")

def test_one(browser): pass
def test_two(browser): pass
def test_three(): skip_without("tc", "apt-get install iproute2")
def test_four(): pytest.skip("the file system has no such dates")
def test_five(): pass
"""
TC = "1 test skipped: tc is missing: apt-get install iproute2"
LAST = f"2 tests skipped: Chromium is missing: apt-get install chromium; {TC}"


def run(folder: Path, *words: str, **environment: str) -> tuple[int, list[str]]:
    """Exit code and printed lines of a run of `TESTS`."""
    (folder / "pytest.ini").touch()
    (folder / "test_it.py").write_text(TESTS)
    clean = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.missing", "-p", "no:cacheprovider", *words]
    settings = clean | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_last_line_says_what_was_missing_and_how_to_have_it(tmp_path: Path, workers: str) -> None:
    code, printed = run(tmp_path, "-n", workers)
    assert (code, printed[-1]) == (0, LAST)
    assert "1 passed, 4 skipped" in printed[-2]


def test_in_ci_the_page_is_tested(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-n", "2", CI="1")
    assert (code, printed[-1]) == (1, LAST)
    assert printed[-2] == "CI must test the page, and Chromium is missing: the run fails."
    code, printed = run(tmp_path, "-k", "three or four or five", CI="1")
    assert (code, printed[-1]) == (0, TC)


def test_nothing_is_said_where_nothing_is_missing(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-k", "four or five", CI="1")
    assert code == 0
    assert "1 passed, 1 skipped" in printed[-1]
