"""The suite `edgellm`: answers of a target that is larger than its memory, by how drafts for it are made.

The target is the embedded one, inflated: it computes the same, and has to be read and multiplied like a large one.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common.methods.catalog import METHODS
from common.runtime.side import SideRuntime
from common.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from device.engine import DeviceEngine
from device.interface import Finished, TokenEvent
from device.settings import DeviceSettings
from scripts.bench.inflated import inflate
from scripts.bench.measuring import Table, load
from scripts.bench.results import Results
from scripts.bench.workload import Texts

SEED = 7
KV_BYTES = 2**25  # of the target
DOCUMENTS = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """Layers of the inflated model and the width of their feed-forward parts, and its budget; how fast it is read, in
    megabytes per second; tokens of answers, the shortest first; questions; budgets of a curve.
    """

    layers: int
    inner: int
    budget: int
    speed: float
    lengths: tuple[int, ...]
    questions: int
    budgets: tuple[int, ...] = ()


FULL = Sizes(32, 5036, 2**27, 300.0, (16, 64, 128), 1, (2**27, 2**28, 3 * 2**27))  # 507 MiB
SHORT = Sizes(12, 704, 88 * 2**20, 400.0, (4, 8), 1)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to answer."""

    name: str
    fields: dict[str, Any]
    lengths: int  # that are measured, the shortest first: slow ones take their time
    read_ahead: bool = True


# What the paper compares: Std and SPL (target alone), SP and SI (trees of fixed shape), EdgeLLM in two steps.
WAYS = (
    Way("target alone, read when needed", {"growth": "none"}, 1, read_ahead=False),
    Way("target alone, read ahead", {"growth": "none"}, 1),
    Way("chain of 6", {"growth": "chain", "ahead": False}, 2),
    Way("4 branches of 6", {"growth": "width", "ahead": False}, 2),
    Way("adaptive", {"ahead": False}, 2),
    Way("adaptive, drafting meanwhile", {}, 3),
)
ALONE = "draft model alone"


@dataclass
class Answer:
    """Figures of one answer; all but the counts in seconds."""

    tokens: list[int]
    seconds: float
    ttft: float
    passes: float = 0.0
    drafted: float = 0.0
    kept: float = 0.0
    waited: float = 0.0
    verifying: float = 0.0  # with what it waited, without what was drafted then
    drafting: float = 0.0  # not during a verification
    read: float = 0.0  # bytes

    @property
    def per_token(self) -> float:
        """Milliseconds per token, those of the prompt included."""
        return 1e3 * self.seconds / len(self.tokens)


@dataclass
class Device:
    """A device in this process, without a cloud."""

    settings: DeviceSettings
    side: SideRuntime = field(init=False)
    engine: DeviceEngine = field(init=False)

    def __post_init__(self) -> None:
        self.side = SideRuntime("device", self.settings, draft=self.settings.draft, verifying=self.settings.verifying)
        self.engine = DeviceEngine(self.settings, self.side)

    def ask(self, question: str, length: int, **fields: Any) -> Answer:
        """An answer of exactly `length` tokens: the end of the sequence is forbidden."""
        chosen: dict[str, Any] = {
            "method": "edgellm",
            "sources": "device",
            "seed": SEED,
            "documents": DOCUMENTS,
        } | fields
        never = dict.fromkeys(self.side.eos, -100.0)
        kind = METHODS[chosen["method"]].request
        prompt = f"\nQuestion: {question}\nAnswer:"
        request = kind(question=question, prompt=prompt, max_tokens=length, logit_bias=never, **chosen)
        *events, last = self.engine.generate(request)
        assert isinstance(last, Finished)
        tokens = [event.token for event in events if isinstance(event, TokenEvent)]
        report, figures = last.report, last.report.figures
        answer = Answer(tokens, report.seconds, report.ttft)
        if figures:
            answer.passes, answer.drafted = figures["rounds"], float(report.device.drafted)
            answer.kept, answer.waited, answer.read = (
                figures[name] for name in ("kept_ahead", "waited_seconds", "read_bytes")
            )
            answer.verifying = figures["rounds"] * figures["verify_ms"] / 1e3
            step = figures["draft_seconds"] / max(answer.drafted, 1)
            answer.drafting = (answer.drafted - figures["drafted_ahead"]) * step
            answer.verifying -= figures["drafted_ahead"] * step
        return answer


@contextmanager
def device(data: Path, texts: Texts, **changes: Any) -> Iterator[Device]:
    """A device with the texts' private documents."""
    chosen: dict[str, Any] = {
        "cloud": None,
        "model": str(EMBEDDED_DRAFT),
        "tokenizer": str(EMBEDDED_TOKENIZER),
        "draft_model": str(EMBEDDED_DRAFT),
        "dtype": "float32",
        "threads": 1,
        "documents": DOCUMENTS,
        "document_store_bytes": 0,
        "scorer": "static",
        "kv_bytes": KV_BYTES,
    }
    running = Device(DeviceSettings(data=data, **(chosen | changes)))
    try:
        if not running.side.library.count:
            notes = data / "notes"
            notes.mkdir(exist_ok=True)
            for number, text in enumerate(texts.documents["device"]):
                (notes / f"{number:03}.md").write_text(text + "\n")
            running.side.library.add(notes)
        running.engine.start(None)
        yield running
    finally:
        running.engine.close()
        running.side.close()


