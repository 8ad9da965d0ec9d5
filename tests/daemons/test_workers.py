"""A cloud of two workers behind a gateway, with real processes: the same answers, also when some of these end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from scripts.daemons import Daemon, Pair, free_port
from tests.daemons.ending import end
from tests.daemons.streaming import wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

pytestmark = [pytest.mark.walkthrough, pytest.mark.timeout(600)]

QUESTION = "Where is my dance class, and what could help me with my health problem?"
TOKENS = 200
STEP_MS = 25.0
AT_A_TIME = 8
SILENCE = 12.0  # seconds until a worker that hangs is given up
STARTED = 120.0  # seconds within which another worker serves
WAITING: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 1.0, "wait": True}


@pytest.fixture(scope="module")
def model(fresh_data: Callable[[], Path]) -> dict[str, Any]:
    return {"model": make_wordy_model(fresh_data() / "model"), "scorer": SCORER, "emulate_decode_ms": STEP_MS}


@pytest.fixture(scope="module")
def expected(fresh_data: Callable[[], Path], model: dict[str, Any]) -> list[str]:
    """Texts by seed, of a cloud that is one process."""
    with Pair(fresh_data(), model, model) as pair:
        return [text_of(pair, seed) for seed in range(AT_A_TIME)]


@pytest.fixture(scope="module")
def place(fresh_data: Callable[[], Path], model: dict[str, Any]) -> Iterator[Pair]:
    crowd = {"workers": 2, "worker_silence_seconds": SILENCE}
    with Pair(fresh_data(), model, model | crowd) as pair:
        yield pair


@pytest.fixture
def pair(place: Pair) -> Pair:
    """Both workers serve, whatever the test before did."""
    if not place.cloud.running:
        place.cloud.start()
    wait_until(lambda: len(serving(place)) == 2, "both workers serve", STARTED)
    place.wait_for_cloud("connected")
    return place


def text_of(pair: Pair, seed: int) -> str:
    answer = pair.complete(QUESTION, seed=seed, **WAITING)
    report = answer["dragon"]
    assert (report["degraded"], report["tokens"]) == ([], TOKENS)
    text: str = answer["choices"][0]["message"]["content"]
    return text


def serving(pair: Pair) -> list[int]:
    """Numbers of the workers that are there and have said that they serve."""
    log = pair.cloud.log.read_text()
    numbers = []
    for process in pair.cloud.workers:
        words = process.cmdline()
        number = int(words[words.index("cloud.gateway.worker") + 1])
        if f"worker {number} serves" in log:
            numbers.append(number)
    return numbers


class Answers:
    """Answers that are asked for at the same time."""

    def __init__(self, pair: Pair) -> None:
        self.texts: dict[int, str] = {}
        self.threads = [threading.Thread(target=self._ask, args=(pair, seed)) for seed in range(AT_A_TIME)]
        for thread in self.threads:
            thread.start()
        wait_until(lambda: pair.status()["active"] == AT_A_TIME, "all are under way")
        time.sleep(0.6)  # some tokens long: each takes 5 s at least

    def _ask(self, pair: Pair, seed: int) -> None:
        self.texts[seed] = text_of(pair, seed)

    def all(self) -> list[str]:
        for thread in self.threads:
            thread.join()
        return [self.texts.get(seed, "") for seed in range(AT_A_TIME)]


def test_answers_are_those_of_one_process(pair: Pair, expected: list[str]) -> None:
    answers = Answers(pair)
    assert all(each.num_threads() > 1 for each in pair.cloud.workers)
    assert answers.all() == expected


def test_a_worker_is_killed_in_the_middle(pair: Pair, expected: list[str]) -> None:
    before = serving(pair)
    answers = Answers(pair)
    pair.cloud.workers[0].kill()
    assert answers.all() == expected
    wait_until(lambda: len(serving(pair)) == 2, "another worker serves", STARTED)
    assert serving(pair) != before
    assert [text_of(pair, 0)] == expected[:1]


def test_one_hangs_and_the_other_is_killed(pair: Pair, expected: list[str]) -> None:
    """Devices wait until another one serves, and none waits for one that never answers."""
    answers = Answers(pair)
    hanging, other = pair.cloud.workers
    hanging.suspend()
    other.kill()
    assert answers.all() == expected
    wait_until(lambda: not hanging.is_running(), "it was given up", SILENCE + STARTED)


def test_the_gateway_is_killed_and_started_again(pair: Pair, expected: list[str]) -> None:
    """Nothing of it is left, and the device has another cloud soon."""
    answers = Answers(pair)
    left = pair.cloud.workers
    pair.cloud.kill()
    wait_until(lambda: not any(each.is_running() for each in left), "its workers have ended")
    pair.cloud.start()
    assert answers.all() == expected


def test_stopping(pair: Pair) -> None:
    left, data = pair.cloud.workers, pair.data / "cloud"
    end(pair.cloud, beside=left).check()
    assert not any(each.is_running() for each in left)
    assert not (data / "workers").exists()


def test_workers_that_cannot_start(fresh_data: Callable[[], Path]) -> None:
    data = fresh_data()
    flags = {"workers": 2, "bind": f"tcp://127.0.0.1:{free_port()}", "model": str(data / "nothing")}
    cloud = Daemon("cloud", data, flags, data / "cloud.log")
    cloud.start()
    assert cloud.process is not None
    assert cloud.process.wait(120.0) == 2
    said = cloud.log.read_text()
    assert "no worker could be started" in said and str(data / "nothing") in said
    assert not any(
        "cloud.gateway.worker" in " ".join(each.cmdline()) for each in psutil.Process(os.getpid()).children(True)
    )
