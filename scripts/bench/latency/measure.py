"""Asks two real daemons in the network lab, every method in turn at every question."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.latency.plan import Floors, Leg, Mode, Plan, emulated
from scripts.bench.synthetic_model import make_model
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import sinusoid

LONGEST_LEG = 7200.0  # seconds
SETTLED = 0.1  # share of the round trip that the daemons' estimate may be off before anything is timed
SETTLING = 30.0  # seconds
POLL = 0.2
WARM_UP = 16  # tokens of the first answers, which do not count
OWN = 0.003  # seconds of round trip that loopback and daemons have without any link


class TokensDiffer(RuntimeError):
    """A run that must give the race's tokens gave others: its time means nothing."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. Times are milliseconds."""

    floors: str
    rtt: float  # added by the link
    temperature: float
    question: int
    mode: str
    tokens: int
    per_token: float  # mean between the first token and the last
    whole: float  # from the request to the last token
    ttft: float
    measured_rtt: float | None  # the daemon's estimate
    acceptance: tuple[float | None, float | None]
    accepted: tuple[tuple[bool | None, bool | None], ...]  # [tokens][device, cloud]
    expected: tuple[tuple[float, float] | None, ...]  # [tokens], Eq. 5 of (device, cloud)
    switches: int  # of the aggregator
    drafted: tuple[int, int]
    sent: int  # bytes
    received: int
    pieces: tuple[str, ...]  # text of each token
    notes: tuple[str, ...]
    prompt: float = 0.0  # tokens of a row before the answer, on the average
    certificate_failures: int = 0  # of both sides

    @property
    def context(self) -> float:
        """Tokens in a row, on the average over its steps."""
        return self.prompt + self.tokens / 2


def measure_demonstration(floors: Floors, plan: Plan, say: Callable[[str], None]) -> list[Answered]:
    """All legs of `plan` with the embedded model or a synthetic one. Raises `TokensDiffer`."""
    texts = Texts.draw_joint(plan.questions)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        model = {} if plan.entropy is None else make_model(Path(folder), plan.entropy)
        found: list[Answered] = []
        for answered in measure(floors, plan, say, texts, model):
            found.append(answered)
            check_identity(found, plan)
    return found


def measure(
    floors: Floors, plan: Plan, say: Callable[[str], None], texts: Texts, settings: Mapping[str, object]
) -> Iterator[Answered]:
    """All legs of `plan` with one pair of daemons of these `settings` in a lab of their own."""
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder, NetLab(LinkSetting()) as lab:
        data = Path(folder)
        texts.fill_libraries(data)
        device = {"privacy": "balanced", "patience": 60.0, **settings, **emulated(floors.device)}
        with Pair(data, device, {**settings, **emulated(floors.cloud)}, lab=lab) as pair:
            for mode in plan.modes:  # what the first answer of a daemon waits for is not its latency
                pair.complete(
                    texts.questions[0], **_fields(mode, 0.0, plan, 0) | {"max_tokens": min(WARM_UP, plan.max_tokens)}
                )
            for leg in plan.legs:
                lab.replay(sinusoid(LinkSetting(rtt=leg.rtt / 1e3), LONGEST_LEG, plan.jitter))
                settle(pair, lab)
                yield from _leg(pair, texts, floors, leg, plan)
                lab.stop_replay()
                say(f"{floors.name} ms, {leg.rtt:g} ms added: done by {lab.kind}")


def settle(pair: Pair, lab: NetLab) -> None:
    """Wait until the device's estimate has followed the link."""
    deadline = time.monotonic() + SETTLING
    while True:
        rtt_ms = pair.status()["cloud"]["rtt_ms"]
        if rtt_ms is not None and abs(rtt_ms / 1e3 - lab.setting.rtt) <= SETTLED * lab.setting.rtt + OWN:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the device measures {rtt_ms} ms where the link has {1e3 * lab.setting.rtt:.0f} ms")
        time.sleep(POLL)


def _leg(pair: Pair, texts: Texts, floors: Floors, leg: Leg, plan: Plan) -> Iterator[Answered]:
    for number, question in enumerate(texts.questions[: leg.questions]):
        for temperature in leg.temperatures:
            for mode in plan.modes[number % len(plan.modes) :] + plan.modes[: number % len(plan.modes)]:
                report = pair.complete(question, **_fields(mode, temperature, plan, number))["dragon"]
                yield answered(floors, leg.rtt, temperature, number, mode, report)


def _fields(mode: Mode, temperature: float, plan: Plan, question: int) -> dict[str, Any]:
    law = {"temperature": temperature, "seed": plan.seed_of(question), "max_tokens": plan.max_tokens}
    return law | dict(mode.fields)


def answered(
    floors: Floors, rtt: float, temperature: float, question: int, mode: Mode, report: dict[str, Any]
) -> Answered:
    """The answer that a report tells of."""
    device, cloud = report["device"], report["cloud"]
    return Answered(
        floors.name,
        rtt,
        temperature,
        question,
        mode.name,
        report["tokens"],
        1e3 * report["per_token"],
        1e3 * report["seconds"],
        1e3 * report["ttft"],
        report["rtt_ms"],
        (device["acceptance"], cloud["acceptance"]),
        tuple((ours, theirs) for ours, theirs in report["accepted"]),
        tuple(None if pair is None else (pair[0], pair[1]) for pair in report["expected"]),
        report["switches"],
        (device["drafted"], cloud["drafted"]),
        report["sent_bytes"],
        report["received_bytes"],
        tuple(report["pieces"]),
        tuple(report["notes"]),
        report["prompt_tokens"] / max(1, len(report["sources"])),
        report["certificate_failures"],
    )


def check_identity(found: list[Answered], plan: Plan) -> None:
    """The newest answer has the tokens of every other exact one of its question and temperature."""
    exact = {mode.name for mode in plan.modes if mode.exact}
    newest = found[-1]
    if newest.mode not in exact:
        return
    for other in found:
        same = (other.question, other.temperature) == (newest.question, newest.temperature)
        if same and other.mode in exact and other.pieces != newest.pieces:
            raise TokensDiffer(
                f"question {newest.question} at temperature {newest.temperature:g}: {newest.mode} at {newest.rtt:g} ms "
                f"gave {newest.pieces}, {other.mode} at {other.rtt:g} ms {other.pieces}"
            )
