"""A device without a cloud, in this process, whose answers two models of its own make."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_TOKENIZER
from common.daemon.side import SideRuntime
from common.methods.catalog import METHODS
from common.methods.trees.machine.times import TreeTimes
from device.engine import DeviceEngine
from device.interface import Finished, TokenEvent
from device.settings import DeviceSettings
from scripts.bench.edgellm.plan import MIB, Task
from scripts.bench.workload import Texts
from scripts.generations import Iterated

SEED: Final = 7
KV_BYTES: Final = 32 * MIB  # of the target
DOCUMENTS: Final = 1
WARM: Final = Task(4)


@dataclass
class Answer:
    """Figures of one answer; all but the counts in seconds."""

    tokens: list[int]
    seconds: float
    times: list[float]  # at which each token was there
    passes: float = 0.0
    drafted: float = 0.0
    nodes: float = 0.0  # that were verified
    kept: float = 0.0
    waited: float = 0.0
    verifying: float = 0.0  # with what it waited, without what was drafted then
    drafting: float = 0.0  # not during a verification
    read: float = 0.0  # bytes

    @property
    def per_token(self) -> float:
        """Milliseconds per token, those of the prompt included."""
        return 1e3 * self.seconds / len(self.tokens)

    @property
    def parts(self) -> tuple[float, float, float, float]:
        """Milliseconds per token: the draft model, passes without what they waited, waiting, the prompt."""
        computing = max(0.0, self.verifying - self.waited)
        rest = max(0.0, self.seconds - self.drafting - computing - self.waited)
        drafting, computing, waiting, prompt = (
            1e3 * part / len(self.tokens) for part in (self.drafting, computing, self.waited, rest)
        )
        return drafting, computing, waiting, prompt


class Known(TreeTimes):
    """Times that nothing changes."""

    def drafted(self, seconds: float) -> None:
        """As known."""

    def verified(self, nodes: int, seconds: float) -> None:
        """As known."""


@dataclass
class Device:
    """A running device."""

    settings: DeviceSettings
    side: SideRuntime = field(init=False)
    engine: DeviceEngine = field(init=False)

    def __post_init__(self) -> None:
        self.side = SideRuntime("device", self.settings, draft=self.settings.draft, verifying=self.settings.verifying)
        self.engine = DeviceEngine(self.settings, self.side)

    def ask(self, question: str, task: Task, **fields: Any) -> Answer:
        """An answer; where it must not end by itself, the end of the sequence is forbidden."""
        chosen: dict[str, Any] = {
            "method": "edgellm",
            "sources": "device",
            "seed": SEED,
            "documents": DOCUMENTS,
        } | fields
        if not task.end:
            chosen["logit_bias"] = dict.fromkeys(self.side.eos, -100.0)
        kind = METHODS[chosen["method"]].request
        prompt = f"\nQuestion: {question}\nAnswer:"
        started = time.monotonic()
        tokens, times = [], []
        for event in Iterated(self.engine, kind(question=question, prompt=prompt, max_tokens=task.length, **chosen)):
            if isinstance(event, TokenEvent):
                tokens.append(event.token)
                times.append(time.monotonic() - started)
        assert isinstance(event, Finished)
        report, figures = event.report, event.report.figures
        answer = Answer(tokens, report.seconds, times)
        if figures:
            answer.passes, answer.drafted = figures["rounds"], float(report.device.drafted)
            answer.nodes = figures["nodes_per_round"] * figures["rounds"]
            answer.kept, answer.waited, answer.read = (
                figures[name] for name in ("kept_ahead", "waited_seconds", "read_bytes")
            )
            step = figures["draft_seconds"] / max(answer.drafted, 1)
            answer.drafting = (answer.drafted - figures["drafted_ahead"]) * step
            answer.verifying = figures["rounds"] * figures["verify_ms"] / 1e3 - figures["drafted_ahead"] * step
        return answer

    @property
    def resident(self) -> int | None:
        """Layers of the target that stay in memory; None: all."""
        local = self.side.local_target
        streamed = None if local is None else local.decoder.streamed
        return None if streamed is None else streamed.first


@contextmanager
def device(data: Path, texts: Texts, **changes: Any) -> Iterator[Device]:
    """A device with the texts' private documents; documents are read, and compiled parts compiled."""
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
            notes.mkdir(parents=True, exist_ok=True)
            for number, text in enumerate(texts.documents["device"]):
                (notes / f"{number:03}.md").write_text(text + "\n")
            running.side.library.add(notes)
        running.engine.start(None)
        running.ask(texts.questions[0], WARM)
        yield running
    finally:
        running.engine.close()
        running.side.close()
