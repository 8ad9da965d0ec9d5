"""The suite `acceptance`: how often each side's draft is the target, by sampler, on the embedded model's answers.

Every position follows the answer that the race gives; each sampler drafts and decides there with its own random
numbers of the answer's seed. So all samplers are compared on the same distributions. Beside the outcomes stands the
probability that they had: Eq. 5 for the paper's sampler, and for the race

    P(draft of s is the target) = sum over x of 1 / sum over j of max(p^s_j / p^s_x, p_j / p_x)

because x wins both races if E_x is smaller than E_j / max(...) for all j (Daliri, Musco and Suresh 2024).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from common.sampling.algorithm1 import expected_acceptance
from common.sampling.certificate import WHOLE
from common.sampling.paper import PaperSampler
from common.sampling.race import RaceSampler
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table
from scripts.bench.positions import Position, follow
from scripts.bench.results import Results
from scripts.bench.workload import Demonstration

RACE, PAPER, TOP_P = "race", "paper", "paper, top-p 0.8"
SAMPLERS = (RACE, PAPER, TOP_P)
ENTRIES = 32
_LOOKED_AT = 128  # tokens that could win both races; the rest could add no more than their probability


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: every question with every number of documents per side at every temperature."""

    documents: tuple[int, ...] = (1, 2, 4)
    temperatures: tuple[float, ...] = (0.0, 0.3, 0.7, 1.0)
    questions: int = 30
    tokens: int = 48
    seed: int = 21


SHORT = Plan(documents=(2,), temperatures=(0.0, 1.0), questions=2, tokens=6)


