"""Passes for which there is no memory: only the answer that is at fault ends."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from common.engine import loop as worker_module
from common.engine.loop import Worker
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from tests.common.engine.greedy_client import GreedyClient
from tests.common.engine.test_several_positions import Verifier, mixed, submit
from tests.common.engine.test_worker import LENGTH, alone, decoder, together, worker

__all__ = ["decoder", "worker"]  # fixtures


def test_a_failed_pass_leaves_its_memory_to_those_that_are_run_one_by_one(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Decoder.forward
    failed, held = list[weakref.ref[torch.Tensor]](), list[bool]()

    def fragile(decoder: Decoder, feeds: Sequence[Feed], *rest: Any) -> torch.Tensor:
        held.append(any(each() is not None for each in failed))
        if len(feeds) > 1:
            activations = torch.zeros(10)
            failed.append(weakref.ref(activations))
            raise RuntimeError("out of memory")
        return forward(decoder, feeds, *rest)

    monkeypatch.setattr(Decoder, "forward", fragile)
    together(worker, range(4), [GreedyClient(3) for _ in range(4)])
    assert failed
    assert not any(held)


class TestLogits:
    """A pass's logits, of which there is no memory for a copy in the order of the answers."""

    def test_of_all_answers(self, worker: Worker, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        by_position, joined = worker_module._by_position, list[int]()

        def limited(logits: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
            if len(parts) > 1:
                joined.append(len(parts))
                raise RuntimeError("out of memory")
            return by_position(logits, parts)

        monkeypatch.setattr(worker_module, "_by_position", limited)
        found, expected = mixed(worker, decoder)
        assert found == expected
        assert joined

    def test_of_one(self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        expected, died = alone(decoder, 1), list[str]()
        worker = Worker(decoder, 0.003, died=lambda name, _: died.append(name))
        by_position = worker_module._by_position
        bad, good = Verifier(LENGTH), GreedyClient(LENGTH)

        def limited(logits: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
            if any(count > 1 for _, count in parts):
                raise RuntimeError("out of memory")
            return by_position(logits, parts)

        monkeypatch.setattr(worker_module, "_by_position", limited)
        try:
            submit(worker, good, 1)
            submit(worker, bad, 2)
            with pytest.raises(RuntimeError, match="out of memory"):
                bad.wait()
            assert good.wait() == expected
        finally:
            worker.close()
        assert died == []
