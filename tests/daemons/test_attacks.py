"""Attacks on a running cloud daemon by whoever reaches its port, and by whoever holds a trusted key."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.daemons import Pair
from tests.attacks.side_by_side import Attacker, resident_bytes
from tests.daemons.intruder import let_in

QUESTION = "When does the place of my dance class open?"
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 48}
ROUNDS = 4
CASES = (("strangers", False), ("connections", False), ("names", False), ("names", True), ("malformed", True))
# What an attack may cost per token; generous, because the attacker itself takes one of two cores. Figures are printed.
FACTOR, SLACK = 2.0, 0.01
GROWTH = 128 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Besieged:
    pair: Pair
    keys: tuple[str, str, str]  # of the intruder, and the cloud's


@pytest.fixture(scope="module")
def besieged(fresh_data: Callable[[], Path]) -> Iterator[Besieged]:
    data = fresh_data()
    keys = let_in(data)
    with Pair(data, {"patience": 60.0}) as pair:
        yield Besieged(pair, keys)


@pytest.mark.parametrize(("kind", "trusted"), CASES, ids=[f"{kind}{'-trusted' * trusted}" for kind, trusted in CASES])
def test_answers_are_the_same_beside_it_and_take_no_longer(besieged: Besieged, kind: str, trusted: bool) -> None:
    pair = besieged.pair
    expected = pair.complete(QUESTION, **SAMPLED)
    assert pair.cloud.process is not None
    before = resident_bytes(pair.cloud.process.pid)
    times: dict[bool, list[float]] = {False: [], True: []}
    address = f"tcp://127.0.0.1:{pair.cloud_port}"
    with Attacker(kind, address, *(besieged.keys if trusted else ())) as attacker:
        for _ in range(ROUNDS):
            for attacked in (False, True):
                if attacked:
                    attacker.go()
                answer = pair.complete(QUESTION, **SAMPLED)
                strikes = attacker.stop()
                report = answer["dragon"]
                times[attacked].append(report["per_token"])
                assert answer["choices"] == expected["choices"]
                assert report["degraded"] == [] and report["notes"] == expected["dragon"]["notes"]
    quiet, busy = (statistics.median(times[each]) for each in (False, True))
    grown = resident_bytes(pair.cloud.process.pid) - before
    name = f"{kind}{' with a trusted key' * trusted}"
    print(
        f"{name}: {1000 * quiet:.2f} ms per token quiet, {1000 * busy:.2f} ms attacked "
        f"({100 * (busy / quiet - 1):+.0f} %), {strikes} strikes, {grown / 2**20:+.0f} MiB"
    )
    assert strikes > 0
    assert busy < FACTOR * quiet + SLACK
    assert grown < GROWTH
    assert pair.cloud.running and pair.device.running
    assert "failed with" not in pair.cloud.log.read_text()
