"""The suite `edgellm`: answers of a target that is larger than its memory, by how drafts for it are made.

The target is the embedded one, inflated: it computes the same, and has to be read and multiplied like a large one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from textwrap import fill
from typing import Any

from common.configuration.settings import EMBEDDED_MODEL
from common.figures import GREY, REFERENCE, bar_style, line_style
from scripts.bench.edgellm.device import Answer
from scripts.bench.edgellm.measure import Bench, Counted, Found, tokens_per_pass
from scripts.bench.edgellm.plan import ALONE, DRAFT_ALONE, FULL, MIB, NATURAL, OURS, SHORT, TEMPERATURES, WAYS, Sizes
from scripts.bench.inflated import inflate
from scripts.bench.measuring import NOTHING, Table, load
from scripts.bench.results import Results

PARTS = ("drafting", "computing", "waiting", "prompt")
NOTE = (
    "Milliseconds per token of whole answers, medians (and all between); then means of their parts: the draft model;"
    " passes of the target without what they waited; waiting for the disk with nothing else to do; the rest is the"
    " prompt. Tokens are the same in all rows but the draft model's. Load {load}."
)


def run(results: Results) -> None:
    """All ways, memory budgets, draft models, and counts by temperature; tables of each, and pictures."""
    sizes = SHORT if results.short else FULL
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(results, sizes, Path(temporary))
        counts = bench.counts()
        results.say("inflating the embedded model")
        inflate(EMBEDDED_MODEL, bench.target, sizes.layers, sizes.inner)
        whole = sum(path.stat().st_size for path in bench.target.glob("*.safetensors"))
        firsts = bench.firsts()
        found = bench.ways()
        drafters = bench.drafters()
        curve = bench.budgets()
    named = f"{whole / MIB:.0f} MiB of weights, read at {sizes.speed:.0f} MB/s, one thread"
    title = f"Answers of a target of {named}, within {sizes.budget / MIB:.0f} MiB"
    results.table(title, show(found), NOTE.format(load=load()))
    results.table(f"{OURS.name}: natural answers about a document that was not read before", show_firsts(firsts))
    results.table("Tokens per pass by temperature", show_counts(counts))
    results.table("Natural answers by draft model", show_drafters(drafters))
    results.table(f"{OURS.name}: natural answers by memory budget", show_budgets(curve))
    reached = lengths(found, sizes)
    results.table(f"{OURS.name}: an answer, by its length", show_lengths(reached))
    results.samples("answers", {", ".join(key): each for key, each in found.items()})
    results.samples("firsts", firsts)
    results.samples("counts", counts)
    results.samples("drafters", drafters)
    results.samples("budgets", {str(budget): each for budget, (_, each) in curve.items()})
    draw_ways(results, found)
    draw_drafters(results, drafters, fmean(one.per_token for one in found[ALONE.name, NATURAL]))
    draw_budgets(results, curve)
    draw_lengths(results, reached, fmean(one.per_token for one in found[ALONE.name, NATURAL]))


def lengths(found: Found, sizes: Sizes) -> dict[int, float]:
    """Milliseconds per token until an answer of the longest task had so many."""
    (longest, *_) = found[OURS.name, "256"]
    return {length: 1e3 * longest.times[length - 1] / length for length in sizes.lengths}


def spread(answers: Sequence[Answer]) -> str:
    """Median, and least and most where there are several."""
    each = [one.per_token for one in answers]
    return f"{median(each):.0f}" + (f" ({min(each):.0f}-{max(each):.0f})" if len(each) > 1 else "")


def parts(answers: Sequence[Answer]) -> list[float]:
    """Means of the answers' parts."""
    return [fmean(each) for each in zip(*(one.parts for one in answers), strict=True)]


def show(found: Found) -> Table:
    """A row for every way and task."""
    rows = []
    for (name, task), answers in found.items():
        tokens = ", ".join(str(len(one.tokens)) for one in answers) if task == NATURAL else task
        row = [name, tokens, str(len(answers)), spread(answers)]
        if name == DRAFT_ALONE:
            rows.append([*row, *[NOTHING] * (len(PARTS) + 1)])
            continue
        drafted = sum(one.drafted for one in answers) / sum(one.passes for one in answers)
        *shares, _ = (f"{part:.0f}" for part in parts(answers))
        rows.append([*row, *shares, f"{tokens_per_pass(answers):.1f}", f"{drafted:.1f}"])
    heads = ["way", "tokens", "answers", "ms per token", *PARTS[:-1], "tokens per pass", "drafts per pass"]
    return Table(heads, rows)


def show_firsts(firsts: Sequence[tuple[Answer, Answer]]) -> Table:
    """A row for every question: the answer that reads the document, and the next one."""
    rows = [
        [str(len(first.tokens)), *(f"{one.seconds:.2f}, {one.passes:.0f}" for one in (first, second))]
        for first, second in firsts
    ]
    return Table(["tokens", "seconds, passes: document not read before", "read before"], rows)


