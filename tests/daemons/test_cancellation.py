"""An answer that nobody wants any more: both sides are free at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.daemons import ROOT, Pair
from tests.daemons.streaming import PATIENCE, Stream, complete_together, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class?"
STEP_MS = 50.0  # of the device: an answer of 500 tokens takes 25 s
ENDLESS = 500
BEGUN = 3  # pieces of text
AT_ONCE = 8.0  # seconds, on a busy machine
TOKENS = 6


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    """A pair whose cloud serves one answer at a time, so that it matters when one is over."""
    data = fresh_data()
    model = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
    with Pair(data, model | {"emulate_decode_ms": STEP_MS, "patience": 60.0}, model | {"max_sessions": 1}) as pair:
        yield pair


def check_that_both_are_free(pair: Pair) -> None:
    assert wait_until(lambda: pair.status()["active"] == 0, "the device is free") < AT_ONCE
    report = complete_together(pair, QUESTION, max_tokens=TOKENS, temperature=1.0, seed=1)["dragon"]
    assert (report["tokens"], report["notes"]) == (TOKENS, [])
    assert {source["side"] for source in report["sources"]} == {"device", "cloud"}


class TestClientThatLeaves:
    def test_in_the_middle_of_a_stream(self, pair: Pair) -> None:
        with Stream(pair.url, QUESTION, max_tokens=ENDLESS, temperature=1.0, seed=1) as stream:
            stream.read(BEGUN)
            assert pair.status()["active"] == 1
            busy = pair.complete(QUESTION, max_tokens=TOKENS, temperature=1.0, seed=1)["dragon"]
            assert busy["degraded"] == list(range(TOKENS))  # otherwise a place on the cloud would say little
        check_that_both_are_free(pair)


class TestAsk:
    def test_control_c(self, pair: Pair) -> None:
        command = [sys.executable, "-m", "device.cli.main", "ask", QUESTION, "--url", pair.url]
        command += ["--max-tokens", str(ENDLESS), "--temperature", "1", "--seed", "1"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.read(1)  # the answer has begun
                assert pair.status()["active"] == 1
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        assert process.returncode == 130
        assert b"Traceback" not in said
        check_that_both_are_free(pair)
