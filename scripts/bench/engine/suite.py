"""The suite `engine`: costs of the engine beside the models, with one core per side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from scripts.bench.engine import decode_step, loopback, per_token, wire
from scripts.bench.engine.plan import Plan
from scripts.bench.measuring import Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.rows import Row, groups, values, where
from scripts.bench.workload import Demonstration

PARTS: Final = ("work", "wire", "step", "daemons")


def run(results: Results) -> None:
    """Measure all parts, and say how far each is from its aim."""
    rows = results.measured([{"part": part} for part in PARTS], lambda case: measure(case["part"], results.short))
    work, traffic, steps, answers = (where(rows, part=part) for part in PARTS)
    results.table("Work per token on one side beside the model: 4 documents, K = 32", per_token.show(work))
    results.table("Bytes per token by codec, cloud to device", wire.by_codec(traffic))
    note = f"Medians, [10 to 90 %]; load {load()}."
    results.table("Aims", aims(work, traffic, steps, answers), note)


def measure(part: str, short: bool) -> Iterable[Row]:
    """The rows of a part."""
    parts: dict[str, Callable[[], Iterable[Row]]] = {
        "work": partial(per_token.measure, per_token.SHORT if short else per_token.FULL),
        "wire": partial(_wire, wire.SHORT if short else wire.FULL),
        "step": partial(decode_step.measure, decode_step.SHORT if short else decode_step.FULL),
        "daemons": partial(loopback.measure, loopback.SHORT if short else loopback.FULL),
    }
    return parts[part]()


def _wire(plan: Plan) -> list[Row]:
    return wire.measure(plan, Demonstration(plan.questions))


def aims(work: list[Row], traffic: list[Row], steps: list[Row], answers: list[Row]) -> Table:
    """The named aims, each with its figure."""
    lines: list[list[str]] = []
    for (vocabulary, temperature), those in groups(work, "vocabulary", "temperature").items():
        aim = f"{per_token.AIMS[vocabulary]:,.0f} µs" if vocabulary in per_token.AIMS else ""
        what = f"work beside the model, V = {vocabulary:,}, T = {temperature:g}"
        lines.append([what, aim, per_token.by_side(those)])
    vocabularies = " / ".join(f"{each:,}" for each in sorted({row["vocabulary"] for row in traffic}))
    down, up = wire.by_vocabulary(traffic)
    lines.append([f"cloud to device, K = 32, V = {vocabularies}", f"{wire.DRAFT_AIM:g} bytes per token", down])
    lines.append([f"device to cloud, placement `device`, V = {vocabularies}", f"{wire.TARGET_AIM:g}", up])
    for (lengths,), those in groups(steps, "lengths").items():
        what = f"decode step / plain forward pass, rows of {lengths}"
        lines.append([what, f"{decode_step.AIM:g}", usual(Spread.of(values(those, "ratio")))])
    for placement, against, spread in loopback.ratios(answers):
        aim = f"{loopback.AIM:g}" if against == "step" else ""
        lines.append([f"latency per token / slower side's {against}, `{placement}`", aim, usual(spread)])
    return Table(["what", "at most", "measured"], lines)


def usual(spread: Spread) -> str:
    """Median [10th to 90th percentile]."""
    return f"{spread.median:.2f} [{spread.low:.2f}-{spread.high:.2f}]"
