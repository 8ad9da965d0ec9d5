"""Lexical weights: they follow the answer, survive rollbacks, and both sides compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from common.scoring.lexical import DECAY, LENGTH_POWER, QUESTION_SHARE, LexicalScorer

VOCABULARY = 40
TABLE = np.linspace(0.0, 6.0, VOCABULARY, dtype=np.float32)
tokens = st.lists(st.integers(0, VOCABULARY + 3), max_size=12)


def plain_scores(scale: float, query: list[int], documents: list[list[int]], answer: list[int]) -> list[float]:
    """The formula, written down without any of the increments."""
    idf = {token: float(TABLE[token]) if token < VOCABULARY else 0.0 for token in range(VOCABULARY + 4)}
    context = dict.fromkeys(query, QUESTION_SHARE)
    for age, token in enumerate(reversed(answer)):
        context[token] = context.get(token, 0.0) + DECAY**age
    length = np.sqrt(sum((share * idf[token]) ** 2 for token, share in context.items()))
    scores = []
    for document in documents:
        counts = {token: 1 + np.log(document.count(token)) for token in document}
        own = np.sqrt(sum((count * idf[token]) ** 2 for token, count in counts.items()))
        overlap = sum(counts.get(token, 0.0) * share * idf[token] ** 2 for token, share in context.items())
        scores.append(scale * overlap / (own**LENGTH_POWER * length) if own and length else 0.0)
    return scores


@settings(deadline=None)
@given(tokens, st.lists(tokens, min_size=1, max_size=4), st.lists(tokens, max_size=6))
def test_any_sequence_of_answers_scores_as_if_computed_afresh(
    query: list[int], documents: list[list[int]], answers: list[list[int]]
) -> None:
    run = LexicalScorer.from_table(TABLE, 7.0).begin(query, documents)
    for answer in answers:
        expected = plain_scores(7.0, query, documents, answer)
        np.testing.assert_allclose(run.scores(answer), expected, atol=1e-9)


def test_growing_and_rolling_back_gives_the_same_bits_as_growing_alone() -> None:
    documents = [[3, 9, 20, 31], [9, 9, 12], [31, 39, 5]]
    scorer = LexicalScorer.from_table(TABLE)
    straight, wandering = scorer.begin([9, 12], documents), scorer.begin([9, 12], documents)
    answer = [31, 9, 31, 20, 5]
    for length in range(len(answer) + 1):
        wandering.scores([*answer[:length], 7, 31, 9])
        wandering.scores(answer[: max(0, length - 1)])
        assert np.array_equal(wandering.scores(answer[:length]), straight.scores(answer[:length]))


def test_the_document_about_the_name_in_the_answer_gains_weight() -> None:
    bike_makers = [[10, 30, 11], [10, 31, 11], [10, 32, 11]]
    run = LexicalScorer.from_table(TABLE).begin([10, 8], bike_makers)
    before = run.scores([7])
    after = run.scores([7, 31])
    assert np.ptp(before) < 0.5, "nothing tells them apart but their lengths"
    assert int(after.argmax()) == 1
    assert after[1] > max(after[0], after[2]) + 1.0


def test_a_score_does_not_depend_on_the_other_documents() -> None:
    scorer = LexicalScorer.from_table(TABLE)
    documents = [[3, 9, 20], [9, 12], [31, 5]]
    together = scorer.begin([9, 20], documents).scores([12, 31])
    alone = [scorer.begin([9, 20], [document]).scores([12, 31])[0] for document in documents]
    assert together.tolist() == alone


def test_nothing_in_common_and_nothing_at_all_score_zero() -> None:
    scorer = LexicalScorer.from_table(TABLE)
    assert scorer.begin([30], [[31], []]).scores([]).tolist() == [0.0, 0.0]
    assert scorer.begin([], [[31]]).scores([]).tolist() == [0.0]
    assert scorer.begin([], []).scores([4]).tolist() == []


def test_the_identity_changes_with_all_that_changes_the_numbers(tmp_path: Path) -> None:
    save_file({"idf": TABLE}, tmp_path / "idf.safetensors")
    loaded = LexicalScorer.load(tmp_path, 7.0)
    assert loaded.identity == LexicalScorer.from_table(TABLE, 7.0).identity
    assert loaded.identity.startswith("lexical:7:")
    assert loaded.identity != LexicalScorer.from_table(TABLE, 8.0).identity
    assert loaded.identity != LexicalScorer.from_table(TABLE[::-1].copy(), 7.0).identity


def test_a_folder_without_a_usable_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is missing"):
        LexicalScorer.load(tmp_path)
    save_file({"idf": TABLE.reshape(2, -1)}, tmp_path / "idf.safetensors")
    with pytest.raises(ValueError, match=r"shape \[vocab\]"):
        LexicalScorer.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "can't be read: it is damaged, or no safetensors file"),
        (b"noise" * 100, "can't be read: it is damaged, or no safetensors file"),
        (save({"idf": TABLE})[:-1], "can't be read: it is damaged, or no safetensors file"),
        ((2**62).to_bytes(8, "little") + b"{}", "can't be read: it is damaged, or no safetensors file"),
        (save({"idf": TABLE.astype(np.float64)}), "and type float32"),
        (save({"other": TABLE}), "has no table"),
        (save({"idf": np.where(TABLE > 3, np.float32("nan"), TABLE)}), "a weight is not finite or negative"),
        (save({"idf": np.where(TABLE > 3, np.float32("inf"), TABLE)}), "a weight is not finite or negative"),
        (save({"idf": -TABLE}), "a weight is not finite or negative"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "idf.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        LexicalScorer.load(tmp_path)


def test_an_endless_table_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "idf.safetensors").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="has no table"):
        LexicalScorer.load(tmp_path)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_bad_scale_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        LexicalScorer.from_table(TABLE, scale)
