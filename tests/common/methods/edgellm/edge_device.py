"""A device without a cloud, whose answers two models of its own make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from common.daemon.side import SideRuntime
from common.methods.catalog import METHODS
from device.engine import DeviceEngine
from device.interface import AnswerEvent, Finished, TokenEvent
from device.settings import DeviceSettings
from tests.common.engine.inflated import inflate
from tests.support.generations import Iterated

NOTES = {
    "rabbit": "My rabbit is called Yarszis.",
    "dance": "My dance class is at Delthcine House.",
    "kettle": "I bought a kettle from Yormcrus.",
}
QUESTIONS = ("What is my rabbit called?", "Where is my dance class?", "Who made my kettle?")
LENGTH = 12
ENDLESS = {1: -100}  # biases: no end of the sequence before the last token

KV = 25 * 2**20
BUDGET = KV + 55 * 2**20  # holds some of the large target's eight layers
LARGER = BUDGET + 12 * 2**20  # for a draft model that is the target itself


class EdgeDevice:
    """A context manager. Models compute in float32, on which the identity of tokens rests."""

    def __init__(self, data: Path, **changes: Any) -> None:
        """`changes` are settings."""
        chosen: dict[str, Any] = {
            "cloud": None,
            "threads": 1,
            "dtype": "float32",
            "model": str(EMBEDDED_MODEL),
            "draft_model": str(EMBEDDED_DRAFT),
            "document_store_bytes": 0,
        }
        self.settings = DeviceSettings(data=data / "device", **(chosen | changes))
        settings = self.settings
        self.side = SideRuntime("device", settings, draft=settings.draft, verifying=settings.verifying)
        notes = data / "notes"
        notes.mkdir(parents=True, exist_ok=True)
        for name, text in NOTES.items():
            (notes / f"{name}.md").write_text(text)
        self.side.library.add(notes)
        self.engine = DeviceEngine(settings, self.side)
        self.alone: dict[str, list[int]] = {}  # answers without drafts, by what was asked

    def __enter__(self) -> Self:
        self.engine.start(None)
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()
        self.side.close()

    def begin(self, question: str = QUESTIONS[0], **fields: Any) -> Iterated:
        chosen: dict[str, Any] = {"method": "edgellm", "seed": 20, "max_tokens": LENGTH, "sources": "device"} | fields
        kind = METHODS[chosen["method"]].request
        return Iterated(self.engine, kind(question=question, prompt=f"\nQuestion: {question}\nAnswer:", **chosen))

    def tokens(self, question: str = QUESTIONS[0], **fields: Any) -> list[int]:
        return told(list(self.begin(question, **fields)))[0]


def told(events: Sequence[AnswerEvent]) -> tuple[list[int], Finished]:
    """The tokens of an answer, and its end."""
    last = events[-1]
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, TokenEvent)], last


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that computes what the embedded model does, with twice the layers."""
    return inflate(EMBEDDED_MODEL, tmp_path_factory.mktemp("large"), 8)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeDevice]:
    with EdgeDevice(tmp_path_factory.mktemp("resident")) as device:
        yield device


def streaming_settings(target: Path) -> dict[str, Any]:
    return {"local_target": str(target), "memory_budget": BUDGET, "kv_bytes": KV}


def streaming(data: Path, target: Path, **changes: Any) -> EdgeDevice:
    return EdgeDevice(data, **(streaming_settings(target) | changes))


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory, large: Path) -> Iterator[EdgeDevice]:
    with streaming(tmp_path_factory.mktemp("streamed"), large) as device:
        yield device


def alone(device: EdgeDevice, question: str = QUESTIONS[0], **fields: Any) -> list[int]:
    """The embedded model's tokens, decoded one by one; what was asked before isn't decoded again."""
    asked = repr((question, fields))
    if asked not in device.alone:
        device.alone[asked] = device.tokens(question, method="speculative", **fields)
    return device.alone[asked]
