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

PARTS: Final = ("work", "wire", "step", "daemons", "slowed")


def run(results: Results) -> None:
    """Measure all parts, and say how far each is from its aim."""
    parts = PARTS[:-1] if results.short else PARTS
    rows = results.measured([{"part": part} for part in parts], lambda case: measure(case["part"], results.short))
    work, traffic, steps, answers, slowed = (where(rows, part=part) for part in PARTS)
    results.table("Work per token on one side beside the model: 4 documents, K = 32", per_token.show(work))
    results.table("Bytes per token, placement `device`, K = 32", wire.show(traffic))
    results.table("Bytes per token by codec, cloud to device", wire.by_codec(traffic))
    results.table("Decode step, embedded model, against Transformers' StaticCache", decode_step.show(steps))
    results.table(f"Two daemons on loopback, one thread each; load {load()}", loopback.show(answers))
    floor = f"{loopback.SLOWED.steps[0][0]:g} ms on both sides"
    results.table(f"The same with steps of {floor}; load {load()}", loopback.show(slowed))
    results.table("Aims", aims(work, traffic, steps, answers), "Medians, [10 to 90 %].")


def measure(part: str, short: bool) -> Iterable[Row]:
    """The rows of a part."""
    parts: dict[str, Callable[[], Iterable[Row]]] = {
        "work": partial(per_token.measure, per_token.SHORT if short else per_token.FULL),
        "wire": partial(_wire, wire.SHORT if short else wire.FULL),
        "step": partial(decode_step.measure, decode_step.SHORT if short else decode_step.FULL),
        "daemons": partial(loopback.measure, loopback.SHORT if short else loopback.FULL),
        "slowed": partial(loopback.measure, loopback.SLOWED),
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
