"""The quality suite: its mixture, its corpus, and a short run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.bench.quality.corpus import TEXT_FOLDER, Corpus, NoText, spread
from scripts.bench.quality.perplexity import mixture

pytestmark = pytest.mark.suite

WORDS = ["alpha", "beta", "gamma", "delta", "house", "tree", "river", "mill", "stone", "harbour"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(" ".join(random.choice(WORDS, 300)))
    return folder


def test_aggregating_per_side_and_then_both_is_one_mixture() -> None:
    """Eq. 1 on each side, then η from the evidences, against the weights over all documents."""
    random = np.random.default_rng(1)
    log_likelihood = np.log(random.uniform(0.01, 1.0, (4, 6)))
    similarity = random.uniform(0.2, 0.4, 4).astype(np.float32)
    scores = 20.0 * similarity.astype(np.float64)
    sides = []
    for side in (slice(0, 2), slice(2, 4)):
        evidence = np.logaddexp.reduce(scores[side])
        sides.append((evidence, np.exp(log_likelihood[side] + (scores[side] - evidence)[:, None]).sum(axis=0)))
    weights = np.exp([evidence - np.logaddexp.reduce(scores) for evidence, _ in sides])
    both = weights[0] * sides[0][1] + weights[1] * sides[1][1]
    assert mixture(log_likelihood, scores[:, None]) == pytest.approx(-float(np.log(both).mean()))


def test_the_halves_of_a_corpus_share_no_text(texts: Path) -> None:
    corpus = Corpus.load(texts)
    assert len(corpus.known) + len(corpus.unseen) == 8
    assert corpus.known
    assert corpus.unseen
    assert not set(corpus.known) & set(corpus.unseen)


def test_a_missing_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(TEXT_FOLDER, raising=False)
    with pytest.raises(NoText, match=TEXT_FOLDER):
        Corpus.load()
    with pytest.raises(NoText, match="holds no two"):
        Corpus.load(tmp_path)


def test_pieces_are_taken_from_everywhere() -> None:
    assert spread([[number] for number in range(10)], 4) == [[0], [3], [6], [9]]