def show_counts(counts: Sequence[Counted]) -> Table:
    """A row for every rule."""
    each = {(one.name, one.temperature): one for one in counts}
    return Table.crossed(
        ["growth"],
        {(one.name,): one.name for one in counts},
        {f"T = {at:g}": at for at in TEMPERATURES},
        lambda name, at: f"{each[name, at].per_pass:.2f}",
    )


def show_drafters(drafters: Mapping[str, Sequence[Answer]]) -> Table:
    """A row for every draft model."""
    rows = [[name, spread(each), f"{tokens_per_pass(each):.1f}"] for name, each in drafters.items()]
    return Table(["draft model", "ms per token", "tokens per pass"], rows)


def show_budgets(curve: Mapping[int, tuple[int, Sequence[Answer]]]) -> Table:
    """A row for every budget."""
    rows = []
    for budget, (stay, answers) in curve.items():
        read = sum(one.read for one in answers) / sum(len(one.tokens) for one in answers)
        rows.append([f"{budget / MIB:.0f} MiB", str(stay), spread(answers), f"{read / 1e6:.0f}"])
    return Table(["budget", "resident layers", "ms per token", "MB read per token"], rows)


def show_lengths(reached: Mapping[int, float]) -> Table:
    """A row for every length."""
    return Table(["tokens", "ms per token"], [[str(length), f"{each:.0f}"] for length, each in reached.items()])


def draw_ways(results: Results, found: Found) -> None:
    """Draws the parts of the time per token, of every way."""
    styles: list[dict[str, Any]] = [*map(bar_style, range(3)), {"color": GREY}]
    ways = [way.name for way in WAYS]
    title = "Where the time per token goes, and tokens per pass (behind the bars)"
    with results.figure("ways", columns=2, title=title) as axes:
        for axis, (task, named) in zip(axes, ((NATURAL, "natural answers"), ("64", "64 tokens")), strict=True):
            places = [place for place, name in enumerate(ways) if (name, task) in found]
            answers = [found[ways[place], task] for place in places]
            shares, below = [parts(each) for each in answers], [0.0] * len(places)
            for number, (part, style) in enumerate(zip(PARTS, styles, strict=True)):
                each = [share[number] for share in shares]
                axis.barh(places, each, left=below, label=part, **style)
                below = [one + other for one, other in zip(below, each, strict=True)]
            for place, whole, each_way in zip(places, below, answers, strict=True):
                axis.annotate(f" {tokens_per_pass(each_way):.1f}", (whole, place), va="center", fontsize=8)
            axis.set(title=named, xlabel="milliseconds per token", xlim=(0, 1.15 * max(below)))
            labels = [fill(name, 18) for name in ways] if axis is axes[0] else [""] * len(ways)
            axis.set_yticks(range(len(ways)), labels, fontsize="small")
            axis.set_ylim(len(ways) - 0.4, -0.6)


def draw_drafters(results: Results, drafters: Mapping[str, Sequence[Answer]], alone: float) -> None:
    """Time per token by draft model."""
    with results.figure("drafters", title="Natural answers by the model that drafts") as (axis,):
        each = [median(one.per_token for one in answers) for answers in drafters.values()]
        bars = axis.bar(list(drafters), each, **bar_style(0))
        axis.bar_label(bars, [f"{tokens_per_pass(answers):.1f} per pass" for answers in drafters.values()], fontsize=8)
        axis.axhline(alone, **REFERENCE, label="target alone, read ahead")
        axis.set_ylabel("milliseconds per token")


def draw_budgets(results: Results, curve: Mapping[int, tuple[int, Sequence[Answer]]]) -> None:
    """Time per token by memory budget."""
    with results.figure("budgets", title=f"Natural answers by memory budget, {OURS.name}") as (axis,):
        each = [median(one.per_token for one in answers) for _, answers in curve.values()]
        axis.plot([budget / MIB for budget in curve], each, **line_style(0))
        axis.set(xlabel="memory budget, MiB", ylabel="milliseconds per token")
        axis.set_ylim(bottom=0)


def draw_lengths(results: Results, reached: Mapping[int, float], alone: float) -> None:
    """Time per token by length."""
    with results.figure("lengths", title=f"An answer by its length, {OURS.name}") as (axis,):
        bars = axis.bar([str(length) for length in reached], list(reached.values()), **bar_style(0))
        axis.bar_label(bars, [f"{each:.0f}" for each in reached.values()], fontsize=8)
        axis.axhline(alone, **REFERENCE, label="target alone, read ahead")
        axis.set(xlabel="tokens", ylabel="milliseconds per token")
