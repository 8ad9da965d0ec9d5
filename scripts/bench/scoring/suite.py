"""Answers under each kind of document weights: right or not, acceptance, latency, and what the scoring costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np

from common.figures import VERMILLION, bar_style
from proto.fields import Side
from scripts.bench.asking import Answer, acceptance_text, check_whole, filled, pair_of
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import NOTHING, Table, median_interval
from scripts.bench.plan import Plan
from scripts.bench.results import Results
from scripts.bench.scoring.training import TrainingPlan, trained
from scripts.bench.workload import WORLD_SEED, Texts
from scripts.daemons import Pair
from scripts.demo_model.world.facts import World
from scripts.demo_model.world.library import LibraryPlan, LibraryQuestion, draw_questions, make_library

QUESTIONS = {"a": "a private fact", "b": "a public fact", "c": "a public fact that depends on a private one"}
UNIFORM = 1e-6  # a scale that leaves no differences
COST = re.compile(
    r"scoring: (\d+) calls of ([\d.]+) ms \(median\), (\d+) outdated ones dropped, "
    r"(\d+) waits of (\d+) ms in all at first tokens, (\d+) waits of (\d+) ms in all at later ones"
)


# Steps that both daemons are made to keep: on a processor that both daemons and the scorers share, they leave the
# scorers the time that they have where each has its own.
FULL = Plan(questions=12, periods=(2, 4, 8), steps=((40.0, 40.0),), tokens=32, seed=5)
SHORT = replace(FULL, questions=2, periods=(4,), steps=((1.0, 1.0),), tokens=24)
LIBRARY, SHORT_LIBRARY = LibraryPlan(), LibraryPlan(12, 2, 12)
TRAINING, SHORT_TRAINING = TrainingPlan(), TrainingPlan(steps=2)


@dataclass(frozen=True, slots=True)
class Weights:
    """A scorer, and the flags that choose it."""

    name: str
    flags: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cost:
    """A daemon's account of its scoring when it stops; milliseconds."""

    calls: int
    call_ms: float
    dropped: int
    first_waits: int
    first_ms: int
    waits: int
    wait_ms: int

    @classmethod
    def read(cls, log: Path) -> Cost | None:
        """Read the cost from the log; None where the scorer reports none."""
        found = COST.search(log.read_text())
        if found is None:
            return None
        calls, call_ms, *others = found.groups()
        return cls(int(calls), float(call_ms), *map(int, others))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Answer):
    """One answer to a question of this type."""

    type: str
    right: bool


@dataclass(frozen=True, slots=True)
class Found:
    """All answers under one kind of weights."""

    weights: Weights
    answers: list[Answered]
    costs: dict[Side, Cost | None]

    @property
    def told(self) -> list[Cost]:
        """Of the daemons whose scorer reports any."""
        return [cost for cost in self.costs.values() if cost is not None]

    def right(self, type_: str) -> float:
        """Share of right answers to the questions of a type."""
        return fmean(answer.right for answer in self.answers if answer.type == type_)

    @property
    def waits(self) -> float:
        """At later tokens than the first, of both daemons, per answer."""
        return sum(cost.waits for cost in self.told) / len(self.answers)


def run(results: Results) -> None:
    plan, size, training = (SHORT, SHORT_LIBRARY, SHORT_TRAINING) if results.short else (FULL, LIBRARY, TRAINING)
    folder = results.folder / f"cross-encoder-{training.steps}"  # a short run's is no use for a long one
    cross_encoder = trained(folder, training, results)
    choices = chosen(plan, cross_encoder, results.short)
    found = measure(plan, size, choices, results)
    results.table(
        f"Document weights: {len(found[0].answers)} questions on {size.kinds * size.entities_per_kind}"
        f" public and about {size.private_facts} private facts, {plan.steps[0][0]:g} ms per decode step",
        show(found),
        "a, b, c: questions for a private fact, a public one, and a public one that depends on a private one. Waits are"
        " of both daemons together, per answer. The small cross-encoder knows the world's sentences, not its names.",
    )
    results.samples("answers", found)
    draw(results, found)


