"""The scoring benchmark measures what it says. How good or fast anything is, is not tested."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from common.library.embedder import SentenceTransformerEmbedder
from common.scoring.relevance import CrossEncoder, load_relevance_model
from common.scoring.worker import ScoringCost
from scripts.bench.results import Results
from scripts.bench.scoring import suite
from scripts.bench.scoring.suite import SHORT, SHORT_LIBRARY, Answered, Cost, Found, chosen, draw, measure, show
from scripts.bench.scoring.training import TrainingPlan, draw_groups, trained
from tests.scripts.bench.fake_pair import FakePair


def test_the_first_document_of_a_group_is_the_one_that_is_needed() -> None:
    """Named by the question or the answer so far, and no other document is the same."""
    for group in islice(draw_groups(TrainingPlan()), 60):
        first, *others = group.documents
        assert len(others) == TrainingPlan().documents - 1
        assert first not in others
        assert group.text.startswith("Question: ") and "\nAnswer:" in group.text
        words = set(group.text.lower().replace("?", " ").replace(".", " ").split())
        assert words & set(first.lower().replace(".", " ").split()) - {"the", "is", "my", "i", "a", "of", "for"}


def test_what_is_trained_is_a_cross_encoder_and_is_trained_once(tmp_path: Path) -> None:
    plan = TrainingPlan(steps=1, groups=1, documents=3, random_documents=1)
    results = Results("scoring", tmp_path, short=True)
    folder = trained(tmp_path / "model", plan, results)
    weights = (folder / "model.safetensors").stat().st_mtime_ns
    assert (trained(folder, plan, results) / "model.safetensors").stat().st_mtime_ns == weights
    model = load_relevance_model(str(folder), SentenceTransformerEmbedder(), "cpu")
    assert isinstance(model, CrossEncoder)
    assert np.isfinite(model.relevance(["a note", "an entry"])("a question")).all()


def test_a_daemons_last_words_are_understood(tmp_path: Path) -> None:
    log = tmp_path / "cloud.log"
    said = ScoringCost(31, 4, 0.0123, 5, 0.25, 6, 0.5)
    log.write_text(f"cloud ready\n2026-01-01 INFO scoring: {said}\n")
    assert Cost.read(log) == Cost(31, 12.3, 4, 5, 250, 6, 500)
    log.write_text("cloud ready\n")
    assert Cost.read(log) is None


def test_every_scorer_finds_all_documents_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one would wait for what the others find on the disk."""
    pair = FakePair()
    monkeypatch.setattr(suite, "filled", lambda texts: nullcontext(tmp_path))
    monkeypatch.setattr(suite, "pair_of", pair.running)
    monkeypatch.setattr(Cost, "read", lambda log: None)
    (found,) = measure(SHORT, SHORT_LIBRARY, chosen(SHORT, tmp_path, True), Results("scoring", tmp_path, short=True))
    timed = [question for question, fields in pair.asked[-len(found.answers) :]]
    before = [(question, fields["max_tokens"]) for question, fields in pair.asked[: -len(found.answers)]]
    assert before == [(question, 1) for question in timed]


def test_answers_become_a_table_and_a_figure(tmp_path: Path) -> None:
    report = {"per_token": 0.02, "ttft": 0.1, "device": {"acceptance": 0.5}, "cloud": {"acceptance": None}}
    answers = [Answered(mode="", report=report, type=type_, right=type_ != "c") for type_ in "abc"]
    cost = Cost(40, 12.3, 4, 5, 250, 6, 500)
    found = [Found(weights, answers, {"device": cost, "cloud": cost}) for weights in chosen(SHORT, tmp_path, False)]
    (row, *_) = show(found).rows
    assert list(row) == [
        found[0].weights.name,
        "1.00 / 1.00 / 0.00",
        "0.50 / -",
        "20.0",
        "100",
        "12",
        "4.0",
    ]
    draw(Results("scoring", tmp_path), found)
    assert (tmp_path / "scoring-answers.png").is_file()
