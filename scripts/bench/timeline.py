"""Fig. 9 and the make-up of the time per token, from traces of real daemons behind a slow network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from common.tracing.analysis import CAUSES, Cause, milliseconds_per_token, steps
from common.tracing.chrome import chrome_trace
from common.tracing.figure import save_timeline
from common.tracing.trace import Trace, from_json
from scripts.bench.asking import PATIENT, Mode, ask, filled, in_turn, linked, make_mode, settle
from scripts.bench.engine.pair import SIDES
from scripts.bench.latency.plan import emulated
from scripts.bench.measuring import Table
from scripts.bench.plan import Plan
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.faulty_proxy import Line

MODES = (
    make_mode("paper-greedy", sampler="paper", placement="greedy"),
    make_mode("race-device", sampler="race", placement="device"),
    make_mode("race-mirrored", sampler="race", placement="mirrored"),
    make_mode("race-token-wise", sampler="race", method="token-wise"),
)


SHOWN: dict[str, tuple[Cause, ...]] = {
    "device decode": ("device decode",),
    "cloud decode": ("cloud decode",),
    "decoded again after a rejection": ("device recomputation", "cloud recomputation"),
    "draft under way": ("draft under way",),
    "target under way": ("target under way",),
}

# At temperature 0 the demonstration's sides hardly ever disagree.
FULL = Plan(rtts=(250.0,), steps=((60.0, 25.0),), questions=6, tokens=48, temperatures=(1.0,), seed=11)
SHORT = replace(FULL, rtts=(40.0,), steps=((10.0, 5.0),), questions=1, tokens=8)


def run(results: Results) -> None:
    """The entry of `make bench`."""
    plan = SHORT if results.short else FULL
    show(measure(plan, results), plan, results)


def show(found: Mapping[str, Sequence[Trace]], plan: Plan, results: Results) -> None:
    """The table of all traces, and each mode's longest one as a figure and for Perfetto."""
    rows = []
    for name, traces in found.items():
        longest = max(traces, key=lambda trace: len(trace.of("aggregate")))
        walked = [step for trace in traces for step in steps(trace)]
        spent = milliseconds_per_token(walked)
        shares = (sum(spent[cause] for cause in causes) for causes in SHOWN.values())
        rows.append([name, *(f"{share:.0f}" for share in (sum(spent.values()), *shares)), f"{spent['engine']:.1f}"])
        title = f"One answer, {name}: added round trip {plan.rtts[0]:.0f} ms"
        save_timeline(results.path_of(name), longest, title)
        path = results.folder / f"{results.suite}-{name}.perfetto.json"
        path.write_text(json.dumps(chrome_trace(longest)) + "\n")
    device, cloud = plan.steps[0]
    slower = f"; a decode step takes at least {device:.0f} ms on the device and {cloud:.0f} ms on the cloud"
    note = (
        "Milliseconds per token after the first, along the way that each token waited for; the rest of the total is "
        f"reading. RTT {plan.rtts[0]:.0f} ms"
        f"{slower if device else ''}."
    )
    results.table("What the time per token went into", Table(["mode", "total", *SHOWN, "engine"], rows), note)


def measure(
    plan: Plan, results: Results, texts: Texts | None = None, settings: Mapping[str, object] = MappingProxyType({})
) -> dict[str, list[Trace]]:
    """The traces of every question, by mode; of the demonstration's, where no other `texts` are given."""
    texts = texts or Texts.draw(plan.questions)
    found: dict[str, list[Trace]] = {mode.name: [] for mode in MODES}
    device, cloud = ({**settings, **emulated(step)} for step in plan.steps[0])
    line = Line(delay=plan.rtts[0] / 2e3)
    with filled(texts) as data, linked(data, {**device, **PATIENT}, cloud, line, line) as (pair, _):
        settle(pair)
        for question in texts.questions:  # reads the documents of every question once
            pair.complete(question, max_tokens=1)
        for number, question in enumerate(texts.questions):
            for mode in in_turn(MODES, number):
                results.say(f"{mode.name}: {question}")
                found[mode.name].append(_ask(pair, question, plan, mode))
    results.samples("plan", plan.sizes() | {"sides": SIDES})
    results.samples("steps", {name: [_sample(trace) for trace in traces] for name, traces in found.items()})
    return found


def _ask(pair: Pair, question: str, plan: Plan, mode: Mode) -> Trace:
    common = {"temperature": plan.temperatures[0], "seed": plan.seed, "max_tokens": plan.tokens, "trace": True}
    trace = from_json(ask(pair, question, mode, **common)["trace"])
    if not trace.cloud_known:
        raise RuntimeError(f"the cloud's half of a trace is missing: {trace.notes}")
    return trace


def _sample(trace: Trace) -> list[dict[str, Any]]:
    """Each token's time by cause, milliseconds."""
    return [
        {"position": step.position, "waited for": step.waited_for}
        | {cause: step.spent(cause) / 1e6 for cause in CAUSES if step.spent(cause)}
        for step in steps(trace)
    ]
