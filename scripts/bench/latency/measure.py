"""Asks two real daemons in the network lab, every method in turn at every question."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.asking import PATIENT, WARM_UP, answered, ask, check_same, filled, in_turn, pair_of, settle
from scripts.bench.latency.plan import SLOW_QUESTIONS, Floors, Leg, Plan, emulated
from scripts.bench.rows import Row
from scripts.bench.synthetic_model import make_model
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import sinusoid

LONGEST_LEG = 7200.0  # seconds


def measured(plan: Plan, say: Callable[[str], None], quickest: bool) -> list[Row]:
    """The pair with the shortest floors by itself: the processor's own time counts there. The others side by side,
    since long floors leave it idle most of the time. Raises `TokensDiffer`.
    """
    first, *others = sorted(plan.floors, key=lambda floors: floors.limit(0.0))
    chosen = [first] if quickest else others
    with ThreadPoolExecutor(max(len(chosen), 1)) as pool:
        parts = list(pool.map(partial(_demonstration, plan=plan, say=say), chosen))
    return [row for part in parts for row in part]


def _demonstration(floors: Floors, plan: Plan, say: Callable[[str], None]) -> list[Row]:
    """All legs of `plan` with the embedded model or a synthetic one."""
    texts = Texts.draw_joint(plan.questions)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        model = {} if plan.entropy is None else make_model(Path(folder), plan.entropy)
        with filled(texts) as data, NetLab(LinkSetting()) as lab:
            device = {**PATIENT, **model, **emulated(floors.device)}
            with pair_of(data, device, {**model, **emulated(floors.cloud)}, lab) as pair:
                return list(measure(pair, lab, texts, floors, plan, say))


def measure(
    pair: Pair, lab: NetLab, texts: Texts, floors: Floors, plan: Plan, say: Callable[[str], None]
) -> Iterator[Row]:
    """All legs of `plan` with one pair of daemons in its lab. Raises `TokensDiffer`."""
    warm(pair, texts, plan)
    found: list[Row] = []
    for leg in plan.legs:
        lab.replay(sinusoid(LinkSetting(rtt=leg.rtt / 1e3), LONGEST_LEG, plan.jitter))
        settle(pair, lambda: lab.setting.rtt, plan.own)
        for row in _leg(pair, texts, floors, leg, plan):
            found.append(row)
            check_identity(found, plan)
            yield row
        lab.stop_replay()
        say(f"{floors.name} ms, {leg.rtt:g} ms added: done by {lab.kind}")


def warm(pair: Pair, texts: Texts, plan: Plan) -> None:
    """Ask the first question by every mode, and have all modes read every question's documents: none is to pay for what
    those behind it find read.
    """
    for number, question in enumerate(texts.questions):
        tokens = 1 if number else min(WARM_UP, plan.max_tokens)
        for mode in plan.modes:
            ask(pair, question, mode, **_law(plan, number, 0.0, tokens))


def _leg(pair: Pair, texts: Texts, floors: Floors, leg: Leg, plan: Plan) -> Iterator[Row]:
    for number, question in enumerate(texts.questions[: leg.questions]):
        for temperature in leg.temperatures:
            asked = [mode for mode in plan.modes if number < SLOW_QUESTIONS or mode not in plan.slow]
            for mode in in_turn(asked, number):
                report = ask(pair, question, mode, **_law(plan, number, temperature, plan.max_tokens))
                setting = {"floors": floors.name, "rtt": leg.rtt, "temperature": temperature}
                yield setting | {"mode": mode.name, "question": number} | sample(report, floors)


def sample(report: dict[str, Any], floors: Floors) -> Row:
    """An answer's row, with the milliseconds per token that a network without latency would give."""
    row = answered(report)
    prompt = float(report["prompt_tokens"]) / max(1, len(report["sources"]))  # of a row, on the average
    limit = floors.limit(prompt + row["tokens"] / 2)
    per_token = row["whole"] / row["tokens"]  # of the whole answer, as the paper has it (§7.3)
    row |= {"whole_per_token": per_token, "limit": limit, "over_limit": per_token / limit}
    return row


def _law(plan: Plan, question: int, temperature: float, tokens: int) -> dict[str, Any]:
    return {"temperature": temperature, "seed": plan.seed_of(question), "max_tokens": tokens}


def check_identity(found: list[Row], plan: Plan) -> None:
    """Raises `TokensDiffer` where the newest answer is exact, and another exact one of its question is not the same."""
    exact = {mode.name for mode in plan.modes if mode.exact}
    if found[-1]["mode"] in exact:
        setting = ("question", "temperature")
        same = [row for row in found if row["mode"] in exact and all(row[each] == found[-1][each] for each in setting)]
        check_same(same, *setting)
