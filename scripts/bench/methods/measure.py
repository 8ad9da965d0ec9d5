"""Asks two real daemons whose connection goes through a proxy with a delay and a rate."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.transport.faulty import FaultyProxy, Line
from scripts.bench.draft_pair import DraftPair, make_pair
from scripts.bench.latency.measure import TokensDiffer
from scripts.bench.methods.plan import AHEAD_FIXED, DRAFT, NO_NETWORK, TARGET, Mode, Network, Part, Plan
from scripts.bench.workload import Texts
from scripts.daemons import Pair, free_port

WARM_UP = 16  # tokens of the first answers, which do not count
SETTLING = 30.0  # seconds in which the device's estimate must have followed the link
SETTLED = 0.1  # share of the round trip that it may be off
OWN = 0.01  # seconds that daemons on a busy machine add to it
PROBE = 150  # bytes of a probe, which the uplink's rate delays
POLL = 0.2
ALIKE = (TARGET.family, "coupled synchronous", AHEAD_FIXED.family)  # families whose tokens are the target's, one by one


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. Times are milliseconds, sizes bytes."""

    overlap: float
    delay: float  # of the network, one way
    rate: float  # kilobits per second, up
    mode: str
    seed: int
    tokens: int
    per_token: float  # mean between the first token and the last
    ttft: float
    sent: int
    received: int
    forwarded: tuple[int, int]  # up and down, of the whole answer: probes, passages and encryption included
    rounds: int
    proposals: int  # more than rounds, drafting ahead
    proposed: float  # per round
    acceptance: float | None
    drafted: int
    draft_step: float
    verify: float  # from a proposal to its verdict, on the cloud
    reported: float  # milliseconds per token that the device predicts by its own estimates
    pieces: tuple[str, ...]

    @property
    def network(self) -> Network:
        return Network(self.delay, self.rate)

    @property
    def per_second(self) -> float:
        """Tokens per second."""
        return 1e3 / self.per_token


def measure(part: Part, plan: Plan, say: Callable[[str], None]) -> list[Answered]:
    """All networks of a part. Raises `TokensDiffer` where coupled drafting changes a token of the target's."""
    found: list[Answered] = []
    texts = Texts.draw_joint(1)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        models = make_pair(Path(folder), part.overlap)
        say(f"overlap {part.overlap:g}: measured {models.measured.overlap:.3f}, {models.measured.entropy:.2f} nats")
        if part.alone:
            found += _drafter_alone(Path(folder) / "alone", models, texts, part, plan)
        for answer in _verified(Path(folder) / "data", models, texts, part, plan, say):
            found.append(answer)
            check_identity(found)
    return found


def check_identity(found: list[Answered]) -> None:
    """Compare the newest answer, if it is coupled, with the target's of the same pair and seed."""
    newest = found[-1]
    for other in found:
        same = (other.overlap, other.seed) == (newest.overlap, newest.seed)
        if same and _alike(other) and _alike(newest) and other.pieces != newest.pieces:
            raise TokensDiffer(f"seed {newest.seed}: {newest.mode} gave {newest.pieces}, {other.mode} {other.pieces}")


def _alike(answer: Answered) -> bool:
    return answer.mode.startswith(ALIKE)


def _drafter_alone(data: Path, models: DraftPair, texts: Texts, part: Part, plan: Plan) -> Iterator[Answered]:
    """The drafter as the model of a device whose cloud takes no part."""
    own = models.cloud | {"model": models.drafter}
    data.mkdir()
    texts.fill_libraries(data)
    with Pair(data, own | {"emulate_decode_ms": plan.draft_ms}, own) as pair:
        _ask(pair, texts, DRAFT, part.seeds[0], WARM_UP)
        for seed in part.seeds:
            report = _ask(pair, texts, DRAFT, seed, plan.max_tokens)
            yield answered(part.overlap, NO_NETWORK, DRAFT, report, (0, 0))


def _verified(
    data: Path, models: DraftPair, texts: Texts, part: Part, plan: Plan, say: Callable[[str], None]
) -> Iterator[Answered]:
    data.mkdir()
    texts.fill_libraries(data)
    port = free_port()
    # Patience: an answer that goes on without the cloud would be no measurement.
    device = models.device | {"privacy": "balanced", "patience": 60.0, "emulate_draft_ms": plan.draft_ms}
    cloud = models.cloud | {"emulate_decode_ms": plan.verify_ms}
    with FaultyProxy(port) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        with Pair(data, device, cloud, between=between, cloud_port=port) as pair:
            for mode in {each.family: each for each in part.everything.values() if each != DRAFT}.values():
                _ask(pair, texts, mode, part.seeds[0], min(WARM_UP, plan.max_tokens))
            for network, modes in part.modes.items():
                proxy.set_line("up", Line(network.delay / 1e3, rate=network.bytes_per_second))
                proxy.set_line("down", Line(network.delay / 1e3))
                _settle(pair, network)
                for place, seed in enumerate(part.seeds):
                    for mode in modes[place:] + modes[:place]:
                        before = proxy.forwarded
                        report = _ask(pair, texts, mode, seed, plan.max_tokens)
                        after = proxy.forwarded
                        bytes_ = after["up"] - before["up"], after["down"] - before["down"]
                        yield answered(part.overlap, network, mode, report, bytes_)
                say(f"overlap {part.overlap:g}, {network.name}: done, {len(modes)} methods")


def _ask(pair: Pair, texts: Texts, mode: Mode, seed: int, tokens: int) -> dict[str, Any]:
    law = {"temperature": 1.0, "seed": seed, "max_tokens": tokens, "documents": 1}
    report: dict[str, Any] = pair.complete(texts.questions[0], **law | dict(mode.fields))["dragon"]
    if report["degraded"]:
        raise RuntimeError(f"{mode.name}: the device decided tokens {report['degraded']} alone: {report['notes']}")
    return report


def _settle(pair: Pair, network: Network) -> None:
    """Wait until the device's estimate of the round trip has followed the link."""
    rtt, deadline = 2 * network.delay / 1e3, time.monotonic() + SETTLING
    allowed = SETTLED * rtt + OWN + PROBE / network.bytes_per_second
    while (seen := pair.status()["cloud"]["rtt_ms"]) is None or abs(seen / 1e3 - rtt) > allowed:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the device measures {seen} ms where the link has {1e3 * rtt:.0f} ms")
        time.sleep(POLL)


def answered(
    overlap: float, network: Network, mode: Mode, report: dict[str, Any], forwarded: tuple[int, int]
) -> Answered:
    """The answer that a report tells of."""
    figures, device = report["figures"], report["device"]
    return Answered(
        overlap,
        network.delay,
        network.rate,
        mode.name,
        report["seed"],
        report["tokens"],
        1e3 * report["per_token"],
        1e3 * report["ttft"],
        report["sent_bytes"],
        report["received_bytes"],
        forwarded,
        round(figures.get("rounds", 0)),
        round(figures.get("proposals", 0)),
        figures.get("proposed_per_round", 0.0),
        device["acceptance"] if figures else None,
        device["drafted"],
        device["decode_ms"],
        report["cloud"]["decode_ms"],
        figures.get("predicted_ms", 0.0),
        tuple(report["pieces"]),
    )
