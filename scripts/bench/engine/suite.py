"""The suite `engine`: costs of the engine beside the models, with one core per side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from scripts.bench.engine import decode_step, loopback, per_token, wire
from scripts.bench.measuring import Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.workload import Demonstration

PARTS = ("work", "wire", "step", "daemons")


def run(results: Results, parts: Sequence[str] = PARTS) -> None:
    """Measure `parts`, and say how far each is from its aim."""
    aims: list[list[str]] = []
    if "work" in parts:
        plan = per_token.SHORT if results.short else per_token.FULL
        laps = per_token.measure(plan)
        results.table("Work per token on one side beside the model: 4 documents, K = 32", per_token.show(laps))
        results.samples("work", {"plan": plan.sizes(), "microseconds": per_token.record(laps), "load": load()})
        for vocabulary, temperature in product(plan.vocabularies, plan.temperatures):
            told = per_token.by_side(laps, vocabulary, temperature)
            aim = f"{per_token.AIMS[vocabulary]:,.0f} µs" if vocabulary in per_token.AIMS else ""
            aims.append([f"work beside the model, V = {vocabulary:,}, T = {temperature:g}", aim, told])
    if "wire" in parts:
        sizes = wire.SHORT if results.short else wire.FULL
        traffic = wire.measure(sizes, Demonstration(sizes.questions))
        results.table("Bytes per token, placement `device`, K = 32", wire.show(traffic))
        results.samples("wire", {"plan": sizes.sizes(), "bytes": traffic})
        results.table("Bytes per token by codec, cloud to device", wire.by_codec(traffic))
        vocabularies = " / ".join(f"{each:,}" for each in sorted({one.vocabulary for one in traffic}))
        down, up = wire.by_vocabulary(traffic)
        aims.append([f"cloud to device, K = 32, V = {vocabularies}", f"{wire.DRAFT_AIM:g} bytes per token", down])
        aims.append([f"device to cloud, placement `device`, V = {vocabularies}", f"{wire.TARGET_AIM:g}", up])
    if "step" in parts:
        stepping = decode_step.SHORT if results.short else decode_step.FULL
        steps = decode_step.measure(stepping)
        results.table("Decode step, embedded model, against Transformers' StaticCache", decode_step.show(steps))
        results.samples("step", {"plan": stepping.sizes(), "milliseconds": steps, "load": load()})
        for each in steps:
            what = f"decode step / plain forward pass, rows of {'/'.join(map(str, each.lengths))}"
            aims.append([what, f"{decode_step.AIM:g}", usual(each.ratio)])
    if "daemons" in parts:
        asking = loopback.SHORT if results.short else loopback.FULL
        answers = loopback.measure(asking)
        results.table(f"Two daemons on loopback, one thread each; load {load()}", loopback.show(answers))
        results.samples("daemons", {"plan": asking.sizes(), "answers": answers})
        for name, against, spread in loopback.ratios(answers):
            aim = f"{loopback.AIM:g}" if against == "step" else ""
            aims.append([f"latency per token / slower side's {against}, `{name}`", aim, usual(spread)])
        if not results.short:
            slowed = loopback.measure(loopback.SLOWED)
            results.table(
                f"The same with steps of {loopback.SLOWED.steps[0][0]:g} ms on both sides; load {load()}",
                loopback.show(slowed),
            )
            results.samples("daemons, slowed", {"plan": loopback.SLOWED.sizes(), "answers": slowed})
    results.table("Aims", Table(["what", "at most", "measured"], aims), "Medians, [10 to 90 %].")


def usual(spread: Spread) -> str:
    """Median [10th to 90th percentile]."""
    return f"{spread.median:.2f} [{spread.low:.2f}-{spread.high:.2f}]"
