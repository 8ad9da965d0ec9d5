"""Answers that two jobs make get the memory of both at once: none hangs, and whoever waits or is refused is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.answer import report
from common.answer.request import AnswerFailed, NoPlace, RequestError
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.kv.memory import Claim, KvMemory, Need
from common.methods.edgellm import device as beginning
from common.methods.rapid import rapid as resident
from device.interface import Finished
from tests.cloud.long_documents import ALMANAC
from tests.common.methods.edgellm.edge_device import ENDLESS, QUESTIONS, EdgeDevice, told
from tests.daemons.streaming import wait_until

LENGTH = 12
SOON = 60.0  # seconds, on a busy machine
ONE_MODEL = {"model": str(EMBEDDED_DRAFT), "tokenizer": str(EMBEDDED_TOKENIZER), "draft_model": "auto"}
EDGE: dict[str, Any] = {"method": "edgellm", "max_tokens": LENGTH, "logit_bias": ENDLESS, "tree_size": 16}
RAPID: dict[str, Any] = {
    "method": "rapid",
    "long_document": "almanac",
    "verifier": "device",
    "aggregation": "context",
    "privacy": "offline",
    "retrieval_tokens": 320,
    "max_tokens": LENGTH,
}
METHODS = pytest.mark.parametrize("fields", [EDGE, RAPID], ids=lambda each: each["method"])


@pytest.fixture(scope="module", params=["one model", "two models"])
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeDevice]:
    data = tmp_path_factory.mktemp("device")
    (data / "notes").mkdir()
    (data / "notes" / "almanac.md").write_text(ALMANAC)
    with EdgeDevice(data, **(ONE_MODEL if request.param == "one model" else {})) as device:
        yield device


@pytest.fixture
def needs(device: EdgeDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Sequence[Need]]]:
    """Claims of answers, from the first to the last; the limits are as before when the test is over."""
    claimed: list[Sequence[Need]] = []

    def noting(claim: Callable[[Sequence[Need]], Claim], needs: Sequence[Need]) -> Claim:
        claimed.append(needs)
        return claim(needs)

    for module in (beginning, resident):
        monkeypatch.setattr(module, "Claim", partial(noting, module.Claim))
    limits = {memory: (memory.limit_bytes, memory.patience) for memory in memories(device)}
    yield claimed
    for memory, (limit, patience) in limits.items():
        memory.limit_bytes, memory.patience = limit, patience
    wait_until(lambda: all(each.used_bytes == 0 and not each.line for each in memories(device)), "all is free", SOON)


def memories(device: EdgeDevice) -> set[KvMemory]:
    assert device.side.drafter is not None
    return {device.side.target.decoder.memory, device.side.drafter.decoder.memory}


def sums(needs: Sequence[Need]) -> dict[KvMemory, int]:
    return {memory: sum(need.bytes for need in needs if need.memory is memory) for memory in {n.memory for n in needs}}


def together(device: EdgeDevice, questions: Sequence[str], fields: dict[str, Any]) -> list[list[int]]:
    """The tokens of answers that are asked for at the same time."""
    answers: dict[str, list[int]] = {}

    def ask(question: str) -> None:
        answers[question] = device.tokens(question, **fields)

    threads = [threading.Thread(target=ask, args=(question,), daemon=True) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert len(answers) == len(questions), "an answer hangs"
    return [answers[question] for question in questions]


@METHODS
class TestMemoryOfBothModels:
    def test_answers_have_it_one_after_the_other(
        self, device: EdgeDevice, needs: list[Sequence[Need]], fields: dict[str, Any]
    ) -> None:
        """There is as much as the largest of them needs, or a little less than two do."""
        expected = [device.tokens(question, **fields) for question in QUESTIONS]
        largest = {memory: max(sums(each)[memory] for each in needs) for memory in memories(device)}
        for factor in (1.0, 1.9):
            for memory, needed in largest.items():
                memory.limit_bytes = int(factor * needed)
            assert together(device, QUESTIONS, fields) == expected

    def test_too_little_for_both_is_told_at_once(
        self, device: EdgeDevice, needs: list[Sequence[Need]], fields: dict[str, Any]
    ) -> None:
        expected = device.tokens(**fields)
        (memory, needed), *_ = sums(needs[0]).items()
        memory.limit_bytes = needed - 1
        with pytest.raises(RequestError, match=f"fewer or shorter documents.*set kv_bytes to {needed} or more"):
            device.tokens(**fields)
        memory.limit_bytes = needed
        assert device.tokens(**fields) == expected

    def test_a_wait_is_noted(
        self,
        device: EdgeDevice,
        needs: list[Sequence[Need]],
        fields: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(report, "NOTED_WAIT", 0.0)
        before = device.tokens(**fields)
        (memory, needed), *_ = sums(needs[0]).items()
        memory.limit_bytes = needed
        other = Claim([Need(memory, 1, 1)])
        generation = device.begin(**fields)
        wait_until(lambda: bool(memory.line), "the answer waits", SOON)
        other.withdraw()
        tokens, last = told(list(generation))
        assert tokens == before
        assert last.report.notes[-1].startswith("The answer waited")

    def test_a_wait_ends(self, device: EdgeDevice, needs: list[Sequence[Need]], fields: dict[str, Any]) -> None:
        expected = device.tokens(**fields)
        (memory, needed), *_ = sums(needs[0]).items()
        memory.limit_bytes = needed
        other = Claim([Need(memory, 1, 1)])
        for each in memories(device):
            each.patience = 0.1
        with pytest.raises(NoPlace, match="no memory for the answer"):
            device.tokens(**fields)
        other.withdraw()
        assert device.tokens(**fields) == expected

    def test_whoever_is_cancelled_leaves_the_line(
        self, device: EdgeDevice, needs: list[Sequence[Need]], fields: dict[str, Any]
    ) -> None:
        expected = device.tokens(**fields)
        (memory, needed), *_ = sums(needs[0]).items()
        memory.limit_bytes = needed
        other = Claim([Need(memory, 1, 1)])
        generation = device.begin(**fields)
        wait_until(lambda: bool(memory.line), "the answer waits", SOON)
        generation.cancel()
        *_, last = generation
        assert isinstance(last, Finished)
        assert last.reason == "cancelled"
        wait_until(lambda: not memory.line, "it has left the line", SOON)
        other.withdraw()
        assert device.tokens(**fields) == expected


def test_memory_that_the_machine_does_not_have(device: EdgeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is told so, and the next one has all the memory there is."""
    expected = device.tokens(**EDGE)

    def exhausted(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    for memory in memories(device):
        memory._chunks.clear()
    with monkeypatch.context() as patch:
        patch.setattr("common.engine.kv.memory.mmap.mmap", exhausted)
        with pytest.raises(AnswerFailed, match="the machine has no"):
            device.tokens(**EDGE)
    wait_until(lambda: all(each.used_bytes == 0 for each in memories(device)), "all is free", SOON)
    assert device.tokens(**EDGE) == expected


def test_a_draft_model_goes_on_where_trees_have_never_room(tmp_path: Path) -> None:
    """Of an answer whose verifier is away, with `local_target` in its place."""
    away = {"cloud": "tcp://127.0.0.1:9", "privacy": "balanced", "local_target": str(EMBEDDED_MODEL)}
    with EdgeDevice(tmp_path, **away) as device:
        assert device.side.local_target is not None
        device.side.local_target.decoder.memory.limit_bytes = 4096
        fields: dict[str, Any] = {"method": "coupled", "sources": "cloud", "privacy": "balanced", "logit_bias": ENDLESS}
        tokens, last = told(list(device.begin(max_tokens=LENGTH, **fields)))
    assert len(tokens) == LENGTH
    assert any("kv_bytes" in note and note.endswith("The draft model continues alone.") for note in last.report.notes)
