"""Answers at privacy `secret` by two real daemons, over a link that is cut again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.asking import linked
from scripts.daemons import Pair
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.daemons.conftest import NOTES

QUESTION = "What could help me with my health problem?"
SLOW: dict[str, object] = {"emulate_decode_ms": 80.0}
TOKENS = 24
CUT_EVERY = 2.0  # seconds
OPTIONS: dict[str, Any] = {"privacy": "secret", "temperature": 1.0, "documents": len(NOTES), "max_tokens": TOKENS}


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[tuple[Pair, FaultyProxy]]:
    line = Line(delay=0.01)
    with linked(fresh_data(), {"patience": 60.0, **SLOW}, SLOW, line, line) as found:
        yield found


def test_cuts_lose_no_token(pair: tuple[Pair, FaultyProxy]) -> None:
    """The cloud takes part in every token, whatever was lost on the way."""
    daemons, proxy = pair
    over, cuts = threading.Event(), 0

    def cut() -> None:
        nonlocal cuts
        while not over.wait(CUT_EVERY):
            proxy.cut()
            cuts += 1

    thread = threading.Thread(target=cut, daemon=True)
    thread.start()
    try:
        reports = [daemons.complete(QUESTION, **OPTIONS, wait=True)["dragon"] for _ in range(3)]
    finally:
        over.set()
        thread.join()
    assert cuts >= 2
    assert all(report["degraded"] == [] for report in reports)
    assert all(report["cloud"]["accepted"] > 0 for report in reports)


def test_a_seed_does_not_decide(pair: tuple[Pair, FaultyProxy]) -> None:
    """Eight answers with one seed are not all the same, and those at temperature 0 are those of `strict`."""
    daemons, _ = pair

    def answer(**fields: Any) -> str:
        text: str = daemons.complete(QUESTION, **OPTIONS | {"seed": 7} | fields)["choices"][0]["message"]["content"]
        return text

    assert len({answer() for _ in range(8)}) > 1
    assert answer(temperature=0.0) == answer(temperature=0.0, privacy="strict")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"temperature": 1.5}, "temperature"),
        ({"placement": "cloud"}, "placement"),
        ({"sampler": "paper"}, "sampler"),
        ({"logprobs": True}, "logprobs"),
        ({"method": "sequence-wise"}, "privacy"),
    ],
)
def test_refuses_what_would_tell_more(pair: tuple[Pair, FaultyProxy], fields: dict[str, Any], named: str) -> None:
    daemons, _ = pair
    with pytest.raises(RuntimeError, match=f'"param":"{named}"'):
        daemons.complete(QUESTION, **OPTIONS | fields)
