"""The decoder's logits are those of plain Transformers, whatever was rolled back, cached or joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine.kv.memory import Rows
from common.engine.model import packed
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ContextError
from common.engine.model.exact import KeyWindow
from common.engine.model.packed import Feed, PackedPass
from tests.common.engine.model.driving import STEP_ROLLBACK_STEP, all_columns, drive, rows_with, unequal_documents
from tests.common.engine.model.tiny_models import DEMO, FEW, Pair, some_tokens

few_pairs = pytest.mark.parametrize("pair", FEW, indirect=True)


class TestAgainstPlainTransformers:
    def test_rows_of_unequal_length_steps_and_rollbacks(self, pair: Pair) -> None:
        drive(pair, STEP_ROLLBACK_STEP)

    @few_pairs
    def test_rows_of_equal_length(self, pair: Pair) -> None:
        decoder = pair.decoder
        documents = [some_tokens(decoder, 12, seed) for seed in (1, 2)]
        query, answer = some_tokens(decoder, 3, seed=3), some_tokens(decoder, 3, seed=4)
        rows, logits = decoder.open(documents, query, reserve=8)
        pair.check(logits, rows_with(documents, query))
        pair.check(decoder.step(rows, answer[:1]), rows_with(documents, query, answer[:1]))
        pair.check(decoder.step(rows, answer[1:]), rows_with(documents, query, answer))
        rows.crop(1)
        pair.check(decoder.step(rows, answer[2:]), rows_with(documents, query, answer[:1], answer[2:]))

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(
        actions=st.lists(
            st.tuples(st.sampled_from(["step", "step", "crop"]), st.integers(1, 6)), min_size=3, max_size=10
        )
    )
    def test_any_sequence_of_steps_and_rollbacks(self, llama: Pair, actions: list[tuple[str, int]]) -> None:
        drive(llama, actions)

    def test_rows_fill_the_context(self, llama: Pair) -> None:
        decoder = llama.decoder
        documents, query = unequal_documents(decoder), some_tokens(decoder, 4, seed=1)
        rows, _ = decoder.open(documents, query, reserve=decoder.max_context - 35)
        answer = some_tokens(decoder, decoder.max_context - 35, seed=9)
        for start in range(0, len(answer), 60):
            logits = decoder.step(rows, answer[start : start + 60])
            llama.check(logits, rows_with(documents, query, answer[: start + 60]))
        assert rows.context == decoder.max_context
        with pytest.raises(ContextError) as caught:
            decoder.step(rows, [5])
        assert (caught.value.needed, caught.value.limit) == (257, 256)
        rows.crop(1)
        llama.check(decoder.step(rows, [5]), rows_with(documents, query, answer[:1], [5]))

    def test_logits_of_several_positions(self, llama: Pair) -> None:
        decoder = llama.decoder
        documents, query = unequal_documents(decoder), some_tokens(decoder, 4, seed=1)
        answer = some_tokens(decoder, 5, seed=8)
        rows, _ = decoder.open(documents, query, reserve=8)
        logits = decoder.forward([Feed(rows, answer, logits=3)])
        assert logits.shape == (12, decoder.vocabulary)
        for position in range(3):
            llama.check(logits[position::3], rows_with(documents, query, answer[: position + 3]))

    def test_bfloat16_is_close_to_float32(self) -> None:
        tokenizer = str(DEMO / "tokenizer")
        fine = Decoder.load(str(DEMO / "target"), tokenizer=tokenizer, dtype="float32")
        coarse = Decoder.load(str(DEMO / "target"), tokenizer=tokenizer, dtype="bfloat16")
        documents = [fine.tokenizer.encode(f" {text}") for text in ("Harbor Town is a game.", "Mona likes tea.")]
        query = fine.tokenizer.encode("\nQuestion: What does Mona like?\nAnswer:")
        expected, logits = (decoder.open(documents, query, 4)[1] for decoder in (fine, coarse))
        assert logits.dtype == torch.float32
        # bfloat16 keeps 8 bits per activation: 0.4 % each, accumulated over four layers.
        assert float((logits - expected).abs().max()) < 0.05 * float(expected.abs().max())
        assert fine.identity != coarse.identity


class TestMutants:
    """Caches broken in known ways are caught by the comparisons above."""

    @few_pairs
    def test_rollback_that_moves_no_length(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Rows, "crop", lambda rows, answer: None)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    @few_pairs
    def test_stale_columns_that_are_not_masked(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packed, "chain_sight", all_columns)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    @few_pairs
    def test_positions_of_the_longest_row(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        start = PackedPass.__init__

        def same_positions(packed: PackedPass, items: Sequence[Feed], *options: Any) -> None:
            start(packed, items, *options)
            rows = packed.positions.view(len(items[0].rows), -1)
            packed.positions = rows.amax(0, keepdim=True).expand_as(rows).reshape(1, -1)

        monkeypatch.setattr(PackedPass, "__init__", same_positions)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    @pytest.mark.parametrize("pair", ["llama"], indirect=True)
    def test_queries_folded_in_another_order_than_the_mask(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        repeat = torch.Tensor.repeat_interleave
        monkeypatch.setattr(
            torch.Tensor, "repeat", lambda mask, _a, _b, folds, _c: repeat(mask, folds, dim=2), raising=True
        )
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)


class TestPackedPass:
    """Items of several answers in one pass: each gets the logits that it would get alone."""

    def answers(self, decoder: Decoder) -> list[tuple[Rows, list[list[int]]]]:
        opened = []
        for seed, lengths in enumerate([(9, 31, 0), (12, 12), (40,), (12, 12), (200,)]):
            documents = [some_tokens(decoder, count, seed=50 * seed + count) for count in lengths]
            query = some_tokens(decoder, 3 + seed, seed=seed)
            opened.append((decoder.open(documents, query, 20)[0], rows_with(documents, query)))
        return opened

    def check(self, pair: Pair, feeds: Sequence[tuple[Rows, list[list[int]], list[int], int]]) -> None:
        """Feed answers of known texts in one pass, and look at the logits of every position asked for."""
        logits = pair.decoder.forward([Feed(rows, tokens, wanted) for rows, _, tokens, wanted in feeds])
        start = 0
        for rows, texts, tokens, wanted in feeds:
            stop = start + len(rows) * wanted
            for place in range(wanted):
                fed = tokens[: len(tokens) - wanted + place + 1]
                pair.check(logits[start + place : stop : wanted], rows_with(texts, fed))
            start = stop
        assert start == len(logits)

    @few_pairs
    def test_single_steps_of_all(self, pair: Pair) -> None:
        answers = self.answers(pair.decoder)
        for step in range(2):
            self.check(pair, [(rows, texts, [3 + step], 1) for rows, texts in answers])
            answers = [(rows, rows_with(texts, [3 + step])) for rows, texts in answers]
        assert [rows.answer for rows, _ in answers] == [2] * 5

    def test_steps_catch_up_and_verification_together(self, pair: Pair) -> None:
        (one, a), (two, b), (three, c), (four, d), (five, e) = self.answers(pair.decoder)
        feeds = [
            (two, b, [9], 1),
            (five, e, [3, 4, 5], 1),
            (one, a, [8], 1),
            (four, d, [9, 9, 8, 7], 4),
            (three, c, [6], 0),
        ]
        self.check(pair, feeds)
        one.crop(0)
        four.crop(2)
        self.check(pair, [(four, rows_with(d, [9, 9]), [5], 1), (one, a, [4, 4], 2), (two, rows_with(b, [9]), [7], 1)])

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(
        plan=st.lists(
            st.lists(
                st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 4)),
                min_size=1,
                max_size=5,
                unique_by=lambda feed: feed[0],
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_any_mixture(self, llama: Pair, plan: list[list[tuple[int, int, int]]]) -> None:
        answers = self.answers(llama.decoder)
        told: list[list[int]] = [[] for _ in answers]
        for seed, turn in enumerate(plan):
            feeds = []
            for index, kept, count in turn:
                rows, texts = answers[index]
                kept = min(kept, len(told[index]))
                rows.crop(kept)
                tokens = some_tokens(llama.decoder, count, seed=seed)
                feeds.append((rows, rows_with(texts, told[index][:kept]), tokens, count))
                told[index] = told[index][:kept] + tokens
            self.check(llama, feeds)
        for rows, _ in answers:
            llama.decoder.memory.give_back(rows)

    def test_a_document_read_in_chunks_beside_running_answers(self, pair: Pair) -> None:
        decoder = pair.decoder
        (one, a), (two, b), *_ = self.answers(decoder)
        document, query = some_tokens(decoder, 50, seed=5), [7, 8, 9]
        rows = decoder.take_rows([document, []], query, 4)
        alone = rows.alone(0)
        for start, stop in ((0, 16), (16, 48), (48, 50)):
            decoder.forward([Feed(one, [5], 0), Feed(alone, document[start:stop], 0), Feed(two, [6], 0)])
            a, b = rows_with(a, [5]), rows_with(b, [6])
        rows.starts[0] = len(document)
        self.check(pair, [(one, a, [4], 1), (rows, [document, []], query, 1), (two, b, [4], 1)])

    def test_a_document_and_what_follows_it_in_one_pass(self, pair: Pair) -> None:
        decoder = pair.decoder
        (one, a), *_ = self.answers(decoder)
        document, query = some_tokens(decoder, 50, seed=5), [7, 8, 9]
        rows = decoder.take_rows([document, []], query, 4)
        alone = rows.alone(0)
        rows.starts[0] = len(document)
        self.check(pair, [(rows, [document, []], query, 2), (one, a, [4], 1), (alone, [[]], document, 3)])
        self.check(pair, [(rows, [[*document, *query], query], [4], 1)])

    def test_neighbours_in_memory_share_an_attention_call(self, llama: Pair) -> None:
        decoder = llama.decoder
        opened = [decoder.open([some_tokens(decoder, 20, seed)] * 2, [5], 4)[0] for seed in range(6)]
        joint = PackedPass([Feed(rows, [7]) for rows in opened], decoder.layout)
        assert len(joint.groups) == 1
        assert joint.view(joint.groups[0], None, True) == KeyWindow(0)  # all of one length: no mask

    def test_nobody_and_somebody_twice(self, llama: Pair) -> None:
        assert llama.decoder.forward([]).shape == (0, llama.decoder.vocabulary)
        (rows, _), *_ = self.answers(llama.decoder)
        with pytest.raises(ValueError, match="only once"):
            llama.decoder.forward([Feed(rows, [3]), Feed(rows, [4])])

    def test_one_bad_item_moves_nobody(self, llama: Pair) -> None:
        (one, a), (two, _), *_ = self.answers(llama.decoder)
        with pytest.raises(ValueError, match="vocabulary"):
            llama.decoder.forward([Feed(one, [3]), Feed(two, [10_000])])
        assert (one.answer, two.answer) == (0, 0)
        self.check(llama, [(one, a, [3], 1)])


class TestInput:
    def test_too_long_says_by_how_much(self, llama: Pair) -> None:
        with pytest.raises(ContextError, match=r"260 tokens.*256") as caught:
            llama.decoder.open([[5] * 40, [5] * 150], [6] * 10, reserve=100)
        assert (caught.value.needed, caught.value.limit) == (260, 256)
        assert caught.value.longest_document == 150
        rows, _ = llama.decoder.open([[5] * 40, [5] * 150], [6] * 10, reserve=96)
        assert (len(rows), rows.starts, rows.context) == (2, [40, 150], 160)

    @pytest.mark.parametrize("wrong", [-1, 10_000])
    def test_ids_outside_the_vocabulary(self, llama: Pair, wrong: int) -> None:
        rows, _ = llama.decoder.open([[5]], [6], 4)
        with pytest.raises(ValueError, match="vocabulary"):
            llama.decoder.step(rows, [wrong])
        with pytest.raises(ValueError, match="vocabulary"):
            llama.decoder.open([[wrong]], [6], 4)

    def test_ids_that_only_pad_the_embedding(self, llama: Pair) -> None:
        rows, logits = llama.decoder.open([[5]], [6], 4)
        assert logits.shape[1] == llama.decoder.vocabulary < llama.plain.model.config.vocab_size
        with pytest.raises(ValueError, match="vocabulary"):
            llama.decoder.step(rows, [llama.decoder.vocabulary])

    def test_nothing_to_decode(self, llama: Pair) -> None:
        for documents, query in (([], [5]), ([[5]], [])):
            with pytest.raises(ValueError, match="at least one document"):
                llama.decoder.open(documents, query, 1)
        rows, _ = llama.decoder.open([[5]], [6], 4)
        with pytest.raises(ValueError, match="at least one token"):
            llama.decoder.step(rows, [])
        with pytest.raises(ValueError, match="reserve"):
            llama.decoder.open([[5]], [6], -1)

    @pytest.mark.parametrize("answer", [-1, 3])
    def test_crop_to_what_is_not_there(self, llama: Pair, answer: int) -> None:
        rows, _ = llama.decoder.open([[5]], [6], 4)
        llama.decoder.step(rows, [7, 8])
        with pytest.raises(ValueError, match="crop"):
            rows.crop(answer)
        assert rows.answer == 2
