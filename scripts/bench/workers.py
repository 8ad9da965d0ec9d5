"""The suite `workers`: what a gateway adds to a message, and tokens per second of several processes against one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from scripts.bench.asking import PATIENT, check_whole, filled
from scripts.bench.measuring import MEDIANS, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair

THREADS: Final = 2  # of all processes of a cloud together
# Clouds by name; the first one is the measure.
CLOUDS: Final[Mapping[str, Mapping[str, object]]] = {
    "one process": {"threads": THREADS},
    "1 worker": {"workers": 1, "threads": THREADS},
    "2 workers": {"workers": 2, "threads": THREADS // 2},
}
# Every token waits for a message each way, and the device has next to nothing to do.
ALONE: Final[Mapping[str, Any]] = {"method": "token-wise", "sources": "both", "temperature": 1.0}
TOGETHER: Final[Mapping[str, Any]] = {"sources": "cloud", "temperature": 1.0}
AT_A_TIME: Final = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run."""

    rounds: int = 5
    tokens: int = 64
    alone: int = 6  # answers one after the other


@dataclass(frozen=True, slots=True)
class Lap:
    """One round with one cloud."""

    cloud: str
    per_token: tuple[float, ...]  # milliseconds, of each answer alone
    rate: float  # tokens per second of answers at a time


def run(results: Results) -> None:
    """Ask the clouds in turn, round by round; each is started anew, on the same libraries."""
    plan = Plan(1, 8, 1) if results.short else Plan()
    texts = Texts.draw(AT_A_TIME)
    laps: list[Lap] = []
    with filled(texts) as data:
        for number in range(plan.rounds):
            for name, flags in CLOUDS.items():
                results.say(f"round {number + 1} of {plan.rounds}: {name}")
                for log in data.glob("*.log"):
                    log.unlink()
                with Pair(data, PATIENT, flags) as pair:
                    laps.append(measured(pair, name, texts.questions, plan))
    results.samples("plan", plan)
    results.samples("laps", laps)
    sizes = f"{THREADS} threads in all, {plan.tokens} tokens per answer"
    note = f"{MEDIANS} over {plan.rounds} rounds; load {load()}; {sizes}."
    results.table("Workers", shown(laps), note)


def measured(pair: Pair, name: str, questions: tuple[str, ...], plan: Plan) -> Lap:
    """Answers one after the other, then many at a time."""
    law = {"max_tokens": plan.tokens, "seed": 1}
    ask = partial(asked, pair, law)
    ask(questions[0], ALONE)  # the first one compiles, and reads documents
    alone = tuple(1e3 * float(ask(question, ALONE)["per_token"]) for question in questions[: plan.alone])
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(lambda question: ask(question, TOGETHER), questions))  # documents are read
        began = time.perf_counter()
        tokens = sum(int(report["tokens"]) for report in pool.map(lambda question: ask(question, TOGETHER), questions))
        return Lap(name, alone, tokens / (time.perf_counter() - began))


def asked(pair: Pair, law: Mapping[str, Any], question: str, way: Mapping[str, Any]) -> dict[str, Any]:
    """The report of an answer in which the cloud had its part."""
    report: dict[str, Any] = pair.complete(question, **law, **way)["dragon"]
    check_whole(report, str(way))
    return report


def shown(laps: list[Lap]) -> Table:
    """A row for each cloud; what is compared is of the same round."""
    first = [lap for lap in laps if lap.cloud == next(iter(CLOUDS))]
    rows = []
    for name in CLOUDS:
        mine = [lap for lap in laps if lap.cloud == name]
        medians = [Spread.of(lap.per_token).median for lap in mine]
        added = [1e3 * (each - Spread.of(base.per_token).median) for each, base in zip(medians, first, strict=True)]
        ratios = [lap.rate / base.rate for lap, base in zip(mine, first, strict=True)]
        rates = Spread.of([lap.rate for lap in mine])
        row = [name, Spread.of(medians).short(2), Spread.of(added).short(), rates.short(), Spread.of(ratios).short(2)]
        rows.append(row)
    heads = ["cloud", "ms per token, token-wise", "µs more", f"tokens/s, {AT_A_TIME} answers", "of one process"]
    return Table(heads, rows)
