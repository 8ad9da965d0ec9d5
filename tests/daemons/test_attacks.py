"""Attacks on a running cloud daemon by whoever reaches its port, and by whoever holds a trusted key: on one of a single
process, and on the gateway of one of several.

A busy machine only adds to what an answer takes. So the quickest answer under attack is compared with the slowest one
in quiet: an attack that costs every answer more than that is seen however busy the machine is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.side import SideRuntime
from device.settings import DeviceSettings
from proto.framing import encode
from scripts.daemons import PATIENTLY, Pair, free_port
from tests.attacks.side_by_side import Attacker, resident_bytes
from tests.daemons.intruder import let_in
from tests.daemons.streaming import complete_with_shares, wait_until
from tests.support.metrics import Metrics

QUESTION = "When does the place of my dance class open?"
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 32}
ROUNDS = 3
CASES = {  # kind, and whether its key is trusted: what the cloud counts of it
    ("strangers", False): "refused_handshakes",
    ("connections", False): "cut_connections",
    ("names", False): "refused_handshakes",
    ("names", True): "connections",
    ("malformed", True): "malformed_messages",
}
# What an attack may cost per token; generous, because the attacker itself takes one of two cores. Figures are printed.
FACTOR, SLACK = 2.0, 0.01
COSTLY = 3.0  # that of an attack whose work is done, as far as the attacker's share of the cloud goes
GROWTH = 128 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Besieged:
    pair: Pair
    keys: tuple[str, ...]  # of the intruder, and the cloud's; and what such a device says first
    expected: dict[str, Any]  # the answer without an attack
    metrics: int  # the cloud's port

    def counted(self, name: str, **labels: str) -> float:
        """The cloud's link's count so far."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics}/metrics", **PATIENTLY).text
        return Metrics(text).of(f"dragon_link_{name}_total", **labels)


@pytest.fixture(
    scope="module", params=[pytest.param(0, id="one"), pytest.param(2, id="gateway", marks=pytest.mark.walkthrough)]
)
def besieged(request: pytest.FixtureRequest, fresh_data: Callable[[], Path]) -> Iterator[Besieged]:
    data = fresh_data()
    keys, metrics = let_in(data), free_port()
    with Pair(data, {"patience": 60.0}, {"workers": request.param, "metrics": metrics}) as pair:
        wait_until(lambda: len(pair.cloud.workers) == request.param, "all workers are there")
        told = (*keys, hello(data / "intruder").hex())
        yield Besieged(pair, told, complete_with_shares(pair, QUESTION, **SAMPLED), metrics)


def memory_of(pair: Pair) -> int:
    """Bytes of the cloud's processes."""
    assert pair.cloud.process is not None
    return sum(map(resident_bytes, [pair.cloud.process.pid, *(worker.pid for worker in pair.cloud.workers)]))


def hello(data: Path) -> bytes:
    """The first frame of a device with the usual models, so that the cloud lets it open answers."""
    side = SideRuntime("device", DeviceSettings(data=data, threads=1, model=str(EMBEDDED_MODEL)))
    try:
        return encode(side.hello)
    finally:
        side.close()


@pytest.mark.parametrize(
    ("kind", "trusted", "counted"),
    [(*case, counted) for case, counted in CASES.items()],
    ids=[f"{kind}{'-trusted' * trusted}" for kind, trusted in CASES],
)
def test_answers_are_the_same_beside_it_and_take_no_longer(
    besieged: Besieged, kind: str, trusted: bool, counted: str
) -> None:
    pair, expected = besieged.pair, besieged.expected
    before, counted_before = memory_of(pair), besieged.counted(counted)
    times: dict[bool, list[float]] = {False: [], True: []}
    address = f"tcp://127.0.0.1:{pair.cloud_port}"
    with Attacker(kind, address, *(besieged.keys if trusted else ())) as attacker:
        for _ in range(ROUNDS):
            for attacked in (False, True):
                if attacked:
                    attacker.go()
                answer = complete_with_shares(pair, QUESTION, **SAMPLED)
                strikes = attacker.stop()
                report = answer["dragon"]
                times[attacked].append(report["per_token"])
                assert answer["choices"] == expected["choices"]
                assert report["degraded"] == [] and report["notes"] == expected["dragon"]["notes"]
    quiet, busy = (statistics.median(times[each]) for each in (False, True))
    grown = memory_of(pair) - before
    name = f"{kind}{' with a trusted key' * trusted}"
    print(
        f"{name}: {1000 * quiet:.2f} ms per token quiet, {1000 * busy:.2f} ms attacked "
        f"({100 * (busy / quiet - 1):+.0f} %), {strikes} strikes, {grown / 2**20:+.0f} MiB"
    )
    assert strikes > 0
    assert besieged.counted(counted) > counted_before
    assert min(times[True]) < FACTOR * max(times[False]) + SLACK
    assert grown < GROWTH
    assert pair.cloud.running and pair.device.running
    assert "failed with" not in pair.cloud.log.read_text()


def test_work_that_another_key_causes_is_that_keys_affair(besieged: Besieged) -> None:
    """Compared with answers before the attack: what it has sent goes on to be worked through when it stops."""
    pair, expected = besieged.pair, besieged.expected
    quiet = [pair.complete(QUESTION, **SAMPLED)["dragon"]["per_token"] for _ in range(ROUNDS)]
    with Attacker("lattices", f"tcp://127.0.0.1:{pair.cloud_port}", *besieged.keys) as attacker:
        attacker.go()
        times, strikes = list[float](), 0
        while len(times) < 2 * ROUNDS or strikes <= 100:  # a busy machine attacks slowly
            answer = complete_with_shares(pair, QUESTION, **SAMPLED)
            times.append(answer["dragon"]["per_token"])
            assert answer["choices"] == expected["choices"]
            assert answer["dragon"]["degraded"] == [] and answer["dragon"]["notes"] == expected["dragon"]["notes"]
            if len(times) >= 2 * ROUNDS:
                strikes = attacker.stop()
                attacker.go()
    before, busy = (1000 * statistics.median(each) for each in (quiet, times))
    print(f"lattices: {before:.2f} ms per token quiet, {busy:.2f} ms attacked, {strikes} strikes")
    assert besieged.counted("received_messages", message="Propose") > 0
    assert min(times) < COSTLY * max(quiet) + SLACK
    assert pair.cloud.running and pair.device.running
