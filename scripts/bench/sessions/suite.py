"""The suite `sessions`: tokens per second of many devices on one cloud, against the bare model's batch curve."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.daemon import SWITCH_INTERVAL
from common.figures import line_style
from scripts.bench.measuring import MEDIANS, NOTHING, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.sessions.measure import (
    DOCUMENTS,
    KINDS,
    LARGER,
    SHORT,
    SHORT_LARGER,
    Found,
    Kind,
    Plan,
    Ran,
    measure,
)
from scripts.bench.sessions.town import Town
from scripts.bench.synthetic_model import make_model
from scripts.bench.workload import Texts

AIM, AT = 0.7, 16  # of the bare model's tokens per second, with so many sessions
MEBIBYTE = 2**20
ENTROPY = 1.0  # nats of the larger models
SIZES = "The embedded model, and random ones of its kind."


def run(results: Results) -> None:
    """Start clouds, play their devices, and show what came of it: the embedded model in full, then larger ones."""
    plan, larger = (SHORT, SHORT_LARGER) if results.short else (Plan(), LARGER)
    texts = Texts.draw(max(one.most for one in (plan, *larger)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)  # as in a daemon: devices do not wait for each other's threads
    try:
        found = played(plan, texts, results.say)
        others = [played(one, texts, results.say) for one in larger]
    finally:
        sys.setswitchinterval(interval)
    results.samples("plan", plan)
    results.samples("runs", found)
    results.samples("larger models", others)
    note = (
        f"{MEDIANS} over {plan.repeats} repeats; load {load()}. {plan.tokens} tokens per answer, {DOCUMENTS} documents "
        f"that had been read before, rows of {found.prompt} tokens before the answer. `listening`: devices without "
        f"documents. `drafting`: devices with drafts of their own, of {plan.weight:.0%} weight."
    )
    results.table("Tokens per second of all sessions", rates(found, plan), note)
    results.table("Waits of listening devices", waits(found, plan))
    results.table("Latency of each session, ms: p50 / p95", latencies(found, plan))
    results.table("What it took", costs(found, plan), costs_note(found))
    results.table("Aims", aims(found, plan))
    at = larger[0].most
    if at in plan.sessions:
        others.insert(0, found)
    results.table(f"Sessions by size of the model, {at} of them, tokens per second", sizes(others, at), SIZES)
    draw(results, found, plan)


def played(plan: Plan, texts: Texts, say: Callable[[str], None]) -> Found:
    """All runs of a plan on a cloud of its own."""
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as name:
        folder = Path(name)
        model, place = {}, EMBEDDED_MODEL
        if plan.shape is not None:
            place = folder / "model"
            model = make_model(place, ENTROPY, plan.shape)
        with Town(folder, plan.most, texts.documents["cloud"], model) as town:
            return measure(town, plan, texts.questions, place, say)


def sizes(found: Sequence[Found], at: int) -> Table:
    """Steady runs of so many sessions, by the model's number of parameters."""
    columns: dict[str, Callable[[Found], object]] = {
        "parameters": lambda one: f"{one.parameters / 1e6:.1f} M",
        **{head: partial(_at, tell, at) for head, tell in RATES.items()},
    }
    return Table.of(found, columns)


def rates(found: Found, plan: Plan) -> Table:
    """While every session was decoding."""
    rows = {(str(count),): count for count in plan.sessions}
    return Table.crossed(["sessions"], rows, RATES, lambda count, tell: tell(found, count))


def _rate(kind: Kind, found: Found, at: int) -> str:
    return Spread.of([run.rate for run in found.of(kind, at, steady=True)]).short()


def _ratio(kind: Kind, found: Found, at: int) -> str:
    return Spread.of(found.ratios(kind, at)).short(2)


RATES: dict[str, Callable[[Found, int], str]] = {
    "bare model": lambda found, at: Spread.of(found.bare[at]).short(),
    "listening": partial(_rate, "listening"),
    "drafting": partial(_rate, "drafting"),
    "listening / bare": partial(_ratio, "listening"),
    "drafting / bare": partial(_ratio, "drafting"),
}


def _at(tell: Callable[[Found, int], str], at: int, found: Found) -> str:
    return tell(found, at)


def waits(found: Found, plan: Plan) -> Table:
    """Of listening devices."""
    columns: dict[str, Callable[[int], str]] = {
        "to the first token, ms, p50 / p95": lambda count: _first(found, "listening", count),
        "between tokens": lambda count: _pair([run.gap for run in found.of("listening", count, steady=True)]),
        "memory per session, MiB": lambda count: _memory(found, count),
    }
    rows = {(str(count),): count for count in plan.sessions}
    return Table.crossed(["sessions"], rows, columns, lambda count, tell: tell(count))


