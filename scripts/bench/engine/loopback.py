"""Latency per token of two real daemons on this machine, against the slower side's own decode step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import httpx

from scripts.bench.asking import Answer, Mode, acceptance_text, ask, filled, make_mode
from scripts.bench.engine.bare_step import BareSteps
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Spread, Table, grouped
from scripts.bench.plan import Plan
from scripts.bench.workload import Texts
from scripts.daemons import Pair

AIM = 1.15
SHORTEST = 4  # tokens; the mean over fewer gaps says little


FULL = Plan(questions=24, rounds=2, tokens=32, seed=9)
SHORT = replace(FULL, questions=2, rounds=1)
# Steps longer than the model takes: the daemons' coordination then shows by itself, however busy the machine is.
SLOWED = replace(FULL, questions=8, rounds=1, steps=((40.0, 40.0),))


MODES = tuple(
    make_mode(f"{placement}, T = {temperature:g}", placement=placement, temperature=temperature)
    for placement in ("device", "mirrored")
    for temperature in (0.0, 0.3)
)
STREAMED = make_mode("device, T = 0, streamed", placement="device", temperature=0.0, stream=True)
ASKED = (*MODES, STREAMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Answer):
    """One answer, and what both sides' bare models need for a step."""

    bare_steps: tuple[float, float]  # of (device, cloud): median milliseconds of the model alone, next to the other's

    @property
    def step(self) -> float:
        """Of the slower side, median, whole: model, mixture and race."""
        return max(float(self.report[side]["decode_ms"]) for side in SIDES)

    @property
    def bare(self) -> float:
        return max(self.bare_steps)


def measure(plan: Plan) -> list[Answered]:
    """Start both daemons on libraries of their own, ask, and stop them."""
    texts = Texts.draw(plan.questions)
    found = []
    floors = plan.steps[0] if plan.steps else (0.0, 0.0)
    own, cloud = ({"emulate_decode_ms": floor} if floor else {} for floor in floors)
    device = {"privacy": "balanced", **own}
    with filled(texts) as data, BareSteps(plan.questions) as bare, Pair(data, device, cloud) as pair:
        for mode in ASKED:  # what the first answer of a daemon waits for is not its latency
            _report(pair, texts.questions[0], mode, plan)
        for round_ in range(plan.rounds):
            for number, question in enumerate(texts.questions):
                steps = {side: median(times) for side, times in bare.round(number).items()}
                for mode in ASKED[round_ % 2 :] + ASKED[: round_ % 2]:
                    report = _report(pair, question, mode, plan)
                    if report["tokens"] >= SHORTEST:
                        both = steps["device"], steps["cloud"]
                        found.append(Answered(mode=mode.name, question=number, report=report, bare_steps=both))
    return found


def _report(pair: Pair, question: str, mode: Mode, plan: Plan) -> dict[str, Any]:
    law: dict[str, Any] = {"seed": plan.seed, "max_tokens": plan.tokens}
    if mode != STREAMED:
        return ask(pair, question, mode, **law)
    report: dict[str, Any] = {}
    body = {"model": "dragon", "messages": [{"role": "user", "content": question}], **law, **mode.fields}
    with httpx.stream("POST", f"{pair.url}/v1/chat/completions", json=body, timeout=120, trust_env=False) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                report = json.loads(line.removeprefix("data: ")).get("dragon", report)
    return report


def ratios(found: Sequence[Answered]) -> list[tuple[str, str, Spread]]:
    """Per-token latency over the slower side's whole step, and over its bare forward pass, by placement."""
    rows = []
    for name, chosen in grouped(found, lambda one: one.mode.partition(",")[0]).items():
        rows.append((name, "step", Spread.of([one.per_token / one.step for one in chosen])))
        rows.append((name, "bare forward pass", Spread.of([one.per_token / one.bare for one in chosen])))
    return rows


def show(found: Sequence[Answered]) -> Table:
    """A row for every mode."""

    def spread(of: Callable[[Answered], float]) -> Callable[[list[Answered]], str]:
        return lambda chosen: Spread.of([of(one) for one in chosen]).text(2)

    columns: dict[str, Callable[[list[Answered]], object]] = {
        "mode": lambda chosen: chosen[0].mode,
        "answers": len,
        "per token, ms": spread(lambda one: one.per_token),
        "slower step, ms": spread(lambda one: one.step),
        "slower bare forward pass, ms": spread(lambda one: one.bare),
        "beyond the step, ms": spread(lambda one: one.per_token - one.step),
        "per token / step": spread(lambda one: one.per_token / one.step),
        "median gap / step": spread(lambda one: 1e3 * one.report["inter_token"] / one.step),
        "per token / bare forward pass": spread(lambda one: one.per_token / one.bare),
        "acceptance device / cloud": acceptance_text,
        "bytes per token down / up": lambda chosen: " / ".join(
            f"{fmean(size):.0f}"
            for size in zip(*((one.received / one.tokens, one.sent / one.tokens) for one in chosen), strict=True)
        ),
    }
    return Table.of(grouped(found, lambda one: one.mode).values(), columns)
