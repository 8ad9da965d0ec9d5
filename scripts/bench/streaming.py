"""The suite `streaming`: passes over a model that is larger than its memory, by speed of the disk.

The model is the embedded one, inflated: it computes the same, and has to be read and multiplied like a large one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from common.drawing import bar_style
from common.kv.memory import Rows
from common.model.decoder import Decoder
from common.model.packed import Item
from common.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.weights.plan import Streaming
from common.weights.store import Waiting
from scripts.bench.inflated import inflate
from scripts.bench.measuring import SPREADS, Spread, Table, load
from scripts.bench.results import Results

DRAFT = EMBEDDED_MODEL.parent / "draft"
PROMPT, RESERVE = 64, 256  # tokens
KV_BYTES = 2**25
TREE = tuple((node - 1) // 2 for node in range(16))  # parents: a token, and two children of each


@dataclass(frozen=True, slots=True)
class Sizes:
    """Layers of the inflated model and the width of their feed-forward parts; the budget; disks in bytes per second."""

    layers: int
    inner: int
    budget: int
    speeds: tuple[float | None, ...]
    rounds: int


FULL = Sizes(32, 5036, 2**27, (2e8, None), 9)  # 507 MiB
SHORT = Sizes(12, 704, 60 * 2**20, (4e8, None), 2)


@dataclass
class Taken:
    """Samples of one way to hold the weights: seconds of passes over one token and over a tree, what share of them was
    spent waiting, and steps of the draft model meanwhile.
    """

    resident: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"token": [], "tree": []})
    waited: dict[str, list[float]] = field(default_factory=lambda: {"token": [], "tree": []})
    drafted: list[int] = field(default_factory=list)


NOTE = (
    f"Milliseconds, {SPREADS}; load {{load}}. `waiting`: share of the time in which there was nothing to do; `drafts`:"
    " steps of the draft model per pass."
)
WAYS = ("when needed", "ahead", "ahead, drafting meanwhile")


def run(results: Results) -> None:
    """Passes one after the other, in every way of holding the weights."""
    sizes = SHORT if results.short else FULL
    with tempfile.TemporaryDirectory() as temporary:
        results.say("inflating the embedded model")
        folder = inflate(EMBEDDED_MODEL, Path(temporary), sizes.layers, sizes.inner)
        whole = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        results.say("all of it in memory")
        taken, expected = measure(_loaded(folder, None), sizes.rounds, None)
        samples = {"in memory": taken}
        for speed in sizes.speeds:
            for way in WAYS:
                name = f"{'the disk itself' if speed is None else f'{speed / 1e6:.0f} MB/s'}, {way}"
                results.say(name)
                streaming = Streaming(sizes.budget, bytes_per_second=speed, read_ahead=way != WAYS[0])
                draft = Decoder.load(str(DRAFT), tokenizer=str(EMBEDDED_TOKENIZER)) if way == WAYS[2] else None
                taken, logits = measure(_loaded(folder, streaming), sizes.rounds, draft)
                if not all(torch.equal(one, other) for one, other in zip(logits, expected, strict=True)):
                    raise RuntimeError(f"{name}: streaming changed what the model computes")
                samples[name] = taken
    title = f"Passes over {whole / 2**20:.0f} MiB of weights within {sizes.budget / 2**20:.0f} MiB, one thread"
    results.table(title, show(samples), NOTE.format(load=load()))
    results.samples(
        "seconds",
        {
            name: {
                "resident": taken.resident,
                "seconds": taken.seconds,
                "waited": taken.waited,
                "drafts": taken.drafted,
            }
            for name, taken in samples.items()
        },
    )
    draw(results, samples)


def _loaded(folder: Path, streaming: Streaming | None) -> Decoder:
    return Decoder.load(
        str(folder),
        tokenizer=str(EMBEDDED_TOKENIZER),
        threads=1,
        document_cache_bytes=0,
        kv_bytes=KV_BYTES,
        streaming=streaming,
        dtype="float32",
    )


def measure(decoder: Decoder, rounds: int, draft: Decoder | None) -> tuple[Taken, list[torch.Tensor]]:
    """Time passes over one token and over a tree, and give their logits; the decoder is closed."""
    taken = Taken(len(decoder.layout.layers) if decoder.streamed is None else decoder.streamed.first)
    rows, _ = decoder.open([[]], list(range(2, 2 + PROMPT)), RESERVE)
    drafting = None if draft is None else _drafting(draft, taken)
    logits: list[torch.Tensor] = []
    for number in range(rounds + 1):
        for kind, parents in (("token", (-1,)), ("tree", TREE)):
            steps = len(taken.drafted)
            item = Item(rows, [2 + number + node for node in range(len(parents))], len(parents), parents)
            before = 0.0 if decoder.streamed is None else decoder.streamed.counters.waited
            started = time.perf_counter()
            logits.append(decoder.forward([item], None, drafting))
            seconds = time.perf_counter() - started
            rows.crop(0)
            if number:  # the first round warms up
                waited = 0.0 if decoder.streamed is None else decoder.streamed.counters.waited - before
                taken.seconds[kind].append(seconds)
                taken.waited[kind].append(waited / seconds)
            else:
                del taken.drafted[steps:]
    decoder.close()
    return taken, logits


def _drafting(draft: Decoder, taken: Taken) -> Waiting:
    rows, _ = draft.open([[]], list(range(2, 2 + PROMPT)), RESERVE)

    def step() -> bool:
        _step(draft, rows)
        taken.drafted.append(1)
        return True

    return step


def _step(draft: Decoder, rows: Rows) -> None:
    if rows.answer == RESERVE:
        rows.crop(0)
    draft.step(rows, [5])


def show(samples: dict[str, Taken]) -> Table:
    """A row for every way of holding the weights."""
    rows = []
    for name, taken in samples.items():
        times = [Spread.of([1e3 * value for value in taken.seconds[kind]]).text(0) for kind in ("token", "tree")]
        waits = [f"{Spread.of(taken.waited[kind]).median:.0%}" for kind in ("token", "tree")]
        passes = sum(len(each) for each in taken.seconds.values())
        drafts = f"{len(taken.drafted) / passes:.1f}" if taken.drafted else "-"
        rows.append([name, str(taken.resident), times[0], waits[0], times[1], waits[1], drafts])
    heads = ["weights are read", "resident layers", "a token", "waiting", f"a tree of {len(TREE)}", "waiting", "drafts"]
    return Table(heads, rows)


def draw(results: Results, samples: dict[str, Taken]) -> None:
    """Bars of medians with the 10th to 90th percentile."""
    title = "A pass over a model that is larger than its memory: medians, 10th to 90th percentile"
    with results.figure("passes", columns=2, title=title) as axes:
        for axis, (kind, named) in zip(axes, (("token", "a token"), ("tree", f"a tree of {len(TREE)}")), strict=True):
            spreads = [Spread.of([1e3 * value for value in taken.seconds[kind]]) for taken in samples.values()]
            _bars(axis.bar, [name.replace(", ", "\n") for name in samples], spreads)
            axis.set_title(named)
            axis.tick_params(axis="x", labelrotation=60)
        axes[0].set_ylabel("milliseconds per pass")


def _bars(bar: Callable[..., object], names: Sequence[str], spreads: Sequence[Spread]) -> None:
    medians = [spread.median for spread in spreads]
    below = [spread.median - spread.low for spread in spreads]
    above = [spread.high - spread.median for spread in spreads]
    bar(names, medians, yerr=[below, above], capsize=3, **bar_style(0))