def chosen(plan: Plan, cross_encoder: Path, short: bool) -> list[Weights]:
    """The scorers that are compared."""
    slow = {"scorer": "cross-encoder"}
    both = {"bi-encoder": slow, "small cross-encoder": slow | {"scorer_model": str(cross_encoder)}}
    periodic = [
        Weights(f"{name}, n = {period}", flags | {"scorer_period": period})
        for name, flags in both.items()
        for period in plan.periods
    ]
    if short:
        return periodic[-1:]
    return [
        Weights("uniform", {"scorer": "static", "scorer_scale": UNIFORM}),
        Weights("static", {"scorer": "static"}),
        Weights("lexical", {"scorer": "lexical"}),
        *periodic,
    ]


def measure(plan: Plan, size: LibraryPlan, choices: Sequence[Weights], results: Results) -> list[Found]:
    """Fill both libraries once, then start both daemons with each scorer in turn and ask."""
    world = World(WORLD_SEED, test=True)
    library = make_library(world, size)
    questions = draw_questions(world, library, plan.questions)
    found = []
    with filled(Texts.of(library, questions)) as data:
        for weights in choices:
            results.say(weights.name)
            found.append(_measured(plan, weights, questions, data))
    return found


def _measured(plan: Plan, weights: Weights, questions: Sequence[LibraryQuestion], data: Path) -> Found:
    device, cloud = ({**weights.flags, "emulate_decode_ms": step} for step in plan.steps[0])
    with pair_of(data, device, cloud) as pair:
        for question in questions:  # reads the documents of every question once
            pair.complete(question.question, max_tokens=1)
        answers = [_ask(pair, question, plan) for question in questions]
    costs: dict[Side, Cost | None] = {side: Cost.read(data / f"{side}.log") for side in SIDES}
    return Found(weights, answers, costs)


def _ask(pair: Pair, question: LibraryQuestion, plan: Plan) -> Answered:
    response = pair.complete(question.question, temperature=0.0, seed=plan.seed, max_tokens=plan.tokens)
    check_whole(response["dragon"], question.question)
    right = response["choices"][0]["message"]["content"].strip() == question.answer.strip()
    return Answered(mode="", report=response["dragon"], type=question.type, right=right)


def show(found: Sequence[Found]) -> Table:
    columns: dict[str, Callable[[Found], object]] = {
        "weights": lambda one: one.weights.name,
        "exact match a / b / c": lambda one: " / ".join(f"{one.right(type_):.2f}" for type_ in QUESTIONS),
        "acceptance device / cloud": lambda one: acceptance_text(one.answers),
        "per token, ms": lambda one: f"{median(answer.per_token for answer in one.answers):.1f}",
        "first token, ms": lambda one: f"{median(answer.ttft for answer in one.answers):.0f}",
        "a scoring call, ms": lambda one: f"{fmean(cost.call_ms for cost in one.told):.0f}" if one.told else NOTHING,
        "waits per answer": lambda one: f"{one.waits:.1f}" if one.told else NOTHING,
    }
    return Table.of(found, columns)


def draw(results: Results, found: Sequence[Found]) -> None:
    """Right answers and latency, side by side."""
    places = np.arange(len(found))
    title = "Answers by document weights; colours: what the question asks for"
    with results.figure("answers", columns=2, title=title) as (left, right):
        for offset, (type_, asked) in enumerate(QUESTIONS.items()):
            shares = [one.right(type_) for one in found]
            left.barh(places + 0.27 * (offset - 1), shares, height=0.25, label=asked, **bar_style(offset))
        left.set(title="right to the letter", xlabel="share of answers", xlim=(0, 1))
        taken = [[answer.per_token for answer in one.answers] for one in found]
        right.boxplot(
            taken,
            positions=places,
            orientation="horizontal",
            notch=True,
            conf_intervals=[median_interval(times) for times in taken],
            medianprops={"color": VERMILLION},
        )
        right.set(title="latency", xlabel="ms per token after the first\n(notches: 95 % interval of the median)")
        right.set_xlim(left=0)
        left.set_yticks(places, [one.weights.name for one in found])
        right.set_yticks(places, [""] * len(found))
        for axis in (left, right):
            axis.invert_yaxis()
