"""Latency per token of two real daemons on this machine, against the slower side's own decode step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import httpx

from scripts.bench.asking import Mode, answered, ask, filled, in_turn, make_mode
from scripts.bench.engine.bare_step import BareSteps
from scripts.bench.engine.pair import SIDES
from scripts.bench.engine.plan import Plan
from scripts.bench.measuring import Spread
from scripts.bench.rows import Row, groups, values
from scripts.bench.workload import Texts
from scripts.daemons import Pair

AIM = 1.15
SHORTEST = 4  # tokens; the mean over fewer gaps says little


FULL = Plan(questions=24, rounds=2, tokens=32, seed=9)
SHORT = replace(FULL, questions=2, rounds=1)


MODES = tuple(
    make_mode(f"{placement}, T = {temperature:g}", placement=placement, temperature=temperature)
    for placement in ("device", "mirrored")
    for temperature in (0.0, 0.3)
)
STREAMED = make_mode("device, T = 0, streamed", placement="device", temperature=0.0, stream=True)
ASKED = (*MODES, STREAMED)


def measure(plan: Plan) -> Iterator[Row]:
    """Start both daemons on libraries of their own, ask, and stop them."""
    texts = Texts.draw(plan.questions)
    device = {"privacy": "balanced"}
    with filled(texts) as data, BareSteps(plan.questions) as bare, Pair(data, device) as pair:
        for mode in ASKED:  # what the first answer of a daemon waits for is not its latency
            _report(pair, texts.questions[0], mode, plan)
        for round_ in range(plan.rounds):
            for number, question in enumerate(texts.questions):
                # What the model alone takes, next to the other side's.
                slower = max(median(times) for times in bare.round(number).values())
                for mode in in_turn(ASKED, round_):
                    report = _report(pair, question, mode, plan)
                    if report["tokens"] >= SHORTEST:
                        asked = {"mode": mode.name, "placement": mode.fields["placement"]}
                        yield asked | {"question": number, "round": round_} | sample(report, slower)


def sample(report: Mapping[str, Any], bare: float) -> Row:
    """An answer's row, with the slower side's whole step (model, mixture and race) and its bare forward pass."""
    row, step = answered(report), max(float(report[side]["decode_ms"]) for side in SIDES)
    return row | {
        "step": step,
        "bare": bare,
        "per_token / step": row["per_token"] / step,
        "per_token / bare": row["per_token"] / bare,
    }


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


def ratios(rows: Sequence[Row]) -> list[tuple[str, str, Spread]]:
    """Per-token latency over the slower side's whole step, and over its bare forward pass, by placement."""
    return [
        (placement, against, Spread.of(values(those, f"per_token / {field}")))
        for (placement,), those in groups(rows, "placement").items()
        for against, field in (("step", "step"), ("bare forward pass", "bare"))
    ]
