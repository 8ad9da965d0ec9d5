"""The suite `engine`: costs of the engine beside the models, with one core per side."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.bench.engine import decode_step, loopback, per_token, wire
from scripts.bench.measuring import SPREADS, Table, load
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
        for vocabulary in plan.vocabularies:
            case, spread = per_token.worst(laps, vocabulary)
            most = per_token.AIMS.get(vocabulary, 0.0)
            aims.append([f"work beside the model, {case.name}", f"{most:g} µs", f"{spread.text()} µs"])
    if "wire" in parts:
        sizes = wire.SHORT if results.short else wire.FULL
        traffic = wire.measure(sizes, Demonstration(sizes.questions))
        results.table("Bytes per token, placement `device`, K = 32", wire.show(traffic))
        results.samples("wire", {"plan": sizes.sizes(), "bytes": traffic})
        down, up = wire.worst(traffic)
        aims.append(["cloud to device, any vocabulary", f"{wire.DRAFT_AIM:g} bytes per token", f"{down:.0f}"])
        aims.append(["device to cloud, any vocabulary", f"{wire.TARGET_AIM:g} bytes per token", f"{up:.0f}"])
    if "step" in parts:
        stepping = decode_step.SHORT if results.short else decode_step.FULL
        steps = decode_step.measure(stepping)
        results.table("Decode step, embedded model, against Transformers' StaticCache", decode_step.show(steps))
        results.samples("step", {"plan": stepping.sizes(), "milliseconds": steps, "load": load()})
        aims.append(["decode step / plain forward pass", f"{decode_step.AIM:g}", decode_step.worst(steps).text(2)])
    if "daemons" in parts:
        asking = loopback.SHORT if results.short else loopback.FULL
        answers = loopback.measure(asking)
        results.table(f"Two daemons on loopback, one thread each; load {load()}", loopback.show(answers))
        results.samples("daemons", {"plan": asking.sizes(), "answers": answers})
        for name, against, spread in loopback.ratios(answers):
            aim = f"{loopback.AIM:g}" if against == "step" else ""
            aims.append([f"latency per token / slower side's {against} ({name})", aim, spread.text(2)])
        if not results.short:
            slowed = loopback.measure(loopback.SLOWED)
            results.table(
                f"The same with steps of {loopback.SLOWED.steps[0][0]:g} ms on both sides; load {load()}",
                loopback.show(slowed),
            )
            results.samples("daemons, slowed", {"plan": loopback.SLOWED.sizes(), "answers": slowed})
    results.table("Aims", Table(["aim", "at most", f"measured: {SPREADS}"], aims))