@dataclass(frozen=True, slots=True)
class Judged:
    """One position: whether each side's draft was the target, and how probable that was, (device, cloud)."""

    accepted: tuple[bool, bool]
    expected: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    documents: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: what became of the drafts of every position by sampler, and how far apart both sides were."""

    case: Case
    question: int
    seed: int
    judged: dict[str, list[Judged]]
    distances: list[float]  # total variation of each position


def run(results: Results, demonstration: Demonstration | None = None) -> None:
    plan = SHORT if results.short else Plan()
    demonstration = demonstration or Demonstration(plan.questions)
    answers = measure(plan, demonstration, results)
    note = f"{plan.questions} questions; shares of positions. Expected: Eq. 5, or its equivalent for the race."
    results.table("Drafts that are the target: device / cloud / both", show(answers), note)
    results.samples(
        "answers", {"plan": asdict(plan), "entries": ENTRIES, "answers": [asdict(each) for each in answers]}
    )
    for path in write_records(answers, results.folder / "acceptance"):
        results.say(f"recorded {path.name}")
    draw(answers, results)


def measure(plan: Plan, demonstration: Demonstration, results: Results) -> list[Answer]:
    answers = []
    for documents in plan.documents:
        for temperature in plan.temperatures:
            results.say(f"{documents} documents per side, temperature {temperature:g}")
            for number, question in enumerate(demonstration.questions[: plan.questions]):
                seed = plan.seed * 1000 + number
                positions = follow(demonstration, question, documents, temperature, seed, plan.tokens)
                answers.append(judge(Case(documents, temperature), number, seed, positions_of=list(positions)))
    return answers


def judge(case: Case, question: int, seed: int, positions_of: Sequence[Position]) -> Answer:
    """Draft and decide at every position by every sampler."""
    vocabulary = len(positions_of[0].device)
    race = RaceSampler(seed, case.temperature, ENTRIES, vocabulary)
    paper = {
        PAPER: PaperSampler(seed, case.temperature, 1.0, "raw", vocabulary),
        TOP_P: PaperSampler(seed, case.temperature, 0.8, "top-p", vocabulary),
    }
    judged: dict[str, list[Judged]] = {name: [] for name in SAMPLERS}
    for position in positions_of:
        judged[RACE].append(_race(race, position))
        for name, sampler in paper.items():
            judged[name].append(_paper(sampler, position))
    return Answer(case, question, seed, judged, [position.total_variation for position in positions_of])


def _race(sampler: RaceSampler, position: Position) -> Judged:
    target = position.target()
    device, cloud = (sampler.draft(position.index, p).token == target for p in position.both)
    if position.temperature == 0:
        return Judged((device, cloud), (float(device), float(cloud)))
    mixture = position.mixture()
    chances = [both_races(p.numpy().astype(np.float64), mixture) for p in position.both]
    return Judged((device, cloud), (chances[0], chances[1]))


def _paper(sampler: PaperSampler, position: Position) -> Judged:
    drafts = [
        sampler.draft(side, position.index, probabilities)
        for side, probabilities in zip(SIDES, position.both, strict=True)
    ]
    eta = position.eta_device / WHOLE
    outcome = sampler.aggregate(position.index, drafts[0], drafts[1], eta)
    accepted = (outcome.device_accepted, outcome.cloud_accepted)
    if position.temperature == 0:
        return Judged(accepted, (float(accepted[0]), float(accepted[1])))
    return Judged(accepted, expected_acceptance(drafts[0].distribution, drafts[1].distribution, eta))


def both_races(own: NDArray[np.float64], mixture: NDArray[np.float64]) -> float:
    """How probable it is that one token wins the races of both distributions [vocab] on the same noise."""
    likely = np.argsort(-np.minimum(own, mixture))[:_LOOKED_AT]
    likely = likely[np.minimum(own, mixture)[likely] > 0]
    slowdown = np.maximum(own / own[likely, None], mixture / mixture[likely, None]).sum(axis=1)
    return min(1.0, float((1.0 / slowdown).sum()))


def rates(judged: Sequence[Judged]) -> tuple[float, float, float]:
    """Shares of positions where the draft of device, of cloud, and of both were the target."""
    device, cloud = zip(*(each.accepted for each in judged), strict=True)
    return fmean(device), fmean(cloud), fmean(map(all, zip(device, cloud, strict=True)))


def expected(judged: Sequence[Judged]) -> tuple[float, float]:
    device, cloud = zip(*(each.expected for each in judged), strict=True)
    return fmean(device), fmean(cloud)


def gathered(answers: Sequence[Answer], case: Case, sampler: str) -> list[Judged]:
    return [judged for answer in answers if answer.case == case for judged in answer.judged[sampler]]


def cases(answers: Sequence[Answer]) -> list[Case]:
    return list(dict.fromkeys(answer.case for answer in answers))


def show(answers: Sequence[Answer]) -> Table:
    rows: list[list[object]] = []
    for case in cases(answers):
        distances = [distance for answer in answers if answer.case == case for distance in answer.distances]
        row: list[object] = [case.documents, f"{case.temperature:g}", len(distances), f"{fmean(distances):.3f}"]
        for sampler in SAMPLERS:
            judged = gathered(answers, case, sampler)
            told = " / ".join(f"{rate:.2f}" for rate in rates(judged))
            row.append(f"{told} (expected {' / '.join(f'{rate:.2f}' for rate in expected(judged))})")
        rows.append(row)
    heads = ["documents per side", "temperature", "positions", "mean total variation", *SAMPLERS]
    return Table(heads, rows)


def write_records(answers: Sequence[Answer], folder: Path) -> list[Path]:
    """One file per case and sampler for the simulator to replay.

    A list of answers, each a list of `[device, cloud, expected of device, expected of cloud]`, the first two 0 or 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for case in cases(answers):
        for sampler, short in zip(SAMPLERS, ("race", "paper", "paper-top-p"), strict=True):
            record = [
                [
                    [*map(int, each.accepted), *(round(rate, 6) for rate in each.expected)]
                    for each in answer.judged[sampler]
                ]
                for answer in answers
                if answer.case == case
            ]
            path = folder / f"{short}-{case.documents}-documents-temperature-{case.temperature:g}.json"
            path.write_text(json.dumps(record) + "\n")
            written.append(path)
    return written


def draw(answers: Sequence[Answer], results: Results) -> None:
    """One panel per number of documents: shares over the temperature."""
    found = cases(answers)
    counts = sorted({case.documents for case in found})
    temperatures = sorted({case.temperature for case in found})
    with results.figure("samplers", columns=len(counts)) as axes:
        for axis, documents in zip(axes, counts, strict=True):
            for number, sampler in enumerate(SAMPLERS):
                shares = [rates(gathered(answers, Case(documents, each), sampler)) for each in temperatures]
                for index, (name, style) in enumerate((("device", "--"), ("cloud", ":"), ("both", "-"))):
                    label = f"{sampler}: {name}"
                    axis.plot(temperatures, [each[index] for each in shares], style, color=f"C{number}", label=label)
            axis.set_title(f"{documents} document{'s' * (documents > 1)} per side")
            axis.set_xlabel("temperature")
            axis.set_ylim(0, 1.02)
        axes[0].set_ylabel("share of drafts that are the target")
        axes[-1].legend(fontsize=7)
