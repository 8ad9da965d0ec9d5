"""Fig. 9 and the make-up of the time per token, from traces of real daemons behind a slow network."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.tracing.analysis import CAUSES, milliseconds_per_token, steps
from common.tracing.chrome import chrome_trace
from common.tracing.figure import ROWS, draw_timeline
from common.tracing.trace import Trace, from_json
from common.transport.faulty import FaultyProxy, Line
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair, free_port

PATIENCE = 30.0  # seconds for the first probe
SEED = 11


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to answer."""

    name: str
    fields: dict[str, Any]


MODES = (
    Mode("paper-greedy", {"sampler": "paper", "placement": "greedy"}),
    Mode("race-device", {"sampler": "race", "placement": "device"}),
    Mode("race-mirrored", {"sampler": "race", "placement": "mirrored"}),
    Mode("race-token-wise", {"sampler": "race", "method": "token-wise"}),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, on which network and hardware."""

    rtt: float  # seconds
    device_step: float  # milliseconds that a decode step takes at least: slower hardware
    cloud_step: float
    questions: int
    tokens: int
    temperature: float = 1.0  # at 0 the demonstration's sides hardly ever disagree


FULL = Plan(rtt=0.25, device_step=60.0, cloud_step=25.0, questions=6, tokens=48)
SHORT = Plan(rtt=0.04, device_step=10.0, cloud_step=5.0, questions=1, tokens=8)


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
        rows.append([name, f"{sum(spent.values()):.1f}", *(f"{spent[cause]:.1f}" for cause in CAUSES)])
        with results.figure(name, rows=ROWS) as axes:
            draw_timeline(axes, longest, f"{name}, RTT {1000 * plan.rtt:.0f} ms")
        path = results.folder / f"{results.suite}-{name}.perfetto.json"
        path.write_text(json.dumps(chrome_trace(longest)) + "\n")
    note = (
        f"Milliseconds per token after the first, along the way that each token waited for. RTT {1000 * plan.rtt:.0f} "
        f"ms; a decode step takes {plan.device_step:.0f} ms on the device and {plan.cloud_step:.0f} ms on the cloud."
    )
    results.table("What the time per token went into", Table(["mode", "total", *CAUSES], rows), note)


def measure(plan: Plan, results: Results) -> dict[str, list[Trace]]:
    """The traces of every question, by mode."""
    texts = Texts.draw(plan.questions)
    found: dict[str, list[Trace]] = {mode.name: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        texts.fill_libraries(data)
        port, line = free_port(), Line(delay=plan.rtt / 2)
        with FaultyProxy(port, up=line, down=line) as proxy, _pair(data, plan, proxy, port) as pair:
            _wait_for_a_probe(pair)
            for question in texts.questions:
                for mode in MODES:
                    results.say(f"{mode.name}: {question}")
                    found[mode.name].append(_ask(pair, question, plan, mode))
    results.samples("plan", {name: getattr(plan, name) for name in plan.__slots__} | {"seed": SEED, "sides": SIDES})
    results.samples("steps", {name: [_sample(trace) for trace in traces] for name, traces in found.items()})
    return found


def _pair(data: Path, plan: Plan, proxy: FaultyProxy, port: int) -> Pair:
    device = {"privacy": "balanced", "patience": 60.0, "emulate_decode_ms": plan.device_step}
    cloud = {"emulate_decode_ms": plan.cloud_step}
    return Pair(data, device, cloud, between=int(proxy.address.rpartition(":")[2]), cloud_port=port)


def _ask(pair: Pair, question: str, plan: Plan, mode: Mode) -> Trace:
    common = {"temperature": plan.temperature, "seed": SEED, "max_tokens": plan.tokens, "trace": True}
    trace = from_json(pair.complete(question, **common, **mode.fields)["dragon"]["trace"])
    if not trace.cloud_known:
        raise RuntimeError(f"the cloud's half of a trace is missing: {trace.notes}")
    return trace


def _wait_for_a_probe(pair: Pair) -> None:
    deadline = time.monotonic() + PATIENCE
    while pair.status()["cloud"]["rtt_ms"] is None:
        if time.monotonic() > deadline:
            raise RuntimeError("the link was not measured")
        time.sleep(0.05)


def _sample(trace: Trace) -> list[dict[str, Any]]:
    """Each token's time by cause, milliseconds."""
    return [
        {"position": step.position, "waited for": step.waited_for}
        | {cause: step.spent(cause) / 1e6 for cause in CAUSES if step.spent(cause)}
        for step in steps(trace)
    ]
