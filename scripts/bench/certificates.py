"""The suite `certificates`: how often K entries are not enough, how many would be, and what guessing would cost.

Each side's list names its K fastest tokens. A certificate fails when a token could win that both lists together don't
rule out. Then the device looks its own values up, which costs nothing, and asks the cloud if that was not enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import fmean

import numpy as np

from common.aggregation.race import RaceAggregation
from common.drawing import line_style
from common.sampling.certificate import Certified, certify, lower_bound_winner
from common.session.values import LackingRemote
from scripts.bench.codecs import answers, share
from scripts.bench.measuring import Table
from scripts.bench.plan import Plan
from scripts.bench.positions import DISAGREEMENT, Position, race_sampler, synthetic
from scripts.bench.results import Results
from scripts.bench.workload import Demonstration

NEEDED = "K needed: 50 / 99 / 99.9 / 100 %"


FULL = Plan(
    entries=(4, 8, 16, 32, 64, 128),
    temperatures=(0.0, 0.3, 0.7, 1.0),
    questions=30,
    tokens=48,
    vocabularies=(151_936,),
    entropies=(3.0, 5.0, 7.0),
    disagreements=(DISAGREEMENT, 1.5),  # total variation 0.33 and 0.7
    positions=300,
    seed=47,
)
SHORT = replace(
    FULL,
    entries=(4, 64),
    temperatures=(0.0, 1.0),
    questions=1,
    tokens=6,
    vocabularies=(2000,),
    entropies=(5.0,),
    positions=6,
)


@dataclass(frozen=True, slots=True)
class Tried:
    """One position with one K."""

    failed: bool  # both lists together certify no token
    asks: bool  # the device, which looks its own values up, lacks one of the cloud's
    wrong: bool  # the token with the highest lower bound is not the target


@dataclass(frozen=True, slots=True)
class Measured:
    """All positions of one source."""

    source: str
    distances: list[float]  # total variation between both sides
    tried: dict[int, list[Tried]]  # by K
    needed: list[int]  # the smallest K with a certificate


def run(results: Results, demonstration: Demonstration | None = None) -> None:
    plan = SHORT if results.short else FULL
    demonstration = demonstration or Demonstration(plan.questions)
    measured = []
    for name, positions in sources(plan, demonstration):
        results.say(name)
        measured.append(measure(name, positions, plan.entries))
    note = "Failed: both lists certify no token / the device has to ask the cloud / the lower-bound winner is wrong."
    results.table("Certificates by K", show(measured), note)
    results.samples("certificates", {"plan": plan.sizes(), "measured": [asdict(each) for each in measured]})
    draw(measured, results)


def sources(plan: Plan, demonstration: Demonstration) -> Iterator[tuple[str, Iterator[Position]]]:
    for temperature in plan.temperatures:
        name = f"embedded model, T = {temperature:g}"
        yield name, answers(demonstration, temperature, plan.questions, plan.tokens, plan.seed)
    for vocabulary, disagreement, entropy in product(plan.vocabularies, plan.disagreements, plan.entropies):
        name = f"synthetic, V = {vocabulary}, {entropy:g} nats, disagreement {disagreement:g}"
        yield name, synthetic(vocabulary, entropy, plan.positions, plan.seed, disagreement)


def measure(source: str, positions: Iterator[Position], entries: Sequence[int]) -> Measured:
    tried: dict[int, list[Tried]] = {count: [] for count in entries}
    needed, distances = [], []
    for position in positions:
        target = position.target()
        distances.append(position.total_variation)
        for count in entries:
            tried[count].append(attempt(position, count, target))
        needed.append(entries_needed(position))
    return Measured(source, distances, tried, needed)


def attempt(position: Position, entries: int, target: int) -> Tried:
    """Try a position with so many entries of each side."""
    sampler = race_sampler(position, entries)
    device, cloud = (sampler.draft(position.index, probabilities) for probabilities in position.both)
    received = sampler.receive(position.index, cloud.entries)
    aggregation = RaceAggregation(sampler, len(position.device), exact=True, hide_ids=True)
    decided = aggregation.aggregate("device", position.index, device, received, position.evidence)
    eta = position.eta_device
    return Tried(
        failed=not isinstance(certify(device, cloud, eta), Certified),
        asks=isinstance(decided, LackingRemote),
        wrong=lower_bound_winner(device, cloud, eta) != target,
    )


def entries_needed(position: Position) -> int:
    """The smallest K with which both lists certify the target. Longer lists know more: more never fails again."""

    def certified(entries: int) -> bool:
        sampler = race_sampler(position, entries)
        device, cloud = (sampler.draft(position.index, probabilities) for probabilities in position.both)
        return isinstance(certify(device, cloud, position.eta_device), Certified)

    high = 1
    while not certified(high):
        high *= 2
    low = high // 2  # fails, or 0
    while high - low > 1:
        middle = (low + high) // 2
        if certified(middle):
            high = middle
        else:
            low = middle
    return high


def show(measured: Sequence[Measured]) -> Table:
    counts = list(measured[0].tried)
    rows = []
    for each in measured:
        middle, most, almost = np.percentile(each.needed, (50, 99, 99.9))
        cells = [
            " / ".join(share([getattr(one, name) for one in each.tried[count]]) for name in ("failed", "asks", "wrong"))
            for count in counts
        ]
        needed = f"{middle:.0f} / {most:.0f} / {almost:.0f} / {max(each.needed)}"
        rows.append([each.source, len(each.needed), f"{fmean(each.distances):.2f}", *cells, needed])
    heads = ["distribution", "positions", "total variation", *(f"K = {count}" for count in counts), NEEDED]
    return Table(heads, rows)


def draw(measured: Sequence[Measured], results: Results) -> None:
    """Failures and wrong guesses over K, and how many entries are needed: a row for each kind of distributions."""
    rows: dict[str, list[Measured]] = {}
    for each in measured:
        rows.setdefault(each.source.partition(", ")[0], []).append(each)
    with results.figure("entries", 3, len(rows), title="Are each side's K fastest tokens enough?") as axes:
        for place, (kind, shown) in enumerate(rows.items()):
            failures, errors, needed = axes[3 * place : 3 * place + 3]
            for number, each in enumerate(shown):
                style, counts = line_style(number), list(each.tried)
                label = each.source.partition(", ")[2].replace(", disagreement", ",\ndisagreement")
                failed = [100 * fmean(one.failed for one in each.tried[count]) for count in counts]
                wrong = [100 * fmean(one.wrong for one in each.tried[count]) for count in counts]
                failures.plot(counts, failed, label=label, **style)
                errors.plot(counts, wrong, label=label, **style)
                ordered = np.sort(each.needed)
                at_least = 100 * (1 - np.arange(len(ordered)) / len(ordered))
                needed.step(ordered, at_least, where="post", label=label, **style | {"marker": ""})
            failures.set_ylabel(f"{kind}\ncertificates that fail, %")
            errors.set_ylabel("wrong tokens without asking, %")
            needed.set_ylabel("positions that need K or more, %")
            needed.set_yscale("log")
            needed.yaxis.set_major_formatter("{x:g}")
            for axis in (failures, errors):
                axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))  # where nothing fails, the scale shows no thousandths
            for axis in (failures, errors, needed):
                axis.set_xscale("log", base=2)
                axis.xaxis.set_major_formatter("{x:g}")
        for axis in axes[-3:]:
            axis.set_xlabel("K, entries of each side's list")
