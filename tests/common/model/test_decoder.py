"""The decoder's logits are those of plain Transformers, whatever was rolled back, cached or joined."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.model.decoder import Decoder, Rows
from common.model.errors import ContextError
from common.model.slab import Slab, SlabPass
from tests.common.model.tiny_models import DEMO, Pair, some_tokens


def unequal_documents(decoder: Decoder) -> list[list[int]]:
    return [some_tokens(decoder, count, seed=count) for count in (9, 31, 0, 17)]


def rows_with(documents: Sequence[Sequence[int]], *rest: Sequence[int]) -> list[list[int]]:
    tail = [token for part in rest for token in part]
    return [[*document, *tail] for document in documents]


def drive(pair: Pair, actions: Sequence[tuple[str, int]]) -> None:
    """Step and roll back as told, comparing every step with fresh passes."""
    decoder = pair.decoder
    documents, query = unequal_documents(decoder), some_tokens(decoder, 4, seed=1)
    rows, logits = decoder.open(documents, query, reserve=4)
    pair.check(logits, rows_with(documents, query))
    answer: list[int] = []
    for seed, (action, number) in enumerate(actions):
        if action == "crop":
            answer = answer[: number % (len(answer) + 1)]
            rows.crop(len(answer))
        else:
            tokens = some_tokens(decoder, number, seed=100 + seed)
            answer += tokens
            pair.check(decoder.step(rows, tokens), rows_with(documents, query, answer))
        assert rows.answer == len(answer)


STEP_ROLLBACK_STEP = [
    ("step", 1),
    ("step", 1),
    ("step", 3),
    ("crop", 2),
    ("step", 2),
    ("crop", 0),
    ("step", 1),
]


class TestAgainstPlainTransformers:
    def test_rows_of_unequal_length_steps_and_rollbacks(self, pair: Pair) -> None:
        drive(pair, STEP_ROLLBACK_STEP)

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

    def test_capacity_grows_up_to_the_context(self, llama: Pair) -> None:
        decoder = llama.decoder
        documents, query = unequal_documents(decoder), some_tokens(decoder, 4, seed=1)
        rows, _ = decoder.open(documents, query, reserve=0)
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
        with torch.inference_mode():
            logits = decoder._forward([rows], decoder._tokens(answer, len(rows)), 3, None)
        assert logits.shape == (4, 3, decoder.vocabulary)
        for position in range(3):
            llama.check(logits[:, position], rows_with(documents, query, answer[: position + 3]))

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
    """What a user would get from a broken cache is caught by the comparisons above."""

    def test_rollback_that_moves_no_length(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        advance = Slab.advance

        def only_forward(slab: Slab, tokens: int) -> None:
            if tokens > 0:
                advance(slab, tokens)

        monkeypatch.setattr(Slab, "advance", only_forward)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    def test_stale_columns_that_are_not_masked(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        make_mask = SlabPass._mask

        def everything_visible(forward: SlabPass) -> torch.Tensor | None:
            mask = make_mask(forward)
            return None if mask is None else torch.zeros_like(mask)

        monkeypatch.setattr(SlabPass, "_mask", everything_visible)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    def test_positions_of_the_longest_row(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        start = SlabPass.__init__

        def same_positions(forward: SlabPass, slabs: Sequence[Slab], tokens: int) -> None:
            start(forward, slabs, tokens)
            forward.positions = forward.positions.amax(0, keepdim=True).expand_as(forward.positions)

        monkeypatch.setattr(SlabPass, "__init__", same_positions)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)


class TestJointStep:
    def sessions(self, decoder: Decoder) -> list[tuple[Rows, list[list[int]]]]:
        opened = []
        for seed, lengths in enumerate([(9, 31, 0), (12, 12), (40,)]):
            documents = [some_tokens(decoder, count, seed=50 * seed + count) for count in lengths]
            query = some_tokens(decoder, 3 + seed, seed=seed)
            opened.append((decoder.open(documents, query, 8)[0], rows_with(documents, query)))
        return opened

    def test_equals_separate_steps(self, pair: Pair) -> None:
        decoder = pair.decoder
        sessions = self.sessions(decoder)
        decoder.step(sessions[0][0], [7, 8])
        sessions[0][0].crop(1)
        texts = [rows_with(texts, [7] if index == 0 else []) for index, (_, texts) in enumerate(sessions)]
        for tokens in ([3, 4, 5], [6, 6, 6]):
            batch = [(rows, token) for (rows, _), token in zip(sessions, tokens, strict=True)]
            joined = decoder.step_many(batch)
            texts = [rows_with(text, [token]) for text, token in zip(texts, tokens, strict=True)]
            for logits, text in zip(joined, texts, strict=True):
                pair.check(logits, text)
        assert [rows.answer for rows, _ in sessions] == [3, 2, 2]

    def test_one_session_is_a_plain_step(self, llama: Pair) -> None:
        (rows, _), *_ = self.sessions(llama.decoder)
        expected = llama.decoder.step(rows, [9])
        rows.crop(0)
        (logits,) = llama.decoder.step_many([(rows, 9)])
        assert torch.equal(logits, expected)

    def test_nobody_and_somebody_twice(self, llama: Pair) -> None:
        assert llama.decoder.step_many([]) == []
        (rows, _), *_ = self.sessions(llama.decoder)
        with pytest.raises(ValueError, match="only once"):
            llama.decoder.step_many([(rows, 3), (rows, 4)])


class TestInput:
    def test_too_long_says_by_how_much(self, llama: Pair) -> None:
        with pytest.raises(ContextError, match=r"260 tokens.*256") as caught:
            llama.decoder.open([[5] * 40, [5] * 150], [6] * 10, reserve=100)
        assert (caught.value.needed, caught.value.limit) == (260, 256)
        assert caught.value.longest_document == 150
        rows, _ = llama.decoder.open([[5] * 40, [5] * 150], [6] * 10, reserve=96)
        assert (len(rows), rows.prompt_lengths, rows.context) == (2, (50, 160), 160)

    @pytest.mark.parametrize("wrong", [-1, 10_000])
    def test_ids_outside_the_vocabulary(self, llama: Pair, wrong: int) -> None:
        rows, _ = llama.decoder.open([[5]], [6], 4)
        with pytest.raises(ValueError, match="vocabulary"):
            llama.decoder.step(rows, [wrong])
        with pytest.raises(ValueError, match="vocabulary"):
            llama.decoder.open([[wrong]], [6], 4)

    def test_ids_that_only_pad_the_embedding(self, llama: Pair) -> None:
        rows, logits = llama.decoder.open([[5]], [6], 4)
        assert logits.shape[1] == llama.decoder.vocabulary < llama.plain.config.vocab_size
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
