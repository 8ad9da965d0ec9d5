"""The suite `sessions`: tokens per second of many devices on one cloud, against the bare model's batch curve."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.start import SWITCH_INTERVAL
from common.figures import line_style
from scripts.bench.measuring import MEDIANS, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.rows import Cell, Row, groups, over, spread, table, values, where
from scripts.bench.sessions.measure import DOCUMENTS, KINDS, LARGER, SHORT, SHORT_LARGER, Plan, measure
from scripts.bench.sessions.town import Town
from scripts.bench.synthetic_model import make_model
from scripts.bench.workload import Texts

MEBIBYTE: Final = 2**20
ENTROPY: Final = 1.0  # nats of the larger models
SIZES: Final = "The embedded model, and random ones of its kind."


def run(results: Results) -> None:
    """Start clouds, play their devices, and show what came of it: the embedded model in full, then larger ones."""
    plans = [SHORT, *SHORT_LARGER] if results.short else [Plan(), *LARGER]
    texts = Texts.draw(max(plan.most for plan in plans))

    def ask(case: Row) -> Iterator[Row]:
        return played(plans[case["plan"]], texts, results)

    rows = results.measured([{"plan": number} for number in range(len(plans))], ask)
    plan, found = plans[0], where(rows, plan=0)
    note = (
        f"{MEDIANS} over {plan.repeats} repeats; load {load()}. {plan.tokens} tokens per answer, {DOCUMENTS} documents "
        f"that had been read before, rows of {found[0]['prompt']} tokens before the answer. `listening`: devices "
        f"without documents. `drafting`: devices with drafts of their own, of {plan.weight:.0%} weight. "
        f"{sum(row['differing'] for row in _devices(found))} answers have other tokens than alone."
    )
    results.table("Tokens per second of all sessions", rates(found), note)
    results.table("Waits of listening devices", waits(found))
    at = plans[1].most
    results.table(f"Sessions by size of the model, {at} of them, tokens per second", sizes(rows, at), SIZES)
    draw(results, found)


def played(plan: Plan, texts: Texts, results: Results) -> Iterator[Row]:
    """All runs of a plan on a cloud of its own."""
    interval = sys.getswitchinterval()
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as name:
        folder = Path(name)
        model, place = {}, EMBEDDED_MODEL
        if plan.shape is not None:
            place = folder / "model"
            model = make_model(place, ENTROPY, plan.shape)
        sys.setswitchinterval(SWITCH_INTERVAL)  # as in a daemon: devices do not wait for each other's threads
        try:
            with Town(folder, plan.most, texts.documents["cloud"], model) as town:
                yield from measure(town, plan, texts.questions, place, results.say)
        finally:
            sys.setswitchinterval(interval)


def _compared(rows: Sequence[Row], index: dict[str, str]) -> Table:
    """Rates of steady runs, and these over the bare model's of the same repeat."""
    steady = where(rows, steady=True)
    bare = where(steady, kind="bare model")
    over_bare = over(bare, "rate", "plan", "sessions", "repeat")
    columns = {kind: _of(kind, spread("rate")) for kind in ("bare model", *KINDS)}
    columns |= {f"{kind} / bare": _of(kind, over_bare) for kind in KINDS}
    return table(steady, index, columns)


def _of(kind: str, cell: Cell) -> Cell:
    return lambda rows: cell(found) if (found := where(rows, kind=kind)) else None


def sizes(rows: Sequence[Row], at: int) -> Table:
    """So many sessions, by the model's number of parameters."""
    named = [row | {"size": f"{row['parameters'] / 1e6:.1f} M"} for row in where(rows, sessions=at)]
    return _compared(named, {"parameters": "size"})


def rates(rows: Sequence[Row]) -> Table:
    """While every session was decoding."""
    return _compared(rows, {"sessions": "sessions"})


def waits(rows: Sequence[Row]) -> Table:
    """Of listening devices."""
    columns: dict[str, Cell] = {
        "to the first token, ms, p50 / p95": _of("listening", _pair("ttft")),
        "between tokens": _of("listening", _steady(_pair("gap"))),
        "memory per session, MiB": memory,
    }
    return table(rows, ["sessions"], columns)


def memory(rows: list[Row]) -> str | None:
    """Memory of a session beyond the idle daemon's, which keeps the place of one; None for a single session.

    Of the first repeat: what one run took stays with the process for the next.
    """
    first = [row for row in _devices(rows) if row["repeat"] == 0]
    if (sessions := first[0]["sessions"]) < 2:
        return None
    return f"{(max(row['resident'] for row in first) - first[0]['idle']) / (sessions - 1) / MEBIBYTE:.1f}"


def draw(results: Results, rows: Sequence[Row]) -> None:
    """Steady tokens per second against sessions, medians with the 10th to 90th percentile."""
    title = "Tokens per second of many sessions on one cloud: medians, 10th to 90th percentile"
    with results.figure("throughput", title=title) as (axis,):
        for number, kind in enumerate(("bare model", *KINDS)):
            curve = groups(where(rows, steady=True, kind=kind), "sessions")
            spreads = {count: Spread.of(values(those, "rate")) for (count,), those in curve.items()}
            medians = [spread.median for spread in spreads.values()]
            below = [spread.median - spread.low for spread in spreads.values()]
            above = [spread.high - spread.median for spread in spreads.values()]
            label = kind if number == 0 else f"{kind} devices"
            axis.errorbar(list(spreads), medians, yerr=[below, above], capsize=3, label=label, **line_style(number))
        counts = sorted({row["sessions"] for row in rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlabel("sessions at a time")
        axis.set_ylabel("tokens per second, all sessions")
        axis.set_ylim(bottom=0)


def _devices(rows: Sequence[Row]) -> list[Row]:
    return sorted(
        (row for row in rows if row["kind"] in KINDS), key=lambda row: (row["sessions"], KINDS.index(row["kind"]))
    )


def _steady(cell: Cell) -> Cell:
    return lambda rows: cell(where(rows, steady=True))


def _pair(field: str) -> Cell:
    """Shows medians of the 50th and 95th percentile, seconds as milliseconds."""

    def shown(rows: list[Row]) -> str:
        known = [row for row in rows if field in row]
        medians = [1e3 * Spread.of(values(known, name)).median for name in (field, f"{field}_95")]
        return " / ".join(f"{each:,.0f}" if each >= 10 else f"{each:.1f}" for each in medians)

    return shown