def latencies(found: Found, plan: Plan) -> Table:
    """Medians over the repeats."""
    columns: dict[str, Callable[[tuple[int, Kind]], object]] = {
        "sessions": lambda at: str(at[0]),
        "devices": lambda at: at[1],
        "to the first token": lambda at: _first(found, at[1], at[0]),
        "between tokens": lambda at: _pair([run.gap for run in found.of(at[1], at[0], steady=False)]),
        "between tokens, steady": lambda at: _pair([run.gap for run in found.of(at[1], at[0], steady=True)]),
    }
    return Table.of(product(plan.sessions, KINDS), columns)


def costs(found: Found, plan: Plan) -> Table:
    """Medians over the repeats of the steady runs; memory of the first repeat; differences of all."""

    def steady(of: Callable[[Ran], float], form: str) -> Callable[[tuple[int, Kind]], str]:
        return lambda at: f"{_median(found.of(at[1], at[0], steady=True), of):{form}}"

    def differing(at: tuple[int, Kind]) -> int:
        return _differing([run for steady in (True, False) for run in found.of(at[1], at[0], steady)])

    columns: dict[str, Callable[[tuple[int, Kind]], object]] = {
        "sessions": lambda at: str(at[0]),
        "devices": lambda at: at[1],
        "cloud's memory per session, MiB": lambda at: _memory(found, at[0]),
        "cloud, of a core": steady(lambda run: run.load[0], ".0%"),
        "players, of a core": steady(lambda run: run.load[1], ".0%"),
        "cloud's drafts per token": steady(lambda run: run.drafted / run.tokens, ".2f"),
        "roll-backs per 100 tokens": steady(lambda run: 100 * run.rollbacks / run.tokens, ".1f"),
        "pre-empted per 100 tokens": steady(lambda run: 100 * run.preempted / run.tokens, ".1f"),
        "questions per 100 tokens": steady(lambda run: 100 * run.questions / run.tokens, ".1f"),
        "sessions with other tokens than alone": differing,
    }
    return Table.of(product(plan.sessions, KINDS), columns)


def _first(found: Found, kind: Kind, count: int) -> str:
    return _pair([run.ttft for run in found.of(kind, count, steady=False) if run.ttft is not None])


def _memory(found: Found, count: int) -> str:
    bytes_ = found.memory(count)
    return NOTHING if bytes_ is None else f"{bytes_ / MEBIBYTE:.1f}"


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
    curves = {"bare model": {count: found.bare[count] for count in plan.sessions}}
    for kind in KINDS:
        curves[kind] = {count: [run.rate for run in found.of(kind, count, steady=True)] for count in plan.sessions}
    title = "Tokens per second of many sessions on one cloud: medians, 10th to 90th percentile"
    with results.figure("throughput", title=title) as (axis,):
        for number, (name, curve) in enumerate(curves.items()):
            spreads = {count: Spread.of(rates) for count, rates in curve.items()}
            medians = [spread.median for spread in spreads.values()]
            below = [spread.median - spread.low for spread in spreads.values()]
            above = [spread.high - spread.median for spread in spreads.values()]
            label = name if number == 0 else f"{name} devices"
            axis.errorbar(list(spreads), medians, yerr=[below, above], capsize=3, label=label, **line_style(number))
        axis.set_xscale("log", base=2)
        axis.set_xticks(plan.sessions, [str(count) for count in plan.sessions])
        axis.set_xlabel("sessions at a time")
        axis.set_ylabel("tokens per second, all sessions")
        axis.set_ylim(bottom=0)


def _pair(pairs: Sequence[tuple[float, float]]) -> str:
    """Medians of seconds, shown as milliseconds."""
    medians = [1e3 * Spread.of(column).median for column in zip(*pairs, strict=True)]
    return " / ".join(f"{each:,.0f}" if each >= 10 else f"{each:.1f}" for each in medians)


def _median(runs: Sequence[Ran], value: Callable[[Ran], float]) -> float:
    return Spread.of([value(run) for run in runs]).median


def _differing(runs: Sequence[Ran]) -> int:
    return sum(run.differing for run in runs)


def _answers(runs: Sequence[Ran]) -> int:
    return sum(run.sessions for run in runs)
