"""The suite `sessions`: tokens per second of many devices on one cloud, against the bare model's batch curve."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from common.runtime.daemon import SWITCH_INTERVAL
from scripts.bench.measuring import SPREADS, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.sessions.measure import DOCUMENTS, KINDS, SHORT, Found, Plan, Ran, measure
from scripts.bench.sessions.town import Town
from scripts.bench.workload import Texts

AIM, AT = 0.8, 16  # of the bare model's tokens per second, with so many sessions
MEBIBYTE = 2**20
COLORS = {"bare": "#999999", "listening": "#4878a8", "drafting": "#c87941"}


def run(results: Results) -> None:
    """Start the cloud, play its devices, and show what came of it."""
    plan = SHORT if results.short else Plan()
    texts = Texts.draw(plan.most)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)  # as in a daemon: devices do not wait for each other's threads
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder,
            Town(Path(folder), plan.most, texts.documents["cloud"]) as town,
        ):
            found = measure(town, plan, texts.questions, results.say)
    finally:
        sys.setswitchinterval(interval)
    results.samples("plan", asdict(plan))
    results.samples("runs", asdict(found))
    note = (
        f"{SPREADS} over {plan.repeats} repeats; load {load()}. {plan.tokens} tokens per answer, {DOCUMENTS} documents "
        f"that had been read before, rows of {found.prompt} tokens before the answer. `listening`: devices without "
        f"documents. `drafting`: devices with drafts of their own, of {plan.weight:.0%} weight."
    )
    results.table("Tokens per second of all sessions", rates(found, plan), note)
    results.table("Latency of each session, ms: p50 / p95", latencies(found, plan))
    results.table("What it took", costs(found, plan), costs_note(found))
    results.table("Aims", aims(found, plan))
    draw(results, found, plan)


def rates(found: Found, plan: Plan) -> Table:
    """Together: from the first question to the last token. Steady: while every session was decoding."""
    rows = []
    for count in plan.sessions:
        row = [str(count), Spread.of(found.bare[count]).text()]
        for kind in KINDS:
            for steady in (False, True):
                row.append(Spread.of([run.rate for run in found.of(kind, count, steady)]).text())
            row.append(Spread.of(found.ratios(kind, count)).text(2))
        rows.append(row)
    heads = ["sessions", "bare model"]
    for kind in KINDS:
        heads += [f"{kind}, together", f"{kind}, steady", f"{kind}, steady / bare"]
    return Table(heads, rows)


def latencies(found: Found, plan: Plan) -> Table:
    """Medians over the repeats."""
    rows = []
    for count in plan.sessions:
        for kind in KINDS:
            together, steady = found.of(kind, count, False), found.of(kind, count, True)
            first = [run.ttft for run in together if run.ttft is not None]
            gaps = [_pair([run.gap for run in runs]) for runs in (together, steady)]
            rows.append([str(count), kind, _pair(first), *gaps])
    return Table(["sessions", "devices", "to the first token", "between tokens", "between tokens, steady"], rows)


def costs(found: Found, plan: Plan) -> Table:
    """Medians over the repeats of the steady runs; memory of the first repeat; differences of all."""
    rows = []
    for count in plan.sessions:
        memory = found.memory(count)
        for kind in KINDS:
            runs = found.of(kind, count, steady=True)
            every = runs + found.of(kind, count, steady=False)
            rows.append(
                [
                    str(count),
                    kind,
                    "-" if memory is None else f"{memory / MEBIBYTE:.1f}",
                    f"{_median(runs, lambda run: run.load[0]):.0%}",
                    f"{_median(runs, lambda run: run.load[1]):.0%}",
                    f"{_median(runs, lambda run: run.drafted / run.tokens):.2f}",
                    f"{_median(runs, lambda run: 100 * run.rollbacks / run.tokens):.1f}",
                    f"{_median(runs, lambda run: 100 * run.preempted / run.tokens):.1f}",
                    f"{_median(runs, lambda run: 100 * run.questions / run.tokens):.1f}",
                    str(sum(run.differing for run in every)),
                ]
            )
    heads = [
        "sessions",
        "devices",
        "cloud's memory per session, MiB",
        "cloud, of a core",
        "players, of a core",
        "cloud's drafts per token",
        "roll-backs per 100 tokens",
        "pre-empted per 100 tokens",
        "questions per 100 tokens",
        "sessions with other tokens than alone",
    ]
    return Table(heads, rows)


def costs_note(found: Found) -> str:
    drafting = [run for run in found.runs if run.kind == "drafting"]
    weight = _median(drafting, lambda run: run.device_weight or 0.0)
    microseconds = 1e6 * _median(drafting, lambda run: run.draft_seconds)
    return (
        f"A device's draft takes its player {microseconds:.0f} µs of processor time; its documents have {weight:.0%} "
        "of the weight. Memory: the most resident memory of the cloud beyond the idle daemon's, by sessions; the idle "
        "daemon keeps the place of one, which is not counted."
    )


def aims(found: Found, plan: Plan) -> Table:
    """The ratio at `AT` sessions, or at the most there are, and equal tokens."""
    at = AT if AT in plan.sessions else plan.most
    rows = [
        [f"steady / bare at {at} sessions, {kind}", f">= {AIM:g}", Spread.of(found.ratios(kind, at)).text(2)]
        for kind in KINDS
    ]
    rows.append(
        ["sessions with other tokens than alone", "0", f"{_differing(found.runs)} of {_answers(found.runs)} answers"]
    )
    return Table(["what", "aim", "measured"], rows)


def draw(results: Results, found: Found, plan: Plan) -> None:
    """Steady tokens per second against sessions, medians with the 10th to 90th percentile."""
    curves = {"bare": {count: found.bare[count] for count in plan.sessions}}
    for kind in KINDS:
        curves[kind] = {count: [run.rate for run in found.of(kind, count, steady=True)] for count in plan.sessions}
    with results.figure("throughput") as (axis,):
        for name, curve in curves.items():
            spreads = {count: Spread.of(rates) for count, rates in curve.items()}
            medians = [spread.median for spread in spreads.values()]
            below = [spread.median - spread.low for spread in spreads.values()]
            above = [spread.high - spread.median for spread in spreads.values()]
            axis.errorbar(
                list(spreads), medians, yerr=[below, above], marker="o", capsize=3, color=COLORS[name], label=name
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(plan.sessions, [str(count) for count in plan.sessions])
        axis.set_xlabel("sessions at a time")
        axis.set_ylabel("tokens per second, all sessions")
        axis.set_ylim(bottom=0)
        axis.legend()


def _pair(pairs: Sequence[tuple[float, float]]) -> str:
    """Medians of seconds, shown as milliseconds."""
    return " / ".join(f"{1e3 * Spread.of(column).median:.1f}" for column in zip(*pairs, strict=True))


def _median(runs: Sequence[Ran], value: Callable[[Ran], float]) -> float:
    return Spread.of([value(run) for run in runs]).median


def _differing(runs: Sequence[Ran]) -> int:
    return sum(run.differing for run in runs)


def _answers(runs: Sequence[Ran]) -> int:
    return sum(run.sessions for run in runs)
