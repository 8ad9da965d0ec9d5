"""`python -m scripts.netlab` as a user sees it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.daemons import ROOT
from scripts.netlab.setting import KILOBIT, LinkSetting
from scripts.netlab.trace import TwoStates, markov, read_trace
from tests.scripts.netlab.conftest import open_lab


def netlab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.netlab", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_check_says_what_emulates_the_link_and_shows_its_distribution() -> None:
    with ExitStack() as resources:
        kind = open_lab(resources).kind
    done = netlab("check", "--rtt", "30", "--jitter", "0.2", "--probes", "20")
    verdict = "the link does what it was set to" in done.stdout
    assert done.returncode == (0 if verdict else 1), done.stdout + done.stderr  # 1 where the machine is busy
    for part in (kind, "round trip 30 ms, jitter 20 %", "probes    20, of which 0", "expected  median 30.00 ms"):
        assert part in done.stdout
    for direction in ("uplink", "downlink"):
        assert re.search(rf"^{direction} +[\d,]+\.\d kb/s measured, no limit set$", done.stdout, re.M)
    assert re.search(r"^measured  median \d+\.\d\d ms, 5 % below", done.stdout, re.M)


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        (["sinusoid", "--rtt", "300", "--seconds", "120"], (0.0, 0.3), (119.9, 0.2673)),
        (["step", "--rtt", "300", "--to", "50", "--at", "4"], (0.0, 0.3), (4.0, 0.05)),
        (["outage", "--rtt", "20", "--at", "4", "--seconds", "3", "--uplink", "400"], (0.0, 0.02), (7.0, 0.02)),
    ],
)
def test_trace_writes_what_ask_reads(
    arguments: list[str], first: tuple[float, float], last: tuple[float, float], tmp_path: Path
) -> None:
    done = netlab("trace", *arguments)
    assert done.returncode == 0, done.stderr
    (tmp_path / "trace.csv").write_text(done.stdout)
    trace = read_trace(tmp_path / "trace.csv")
    for point, (seconds, rtt) in zip((trace[0], trace[-1]), (first, last), strict=True):
        assert point.seconds == pytest.approx(seconds)
        assert point.setting.rtt == pytest.approx(rtt, abs=1e-3)


def test_a_markov_trace_is_that_of_its_seed(tmp_path: Path) -> None:
    chances = ["--worsens", "0.2", "--recovers", "0.1", "--dwell", "0.5", "--seed", "3"]
    done = netlab("trace", "markov", "--rtt", "50", "--downlink", "10000", "--seconds", "60", *chances)
    assert done.returncode == 0, done.stderr
    (tmp_path / "trace.csv").write_text(done.stdout)
    setting = LinkSetting(rtt=0.05, downlink=10_000 * KILOBIT)
    states = TwoStates(worsens=0.2, recovers=0.1, dwell=0.5)
    assert read_trace(tmp_path / "trace.csv") == markov(setting, 60, states, seed=3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check"], "--rtt"),
        (["check", "--rtt", "fast"], "invalid float value: 'fast'"),
        (["check", "--rtt", "10", "--jitter", "20"], "jitter is a share of the delay"),
        (["check", "--rtt", "10", "--probes", "0"], "--probes must be at least 1"),
        (["check", "--rtt", "10", "--uplink", "0.1"], "the uplink must have at least 0.8 kb/s, not 0.1"),
        (["trace", "markov", "--rtt", "10", "--seconds", "9", "--worsens", "0.1"], "--recovers"),
        (["trace", "markov", "--rtt=10", "--seconds=9", "--worsens=1", "--recovers=1", "--uplink=40"], "--uplink"),
        (["ask", "--rtt", "10", "--trace", "none.csv", "Who?"], "the trace none.csv can't be read"),
        (["trace", "random", "--rtt", "10", "--seconds", "-1"], "must be above 0 seconds"),
    ],
)
def test_errors_are_one_line(arguments: list[str], sentence: str) -> None:
    done = netlab(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert sentence in line


def test_without_permission_there_is_one_line() -> None:
    """Run in a namespace whose owner may make no further ones, as on machines that forbid it."""
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'
    outer = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
    try:
        allowed = subprocess.run([*outer, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("there are no user namespaces here to forbid something in")
    command = [*outer, sys.executable, "-m", "scripts.netlab", "check", "--rtt", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "needs Linux, and either root or user namespaces" in line
