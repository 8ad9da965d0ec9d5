"""Simulation of the answers that were measured: their recorded acceptance under a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from proto.fields import Placement
from scripts.bench.asking import Mode
from scripts.bench.latency.measure import Answered
from scripts.bench.latency.plan import (
    CLOUD_ONLY,
    CONTEXT_STEPS,
    DEVICE_ONLY,
    PAPER_DEVICE,
    TOKEN_WISE,
    Floors,
    Plan,
)
from scripts.bench.measuring import Table, grouped
from scripts.simulation.acceptance import Answer, Position, Recorded
from scripts.simulation.scenario import Scenario, SimulatedAnswer, StepCosts, simulate
from scripts.simulation.timing import DecodeTime, Sinusoid, Way

OWN_RTT = 0.001  # seconds of round trip that the lab and the daemons have without any added latency
PHASES = 4  # of the jitter, which the measured answers met at all of its phases
AIM = 0.1

Records = dict[tuple[int, tuple[str, ...]], Answer]  # by question and its tokens


@dataclass(frozen=True, slots=True)
class Predicted:
    """One method at one setting: medians over its answers, milliseconds per token of the whole answer."""

    floors: str
    rtt: float
    temperature: float
    mode: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Share by which the simulation is off."""
        return self.simulated / self.measured - 1.0


def predict(found: Sequence[Answered], plan: Plan) -> list[Predicted]:
    """Every setting of the methods that the session runs with both sides."""
    by_mode = grouped(found, lambda one: (one.floors, one.rtt, one.temperature, one.mode))
    result = []
    for floors, leg in product(plan.floors, plan.legs):
        work = _work(found, floors)
        for temperature, mode in product(leg.temperatures, plan.modes):
            setting = (floors.name, leg.rtt, temperature, mode.name)
            if "sources" in mode.fields or _method(mode) not in ("speculative", "token-wise") or _branches(mode):
                continue
            records = _records(found, mode, temperature)
            pairs = [
                (one.whole / one.tokens, 1e3 * simulated.seconds / one.tokens)
                for one in by_mode.get(setting, [])
                if (one.question, one.pieces) in records
                for simulated in _simulated(floors, leg.rtt, plan, mode, one, records, work)
            ]
            if pairs:
                result.append(Predicted(*setting, *(median(column) for column in zip(*pairs, strict=True))))
    return result


def _branches(mode: Mode) -> bool:
    """Whether sides decode branches, of which the simulator knows nothing."""
    race = mode.fields.get("sampler", "race") == "race" and _method(mode) == "speculative"
    return race and mode.fields.get("branches") != 1


def table(predicted: Sequence[Predicted]) -> Table:
    columns: dict[str, Callable[[Predicted], object]] = {
        "floors, ms": lambda one: one.floors,
        "added RTT, ms": lambda one: f"{one.rtt:g}",
        "T": lambda one: f"{one.temperature:g}",
        "method": lambda one: one.mode,
        "measured, ms per token": lambda one: f"{one.measured:.0f}",
        "simulated": lambda one: f"{one.simulated:.0f}",
        "error": lambda one: f"{100 * one.error:+.0f} %",
    }
    return Table.of(predicted, columns)


def verdict(predicted: Sequence[Predicted]) -> str:
    within = sum(abs(one.error) <= AIM for one in predicted)
    return f"Within {100 * AIM:.0f} % in {within} of {len(predicted)} settings."


def _simulated(
    floors: Floors, rtt: float, plan: Plan, mode: Mode, answer: Answered, records: Records, work: StepCosts
) -> list[SimulatedAnswer]:
    record = records[answer.question, answer.pieces]
    earlier = tuple(
        position for (question, _), known in records.items() if question < answer.question for position in known
    )
    placement: Placement = mode.fields.get("placement", "device")
    outcomes = []
    for phase in range(PHASES):
        jitter = Sinusoid(plan.jitter, phase=2 * math.pi * phase / PHASES)
        scenario = Scenario(
            _steps(floors.device, answer),
            _steps(floors.cloud, answer),
            Way(OWN_RTT, rtt / 1e3, jitter),
            Recorded((record,)),
            placement,
            len(record),
            synchronous=_method(mode) == "token-wise",
            paper_rule=mode.fields.get("sampler") == "paper",
            earlier=earlier,
            work=work,
        )
        outcomes.append(simulate(scenario, plan.seed))  # the seed of the request: `random` moves by it
    return outcomes


def _steps(floor: float, answer: Answered) -> DecodeTime:
    return DecodeTime((floor / 1e3,), floor / 1e3 * CONTEXT_STEPS / 1e3, max(1, round(answer.prompt)))


def _records(found: Sequence[Answered], mode: Mode, temperature: float) -> Records:
    """Both sides' acceptance at every position, from runs of the same sampler in which the device saw all drafts."""
    source = PAPER_DEVICE.name if mode.fields.get("sampler") == "paper" else TOKEN_WISE.name
    records: Records = {}
    for one in found:
        if (one.temperature, one.mode) == (temperature, source):
            pairs = [(device, cloud) for device, cloud in one.accepted if device is not None and cloud is not None]
            if len(pairs) == len(one.accepted):
                known = zip(pairs, one.expected, strict=True)
                records[one.question, one.pieces] = tuple(Position(*pair, expected) for pair, expected in known)
    return records


def _work(found: Sequence[Answered], floors: Floors) -> StepCosts:
    """Seconds of retrieval and prefill on either side, from the one-sided answers."""
    prepared = {}
    for mode, floor, trips in ((DEVICE_ONLY, floors.device, 0), (CLOUD_ONLY, floors.cloud, 1)):
        ready = [
            one.ttft - trips * one.rtt - floor * (1.0 + CONTEXT_STEPS * one.prompt / 1e3)
            for one in found
            if (one.floors, one.mode) == (floors.name, mode.name)
        ]
        prepared[mode.name] = max(0.0, median(ready) / 1e3) if ready else 0.0
    return StepCosts(prepare_device=prepared[DEVICE_ONLY.name], prepare_cloud=prepared[CLOUD_ONLY.name])


def _method(mode: Mode) -> str:
    return str(mode.fields.get("method", "speculative"))
