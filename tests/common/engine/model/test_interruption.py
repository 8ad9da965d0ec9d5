"""A pass given up between two layers leaves the rows as they were."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import Tensor

from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.model.errors import Preempted
from common.engine.model.packed import Feed
from common.engine.streaming import Interrupt
from tests.common.engine.model.tiny_models import FEW, Pair, some_tokens

QUERY = [5, 6, 7]
few_pairs = pytest.mark.parametrize("pair", FEW, indirect=True)


class AfterPolls:
    """True from the poll after `count` polls on."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.polls = 0

    def __call__(self) -> bool:
        self.polls += 1
        self.left -= 1
        return self.left < 0


def layers_of(pair: Pair) -> int:
    layers: int = pair.plain.model.config.num_hidden_layers
    return layers


def open_rows(decoder: Decoder) -> tuple[Rows, list[list[int]]]:
    documents = [some_tokens(decoder, count, seed=count) for count in (4, 15)]
    rows, _ = decoder.open(documents, QUERY, 8)
    decoder.step(rows, [9, 10])
    rows.crop(1)
    return rows, [[*document, *QUERY, 9] for document in documents]


def check_interrupted_at_every_layer(pair: Pair) -> None:
    decoder = pair.decoder
    for layer in range(layers_of(pair)):
        rows, texts = open_rows(decoder)
        with pytest.raises(Preempted):
            decoder.step(rows, [11, 12, 13, 14], AfterPolls(layer))
        assert (rows.answer, rows.context) == (1, 19)
        pair.check(decoder.step(rows, [21]), [[*text, 21] for text in texts])


class TestInterruption:
    def test_the_next_step_is_a_fresh_prefill_at_every_layer(self, pair: Pair) -> None:
        check_interrupted_at_every_layer(pair)

    @few_pairs
    def test_polled_once_per_layer_and_pass(self, pair: Pair) -> None:
        never = AfterPolls(1_000)
        rows, _ = open_rows(pair.decoder)
        pair.decoder.step(rows, [9, 9], never)
        assert never.polls == layers_of(pair)
        pair.decoder.step(rows, [9])
        assert never.polls == layers_of(pair)

    def test_no_session_of_a_joint_pass_moves(self, llama: Pair) -> None:
        decoder = llama.decoder
        one, texts = open_rows(decoder)
        other, _ = decoder.open([[8] * 30], QUERY, 4)
        for layer in range(layers_of(llama)):
            with pytest.raises(Preempted):
                decoder.forward([Feed(one, [11]), Feed(other, [12])], AfterPolls(layer))
        assert (one.answer, other.answer) == (1, 0)
        logits = decoder.forward([Feed(one, [21]), Feed(other, [22])])
        llama.check(logits[:2], [[*text, 21] for text in texts])
        llama.check(logits[2:], [[8] * 30 + [*QUERY, 22]])

    def test_opening_can_be_given_up(self, llama: Pair) -> None:
        for polls in range(2 * layers_of(llama)):  # first the document's layers, then the query's
            document = some_tokens(llama.decoder, 20, seed=70 + polls)
            with pytest.raises(Preempted):
                llama.decoder.open([document], QUERY, 4, AfterPolls(polls))
            llama.check(llama.decoder.open([document], QUERY, 4)[1], [document + QUERY])

    @few_pairs
    def test_mutant_lengths_moved_by_an_unfinished_pass(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Decoder.forward

        def moves_early(decoder: Decoder, feeds: Sequence[Feed], interrupt: Interrupt | None = None) -> Tensor:
            try:
                return run(decoder, feeds, interrupt)
            except Preempted:
                for feed in feeds:
                    feed.rows.fed += len(feed.tokens)
                raise

        monkeypatch.setattr(Decoder, "forward", moves_early)
        with pytest.raises(AssertionError):
            check_interrupted_at_every_layer(pair)
