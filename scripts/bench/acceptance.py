"""The suite `acceptance`: how often each side's draft is the target, by sampler, on the embedded model's answers.

Every position follows the answer that the race gives; each sampler drafts and decides there with its own random
numbers of the answer's seed. So all samplers are compared on the same distributions. Beside the outcomes stands the
probability that they had: Eq. 5 for the paper's sampler, and for the race

    P(draft of s is the target) = sum over x of 1 / sum over j of max(p^s_j / p^s_x, p_j / p_x)

because x wins both races if E_x is smaller than E_j / max(...) for all j (Daliri, Musco and Suresh 2024).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from common.figures import line_style
from common.sampling.algorithm1 import expected_acceptance
from common.sampling.certificate import WHOLE
from common.sampling.paper import PaperSampler
from common.sampling.race import RaceSampler
from scripts.bench import ranks
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table, grouped
from scripts.bench.plan import Plan
from scripts.bench.positions import Position, follow, synthetic
from scripts.bench.ranks import Ranked, ranked
from scripts.bench.results import Results
from scripts.bench.workload import Demonstration, Workload

RACE, PAPER, TOP_P = "race", "paper", "paper, top-p 0.8"
SAMPLERS = (RACE, PAPER, TOP_P)
ROWS = ("device's drafts", "cloud's drafts", "both at a position")  # of the picture, as `rates` has them
ENTRIES = 32
VOCABULARY = 4096  # of synthetic distributions


# The embedded model copies what it reads, and is sure of most tokens. So synthetic distributions of more entropy
# stand beside it.
FULL = Plan(
    documents=(1, 2, 4),
    temperatures=(0.0, 0.3, 0.7, 1.0),
    questions=30,
    tokens=48,
    entropies=(0.5, 1.0, 2.0, 3.0, 4.0, 5.0),
    positions=400,
    seed=21,
)
SHORT = Plan(documents=(2,), temperatures=(0.0, 1.0), questions=2, tokens=6, entropies=(2.0,), positions=6, seed=21)


@dataclass(frozen=True, slots=True)
class Judged:
    """One position: whether each side's draft was the target, and how probable that was, (device, cloud)."""

    accepted: tuple[bool, bool]
    expected: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: the embedded model with so many documents per side, or synthetic distributions."""

    documents: int
    temperature: float
    entropy: float | None = None  # nats, of synthetic distributions

    @property
    def name(self) -> str:
        if self.entropy is not None:
            return f"synthetic, {self.entropy:g} nats"
        return f"{self.documents} document{'s' * (self.documents > 1)} per side"


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """One answer: what became of the drafts of every position by sampler, and how far apart both sides were."""

    case: Case
    question: int
    seed: int
    judged: dict[str, list[Judged]]
    distances: list[float]  # total variation of each position
    entropies: list[float]  # of the mixture of each position, nats
    ranks: list[Ranked]


def run(results: Results, workload: Workload | None = None) -> None:
    plan = SHORT if results.short else FULL
    workload = workload or Demonstration(plan.questions)
    report(measure(plan, workload, results), plan, results)


def report(answers: Sequence[JudgedAnswer], plan: Plan, results: Results) -> None:
    """Table, samples, records for the simulator, and the picture."""
    note = f"{plan.questions} questions; shares of positions. The expected: Eq. 5, or its equivalent for the race."
    results.table("Drafts that are the target: device / cloud / both", show(answers), note)
    results.table("Expected shares: device / cloud", show_expected(answers))
    found = {
        (case.name, f"{case.temperature:g}"): [
            each for answer in answers if answer.case == case for each in answer.ranks
        ]
        for case in cases(answers)
    }
    results.table("Rank of the target where a draft of the race is rejected: device / cloud", ranks.table(found))
    results.samples("answers", {"plan": plan.sizes(), "entries": ENTRIES, "answers": answers})
    for path in write_records(answers, results.folder / results.suite):
        results.say(f"recorded {path.name}")
    draw(answers, results)


def measure(plan: Plan, workload: Workload, results: Results) -> list[JudgedAnswer]:
    answers = []
    for documents in plan.documents:
        for temperature in plan.temperatures:
            results.say(f"{documents} documents per side, temperature {temperature:g}")
            for number, question in enumerate(workload.questions[: plan.questions]):
                seed = plan.seed * 1000 + number
                positions = follow(workload, question, documents, temperature, seed, plan.tokens)
                answers.append(judge(Case(documents, temperature), number, seed, list(positions)))
    for number, entropy in enumerate(plan.entropies):
        results.say(f"synthetic, {entropy:g} nats")
        seed = plan.seed * 1000 + number  # one for all would repeat its luck in every row
        answers.append(
            judge(Case(0, 1.0, entropy), 0, seed, list(synthetic(VOCABULARY, entropy, plan.positions, seed)))
        )
    return answers


def judge(case: Case, question: int, seed: int, positions: Sequence[Position]) -> JudgedAnswer:
    """Draft and decide at every position by every sampler."""
    vocabulary = len(positions[0].device)
    race = RaceSampler(seed, case.temperature, ENTRIES, vocabulary)
    paper = {
        PAPER: PaperSampler(seed, case.temperature, 1.0, "raw", vocabulary),
        TOP_P: PaperSampler(seed, case.temperature, 0.8, "top-p", vocabulary),
    }
    judged: dict[str, list[Judged]] = {name: [] for name in SAMPLERS}
    for position in positions:
        judged[RACE].append(_race(race, position))
        for name, sampler in paper.items():
            judged[name].append(_paper(sampler, position))
    distances = [position.total_variation for position in positions]
    entropies = [position.entropy for position in positions]
    return JudgedAnswer(case, question, seed, judged, distances, entropies, [ranked(each) for each in positions])


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
    """Probability that one token wins the races of both distributions [vocab] on the same noise.

    In the order of own / mixture, the first of the two ratios is the larger one for all j from x on, and the second one
    for all before: two cumulative sums.
    """
    possible = (own > 0) & (mixture > 0)
    lost_own, lost_mixture = float(own[~possible].sum()), float(mixture[~possible].sum())
    order = np.argsort(own[possible] / mixture[possible])
    own, mixture = own[possible][order], mixture[possible][order]
    own_from_here = np.cumsum(own[::-1])[::-1] + lost_own
    mixture_before = np.cumsum(mixture) - mixture + lost_mixture
    return min(1.0, float((1.0 / (own_from_here / own + mixture_before / mixture)).sum()))


def rates(judged: Sequence[Judged]) -> tuple[float, float, float]:
    """Shares of positions where the draft of device, of cloud, and of both were the target."""
    device, cloud = zip(*(each.accepted for each in judged), strict=True)
    return fmean(device), fmean(cloud), fmean(map(all, zip(device, cloud, strict=True)))


def expected(judged: Sequence[Judged]) -> tuple[float, float]:
    device, cloud = zip(*(each.expected for each in judged), strict=True)
    return fmean(device), fmean(cloud)


def gathered(answers: Sequence[JudgedAnswer], case: Case, sampler: str) -> list[Judged]:
    return [judged for answer in answers if answer.case == case for judged in answer.judged[sampler]]


def cases(answers: Sequence[JudgedAnswer]) -> list[Case]:
    return list(dict.fromkeys(answer.case for answer in answers))


def show(answers: Sequence[JudgedAnswer]) -> Table:
    """A row for each case: how far apart both sides are, and what became of the drafts by sampler."""
    of_case = grouped(answers, lambda answer: answer.case)
    columns: dict[str, Callable[[Case], str]] = {
        "positions": lambda case: str(sum(len(answer.distances) for answer in of_case[case])),
        "mean total variation": lambda case: f"{_mean(answer.distances for answer in of_case[case]):.3f}",
        "mean entropy, nats": lambda case: f"{_mean(answer.entropies for answer in of_case[case]):.2f}",
        **{sampler: partial(_told, answers, sampler, rates) for sampler in SAMPLERS},
    }
    return _table(answers, columns)


def show_expected(answers: Sequence[JudgedAnswer]) -> Table:
    """The probabilities that the outcomes had."""
    return _table(answers, {sampler: partial(_told, answers, sampler, expected) for sampler in SAMPLERS})


def _table(answers: Sequence[JudgedAnswer], columns: Mapping[str, Callable[[Case], str]]) -> Table:
    rows = {(case.name, f"{case.temperature:g}"): case for case in cases(answers)}
    return Table.crossed(["distributions", "temperature"], rows, columns, lambda case, tell: tell(case))


def _told(
    answers: Sequence[JudgedAnswer], sampler: str, of: Callable[[Sequence[Judged]], Sequence[float]], case: Case
) -> str:
    return " / ".join(f"{share:.2f}" for share in of(gathered(answers, case, sampler)))


def _mean(values: Iterable[Sequence[float]]) -> float:
    return fmean(chain.from_iterable(values))


def write_records(answers: Sequence[JudgedAnswer], folder: Path) -> list[Path]:
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
            name = f"{short} {case.name} temperature {case.temperature:g}"
            path = folder / f"{name.replace(',', '').replace(' ', '-')}.json"
            path.write_text(json.dumps(record) + "\n")
            written.append(path)
    return written


def draw(answers: Sequence[JudgedAnswer], results: Results) -> None:
    """One column per number of documents, over the temperature; one for synthetic distributions, over their entropy.

    Rows: drafts of the device, of the cloud, and positions where both were right.
    """
    found = cases(answers)
    counts = sorted({case.documents for case in found if case.entropy is None})
    panels = [[case for case in found if case.entropy is None and case.documents == count] for count in counts]
    if synthetic_ones := [case for case in found if case.entropy is not None]:
        panels.append(synthetic_ones)
    title = "Share of drafts that are the target, by sampler"
    with results.figure("samplers", len(panels), len(ROWS), title=title) as axes:
        for axis, (index, shown) in zip(axes, product(range(len(ROWS)), panels), strict=True):
            made = shown[0].entropy is not None
            places = [case.entropy if case.entropy is not None else case.temperature for case in shown]
            for number, sampler in enumerate(SAMPLERS):
                shares = [rates(gathered(answers, case, sampler))[index] for case in shown]
                axis.plot(places, shares, label=sampler, **line_style(number))
            if index == 0:
                axis.set_title(f"synthetic, V = {VOCABULARY}, T = 1" if made else shown[0].name)
            if index == len(ROWS) - 1:
                axis.set_xlabel("entropy, nats" if made else "temperature")
            if shown is panels[0]:
                axis.set_ylabel(ROWS[index])
            axis.set_ylim(0, 1.02)
