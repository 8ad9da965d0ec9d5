"""`python -m scripts.netlab` as a user sees it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts.daemons import ROOT


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Who?"], "--rtt"),
        (["--rtt", "fast", "Who?"], "invalid float value: 'fast'"),
        (["--rtt", "10", "--jitter", "20", "Who?"], "jitter is a share of the delay"),
        (["--rtt", "10", "--uplink", "0.1", "Who?"], "the uplink must have at least 0.8 kb/s, not 0.1"),
        (["--rtt", "10", "--trace", "none.csv", "Who?"], "the trace none.csv can't be read"),
    ],
)
def test_errors_are_one_line(arguments: list[str], sentence: str) -> None:
    command = [sys.executable, "-m", "scripts.netlab", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert sentence in line
