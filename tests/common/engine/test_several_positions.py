"""Distributions at several positions in one pass: what verification of proposals asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch

from common.answer.values import SideDraft, Work
from common.engine import loop as worker_module
from common.engine.jobs import AnswerRows, Prompt
from common.engine.loop import Worker
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from tests.common.engine.greedy_client import GreedyClient, RaceDrafter, job
from tests.common.engine.test_worker import LENGTH, QUERY, alone, decoder, documents, worker

__all__ = ["decoder", "worker"]  # fixtures

Propose = Callable[[int], int]


@dataclass
class Verifier(GreedyClient):
    """Has several proposals verified in a pass: takes those that are the tokens drawn, then the one drawn instead."""

    proposal: Propose = lambda position: 5
    ahead: int = 4
    asked: list[int] = field(default_factory=list)  # of each pass

    def work(self) -> Work | None:
        if self.over:
            return None
        start = len(self.tokens)
        proposed = [self.proposal(position) for position in range(start, min(start + self.ahead, self.length - 1))]
        return Work(self.epoch, (*self.tokens, *proposed), count=len(proposed) + 1)

    def drawn(self, work: Work, drawn: Sequence[SideDraft], seconds: float) -> None:
        assert len(drawn) == work.count
        self.asked.append(work.count)
        for offset, draft in enumerate(drawn):
            position = work.position + offset
            self.tokens.append(draft.view.token)
            if draft.view.token != self.proposal(position):
                break
        if len(self.tokens) == self.length:
            self.end(None)


def submit(worker: Worker, client: GreedyClient, seed: int) -> None:
    drafter = RaceDrafter(worker.decoder.vocabulary, seed)
    worker.submit(job(worker.decoder, client, documents(seed), QUERY, drafter=drafter, peer=seed))


def mixed(worker: Worker, decoder: Decoder) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of answers that go step by step and of such that verify, side by side, and of each alone."""
    expected = [alone(decoder, seed) for seed in range(4)]
    clients = [
        Verifier(LENGTH, proposal=one_wrong(tokens, 3 * seed)) if seed % 2 else GreedyClient(LENGTH)
        for seed, tokens in enumerate(expected)
    ]
    for seed, client in enumerate(clients):
        submit(worker, client, seed)
    return [client.wait() for client in clients], expected


def one_wrong(tokens: Sequence[int], wrong: int) -> Propose:
    return lambda position: tokens[position] + (position == wrong)


class TestVerification:
    @pytest.mark.parametrize("wrong", [None, 0, 5])
    def test_it_ends_in_the_tokens_of_single_steps(self, worker: Worker, decoder: Decoder, wrong: int | None) -> None:
        expected = alone(decoder, 7)
        client = Verifier(LENGTH, proposal=one_wrong(expected, -1 if wrong is None else wrong))
        submit(worker, client, 7)
        assert client.wait() == expected
        assert client.asked[0] == client.ahead + 1
        assert len(client.asked) < LENGTH

    def test_beside_answers_that_go_step_by_step(self, worker: Worker, decoder: Decoder) -> None:
        found, expected = mixed(worker, decoder)
        assert found == expected

    def test_mutant_rows_and_positions_confused(
        self, worker: Worker, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Logits [rows, positions] that are taken for [positions, rows]: the comparison above notices."""
        expected = alone(decoder, 7)

        def confused(logits: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
            return torch.cat([logits[part] for part, _ in parts])

        monkeypatch.setattr(worker_module, "_by_position", confused)
        client = Verifier(LENGTH, proposal=one_wrong(expected, -1))
        submit(worker, client, 7)
        assert client.wait() != expected


def by_hand(decoder: Decoder, passes: Sequence[tuple[Sequence[int], int]]) -> float:
    """Distance of logits from those of fresh rows, where the rows of one answer are fed pass after pass with a path and
    a number of distributions each.
    """
    document = documents(7)[0]
    prompt = Prompt((tuple(document),), tuple(QUERY), (0.0,))
    rows = AnswerRows(decoder, prompt, decoder.take_rows(prompt.parts, prompt.query, LENGTH))
    try:
        while rows.reading:
            for feed in rows.feeds(Work(0, ())):
                decoder.forward([feed])
                rows.fed(feed)
        furthest = 0.0
        for path, count in passes:
            (feed,) = rows.feeds(Work(0, tuple(path), count=count))
            logits = decoder.forward([feed])
            rows.fed(feed)
            assert len(logits) == count
            for place, found in enumerate(logits):
                before = path[: len(path) - count + 1 + place]
                fresh = decoder.fresh_logits([*document, *QUERY, *before])
                furthest = max(furthest, float((found - fresh).abs().max() / fresh.abs().max()))
        return furthest
    finally:
        decoder.memory.give_back(rows.rows)


class TestRolledBack:
    """A proposal that was read is judged again, or a shorter one in its place: the rows hold all of it already."""

    PASSES: ClassVar = [([5, 6, 7, 8], 5), ([5, 6, 7, 8], 5), ([5, 6, 7], 3), ([5, 9], 2), ([5, 9, 4], 1)]

    def test_as_many_distributions_as_are_wanted(self, decoder: Decoder) -> None:
        assert by_hand(decoder, self.PASSES) < 2e-5

    def test_mutant_one_too_few(self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        feeds = AnswerRows.feeds

        def fewer(self: AnswerRows, wanted: Work) -> list[Feed]:
            less = replace(wanted, count=max(1, wanted.count - 1))
            made = feeds(self, less)
            for feed in made:
                feed.logits = wanted.count
            return made

        monkeypatch.setattr(AnswerRows, "feeds", fewer)
        with pytest.raises((AssertionError, ValueError)):
            by_hand(decoder, self.PASSES)