def run(results: Results) -> None:
    """All ways, then the best one with more memory."""
    sizes = SHORT if results.short else FULL
    texts = Texts.draw_joint(sizes.questions)
    with tempfile.TemporaryDirectory() as temporary:
        results.say("inflating the embedded model")
        folder = inflate(EMBEDDED_MODEL, Path(temporary) / "target", sizes.layers, sizes.inner)
        whole = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        found = measure(results, sizes, texts, Path(temporary) / "device", folder)
        check(found)
        named = f"{whole / 2**20:.0f} MiB of weights, read at {sizes.speed:.0f} MB/s, one thread"
        title = f"Answers of a target of {named}, within {sizes.budget / 2**20:.0f} MiB"
        results.table(title, show(found), NOTE.format(load=load()))
        curve = more_memory(results, sizes, texts, Path(temporary) / "device", folder)
        if curve:
            results.table(
                f"{WAYS[-1].name}: answers of {sizes.lengths[0]} tokens by memory budget",
                show_curve(curve),
            )
    results.samples(
        "answers", {f"{name}, {length}": [asdict(one) for one in each] for (name, length), each in found.items()}
    )
    results.samples("budgets", {str(budget): asdict(one) for budget, (_, one) in curve.items()})


Found = dict[tuple[str, int], list[Answer]]  # by way and length


def measure(results: Results, sizes: Sizes, texts: Texts, data: Path, folder: Path) -> Found:
    """The answers of all ways."""
    found: Found = {}
    target = {"local_target": str(folder), "memory_budget": sizes.budget, "emulate_read_mbps": sizes.speed}
    for read_ahead in (False, True):
        with device(data, texts, **target, read_ahead=read_ahead) as running:
            running.ask(texts.questions[0], 4)  # documents are read, and compiled parts compiled
            for way in WAYS:
                if way.read_ahead != read_ahead:
                    continue
                results.say(way.name)
                for length in sizes.lengths[: way.lengths]:
                    asked = texts.questions
                    found[way.name, length] = [running.ask(one, length, **way.fields) for one in asked]
    results.say(ALONE)
    with device(data, texts) as running:
        for length in sizes.lengths:
            alone = [running.ask(one, length, method="speculative") for one in texts.questions]
            found[ALONE, length] = alone
    return found


def check(found: Found) -> None:
    """Whatever drafts, tokens are the target's. Raises `RuntimeError`."""
    longest: dict[int, list[int]] = {}
    for (name, length), answers in sorted(found.items(), key=lambda each: -each[0][1]):
        for question, answer in enumerate(answers):
            known = longest.setdefault(question, answer.tokens) if name != ALONE else answer.tokens
            if answer.tokens != known[:length]:
                raise RuntimeError(f"{name}: other tokens than the target's")


def more_memory(
    results: Results, sizes: Sizes, texts: Texts, data: Path, folder: Path
) -> dict[int, tuple[int, Answer]]:
    """Layers that stay, and an answer, by budget."""
    found = {}
    for budget in sizes.budgets:
        results.say(f"{budget / 2**20:.0f} MiB")
        target = {"local_target": str(folder), "memory_budget": budget, "emulate_read_mbps": sizes.speed}
        with device(data, texts, **target) as running:
            running.ask(texts.questions[0], 4)
            local = running.side.local_target
            assert local is not None
            streamed = local.decoder.streamed
            stay = sizes.layers if streamed is None else streamed.first
            found[budget] = stay, running.ask(texts.questions[0], sizes.lengths[0])
    return found


NOTE = (
    "Milliseconds per token of whole answers, and of them: the draft model; passes of the target without what they"
    " waited; waiting for the disk with nothing else to do; the rest is the prompt. `kept`: steps of the draft model"
    " during passes that the next tree began with. Tokens are the same in all rows but the draft model's. Load {load}."
)
HEADS = ["", "tokens", "ms per token", "drafting", "computing", "waiting", "tokens per pass", "drafts per pass", "kept"]


def show(found: Found) -> Table:
    """A row for every way and length."""
    rows = []
    for (name, length), answers in found.items():
        passes = sum(one.passes for one in answers)
        tokens = length * len(answers)
        parts = ["-"] * 6
        if passes:
            drafting, waiting = (sum(getattr(one, part) for one in answers) for part in ("drafting", "waited"))
            computing = max(0.0, sum(one.verifying for one in answers) - waiting)
            kept = sum(one.kept for one in answers)
            drafted = sum(one.drafted for one in answers)
            parts = [f"{1e3 * part / tokens:.0f}" for part in (drafting, computing, waiting)]
            parts += [f"{tokens / passes:.1f}", f"{drafted / passes:.1f}", f"{kept:.0f}"]
        rows.append([name, str(length), f"{statistics.fmean(one.per_token for one in answers):.0f}", *parts])
    return Table(HEADS, rows)


def show_curve(curve: dict[int, tuple[int, Answer]]) -> Table:
    """A row for every budget."""
    rows = [
        [f"{budget / 2**20:.0f} MiB", str(stay), f"{one.per_token:.0f}", f"{one.read / 1e6 / len(one.tokens):.0f}"]
        for budget, (stay, one) in curve.items()
    ]
    return Table(["budget", "resident layers", "ms per token", "MB read per token"], rows)
