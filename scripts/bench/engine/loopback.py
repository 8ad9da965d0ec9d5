"""Latency per token of two real daemons on this machine, against the slower side's own decode step."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from proto.fields import Placement
from scripts.bench.engine.bare_step import BareSteps
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Spread, Table, load
from scripts.bench.plan import Plan
from scripts.bench.workload import Texts
from scripts.daemons import Pair

AIM = 1.15
SHORTEST = 4  # tokens; the mean over fewer gaps says little


FULL = Plan(questions=24, rounds=2, tokens=32, seed=9)
SHORT = replace(FULL, questions=2, rounds=1)
# Steps longer than the model takes: the daemons' coordination then shows by itself, however busy the machine is.
SLOWED = replace(FULL, questions=8, rounds=1, steps=((40.0, 40.0),))


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to ask a question."""

    placement: Placement
    temperature: float
    stream: bool = False

    @property
    def name(self) -> str:
        return f"{self.placement}, T = {self.temperature:g}{', streamed' if self.stream else ''}"


MODES = (
    Mode("device", 0.0),
    Mode("device", 0.3),
    Mode("mirrored", 0.0),
    Mode("mirrored", 0.3),
    Mode("device", 0.0, stream=True),
)


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: latencies in milliseconds, and what both sides and their bare models need for a step."""

    mode: Mode
    question: int
    tokens: int
    per_token: float
    inter_token: float  # median
    device_step: float  # median, whole: model, mixture and race
    cloud_step: float
    device_bare: float  # median, the model alone, next to the other side's
    cloud_bare: float
    acceptance: tuple[float | None, float | None]
    sent: float  # bytes per token
    received: float
    load: float

    @property
    def step(self) -> float:
        return max(self.device_step, self.cloud_step)

    @property
    def bare(self) -> float:
        return max(self.device_bare, self.cloud_bare)


def measure(plan: Plan) -> list[Answered]:
    """Start both daemons on libraries of their own, ask, and stop them."""
    texts = Texts.draw(plan.questions)
    found = []
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        data = Path(folder)
        texts.fill_libraries(data)
        device, cloud = [{"emulate_decode_ms": step} for step in plan.steps[0]] if plan.steps else [{}, {}]
        with BareSteps(plan.questions) as bare, Pair(data, device | {"privacy": "balanced"}, cloud) as pair:
            for mode in MODES:  # what the first answer of a daemon waits for is not its latency
                ask(pair, texts.questions[0], mode, plan)
            for round_ in range(plan.rounds):
                for number, question in enumerate(texts.questions):
                    steps = {side: median(times) for side, times in bare.round(number).items()}
                    for mode in MODES[round_ % 2 :] + MODES[: round_ % 2]:
                        report = ask(pair, question, mode, plan)
                        if report["tokens"] >= SHORTEST:
                            found.append(answered(mode, number, report, (steps["device"], steps["cloud"])))
    return found


def ask(pair: Pair, question: str, mode: Mode, plan: Plan) -> dict[str, Any]:
    """The report of one answer."""
    fields: dict[str, Any] = {
        "placement": mode.placement,
        "temperature": mode.temperature,
        "seed": plan.seed,
        "max_tokens": plan.tokens,
    }
    if not mode.stream:
        whole: dict[str, Any] = pair.complete(question, **fields)
        return dict(whole["dragon"])
    report: dict[str, Any] = {}
    body = {"model": "dragon", "messages": [{"role": "user", "content": question}], "stream": True} | fields
    with httpx.stream("POST", f"{pair.url}/v1/chat/completions", json=body, timeout=120, trust_env=False) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                report = json.loads(line.removeprefix("data: ")).get("dragon", report)
    return report


def answered(mode: Mode, question: int, report: dict[str, Any], bare: tuple[float, float]) -> Answered:
    """The answer that a report tells of. `bare` is milliseconds per step of (device, cloud)."""
    device, cloud = (report[side] for side in SIDES)
    return Answered(
        mode,
        question,
        report["tokens"],
        1e3 * report["per_token"],
        1e3 * report["inter_token"],
        device["decode_ms"],
        cloud["decode_ms"],
        *bare,
        (device["acceptance"], cloud["acceptance"]),
        report["sent_bytes"] / report["tokens"],
        report["received_bytes"] / report["tokens"],
        load()[0],
    )


def ratios(found: Sequence[Answered]) -> list[tuple[str, str, Spread]]:
    """Per-token latency over the slower side's whole step, and over its bare forward pass, by mode."""
    rows = []
    for mode in MODES:
        chosen = [one for one in found if one.mode == mode]
        if chosen:
            rows.append((mode.name, "step", Spread.of([one.per_token / one.step for one in chosen])))
            rows.append((mode.name, "bare forward pass", Spread.of([one.per_token / one.bare for one in chosen])))
    return rows


def show(found: Sequence[Answered]) -> Table:
    rows = []
    for mode in MODES:
        chosen = [one for one in found if one.mode == mode]
        if not chosen:
            continue
        rows.append(
            [
                mode.name,
                len(chosen),
                Spread.of([one.per_token for one in chosen]).text(2),
                Spread.of([one.step for one in chosen]).text(2),
                Spread.of([one.bare for one in chosen]).text(2),
                Spread.of([one.per_token - one.step for one in chosen]).text(2),
                Spread.of([one.per_token / one.step for one in chosen]).text(2),
                Spread.of([one.inter_token / one.step for one in chosen]).text(2),
                Spread.of([one.per_token / one.bare for one in chosen]).text(2),
                " / ".join(_acceptance(chosen)),
                f"{_mean([one.received for one in chosen]):.0f} / {_mean([one.sent for one in chosen]):.0f}",
            ]
        )
    heads = [
        "mode",
        "answers",
        "per token, ms",
        "slower step, ms",
        "slower bare forward pass, ms",
        "beyond the step, ms",
        "per token / step",
        "median gap / step",
        "per token / bare forward pass",
        "acceptance device / cloud",
        "bytes per token down / up",
    ]
    return Table(heads, rows)


def record(found: Sequence[Answered]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]


def _acceptance(found: Sequence[Answered]) -> list[str]:
    sides = ([one.acceptance[side] for one in found] for side in (0, 1))
    known = ([value for value in values if value is not None] for values in sides)
    return [f"{_mean(values):.2f}" if values else "-" for values in known]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
