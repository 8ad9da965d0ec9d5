"""A device that sleeps in the middle of an answer: its own sleep is not the cloud's silence."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scripts.daemons import Pair
from tests.daemons.streaming import Stream
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class, and what could help me with my health problem?"
PATIENCE = 5.0  # seconds, of the device, in which it is connected again
SLEEP = 3 * PATIENCE  # and longer than connections live without a sign of life
STEP_MS = 10.0
CLOUD_STEP_MS = 300.0  # so that the device waits whenever it is stopped
LENGTH = 32
BEGUN = 5
METHODS: tuple[dict[str, Any], ...] = (
    {"placement": "device", "max_tokens": LENGTH},
    {"placement": "cloud", "max_tokens": LENGTH},
    {"method": "dssd", "draft_length": 1, "max_tokens": 2 * LENGTH},  # two of its tokens may come in a step
)


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    data = fresh_data()
    model = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
    device = model | {"emulate_decode_ms": STEP_MS, "patience": PATIENCE, "privacy": "balanced"}
    with Pair(data, device, model | {"emulate_decode_ms": CLOUD_STEP_MS}) as pair:
        yield pair


def test_is_stopped_for_a_while(pair: Pair) -> None:
    """In the middle of an answer by each of the methods."""
    with ExitStack() as open_streams:
        streams = [
            open_streams.enter_context(Stream(pair.url, QUESTION, temperature=1.0, seed=7, **fields))
            for fields in METHODS
        ]
        with ThreadPoolExecutor(len(streams)) as pool:
            list(pool.map(lambda stream: stream.read(BEGUN), streams))
            device = pair.device.process
            assert device is not None
            assert pair.status()["active"] == len(METHODS)  # none is done
            device.send_signal(signal.SIGSTOP)
            time.sleep(SLEEP)  # what is tested
            device.send_signal(signal.SIGCONT)
            reports = list(pool.map(Stream.finish, streams))
    for fields, report in zip(METHODS, reports, strict=True):
        assert report["degraded"] == [], fields
        assert report["tokens"] == fields["max_tokens"]
