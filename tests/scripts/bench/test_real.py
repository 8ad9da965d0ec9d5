"""The suite of the default model on real text: its questions and scores, and its parts with the embedded model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from common.configuration.settings import EMBEDDED_MODEL
from common.library.embedder import SentenceTransformerEmbedder
from common.scoring.relevance import BiEncoder, load_relevance_model
from device.settings import DeviceSettings
from scripts.bench.plan import Plan
from scripts.bench.positions import follow
from scripts.bench.real import answers, latency, proposals
from scripts.bench.real.articles import articles
from scripts.bench.real.model import RealTexts
from scripts.bench.real.plan import FULL
from scripts.bench.real.scores import contains, f1
from tests.scripts.bench.test_latency import answered

pytestmark = pytest.mark.suite

HEADER = """PEP: 9{number}
Title: A Proposal About
       Matter {number}
Author: Ada Example <ada at example.org>, Bob Sample (bob@example.org)
Status: {status}
Python-Version: 3.{number}

Abstract
========

This proposal changes
``matter`` {number}.

Motivation
==========

Other text.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(1, 7):
        status = "Final" if number % 2 else "Rejected"
        (tmp_path / f"pep-900{number}.rst").write_text(HEADER.format(number=number, status=status))
    (tmp_path / "pep-9007.rst").write_text("PEP: 97\nTitle: Without an author\nStatus: Draft\n\nText\n")
    return tmp_path


class TestProposals:
    def test_a_header_is_read(self, folder: Path) -> None:
        first, *others = proposals.read_proposals(folder)
        assert len(others) == 5
        assert (first.number, first.title) == (91, "A Proposal About Matter 1")
        assert first.authors == ("Ada Example", "Bob Sample")
        assert (first.status, first.version) == ("Final", "3.1")
        assert first.entry == (
            "PEP 91 – A Proposal About Matter 1. PEP 91 was written by Ada Example and Bob Sample. "
            "The status of PEP 91 is Final. It is for Python 3.1.\n\nThis proposal changes matter 1."
        )

    def test_a_question_needs_its_note_and_an_entry(self, folder: Path) -> None:
        known = proposals.read_proposals(folder)
        # All have the same authors, so questions about those can't be made of these.
        known = [replace(each, authors=(f"Author {each.number}",)) for each in known]
        texts, asked = proposals.draw(known, 6, seed=1)
        assert [each.kind for each in asked] == [proposals.NAMED] * 3 + [proposals.ONE_OF_THREE] * 3
        facts = ["authors", "version", "status"] * 2
        for note, question, fact in zip(texts.documents["device"], asked, facts, strict=True):
            (meant,) = [each for each in known if f"PEP {each.number}," in note]
            named = [each for each in known if f"PEP {each.number}" in question.text]
            assert meant in named
            value = getattr(meant, fact)
            assert question.answers == (value if fact == "authors" else (value,))
            assert [getattr(each, fact) for each in named].count(value) == 1
            if question.kind == proposals.NAMED:
                assert named == [meant]
                assert note.endswith(f"together with {question.also}.")
                assert question.also not in meant.entry
            else:
                assert len(named) == 3
        assert proposals.draw(known, 6, seed=1) == (texts, asked)


class TestScores:
    def test_a_sentence_with_the_fact_matches(self) -> None:
        assert contains("It was written by the Ada  Example.", ["Ada Example"])
        assert contains("It is for Python 3.1.", ["3.1"])
        assert not contains("It is for Python 3.12.", ["3.1"])
        assert not contains("Ada wrote an example.", ["Ada Example"])

    def test_f1_counts_what_is_said_too_much(self) -> None:
        assert f1("Ada Example", ["Ada Example"]) == 1.0
        assert f1("Ada Example wrote it", ["Ada Example", "Bob"]) == pytest.approx(2 * 2 / 6)
        assert f1("nobody", ["Ada"]) == 0.0


def test_articles_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" \n = One = \n \n Text . \n = = Part = = \n More . \n \n = Two = \n Other . \n")
    found = dict(articles(tmp_path))
    assert list(found) == ["One", "Two"]
    assert "= = Part = =" in found["One"]
    assert "Other" in found["Two"]


def test_a_row_without_a_document_weighs_the_others(folder: Path) -> None:
    """Weights that read the model's predictions differ from those that don't, and each side's evidence with them."""
    known = [replace(each, authors=(f"Author {each.number}",)) for each in proposals.read_proposals(folder)]
    texts, _ = proposals.draw(known, 1, seed=1)
    found = {}
    for scorer in ("contrast", "static"):
        settings = DeviceSettings(data=folder, model="embedded", scorer=scorer, threads=1)
        with torch.inference_mode():
            found[scorer] = list(follow(RealTexts(texts, settings), texts.questions[0], 2, 1.0, 3, 6))
    assert all(0 <= position.total_variation <= 1 for position in found["contrast"])
    assert all(entropy > 0 for entropy in (position.entropy for position in found["contrast"]))
    without = found["static"][0].evidence  # the same at every position
    gains = [more - less for each in found["contrast"] for more, less in zip(each.evidence, without, strict=True)]
    assert min(gains) >= 0
    assert max(gains) > 0


@pytest.mark.timeout(300)
def test_every_question_is_asked_of_every_method(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WEIGHTS", {"static": "static weights"})
    known = [replace(each, authors=(f"Author {each.number}",)) for each in proposals.read_proposals(folder)]
    texts, asked = proposals.draw(known, 2, seed=1)
    plan = Plan(questions=2, tokens=4, documents=(2,))
    found = answers.measure(texts, asked, {"model": str(EMBEDDED_MODEL)}, plan, print)
    methods = [*answers.METHODS, *(f"DRAGON, {weights}" for weights in answers.WEIGHTS.values())]
    assert [(each.method, each.question) for each in found] == [
        (method, number) for method in methods for number in range(2)
    ]
    assert all(each.text for each in found)
    assert [row[0] for row in answers.table(found).rows] == methods


def test_both_halves_are_asked_for() -> None:
    asked = proposals.Asked("With whom, and who wrote it?", ("Ada Example", "Bob Sample"), proposals.NAMED, "Elif")

    def halves(text: str) -> tuple[bool | None, bool, bool]:
        judged = answers.judged("m", 0, asked, {"choices": [{"message": {"content": text}}]})
        return judged.note, judged.entry, judged.both

    assert halves("You review it with Elif; Bob Sample wrote it.") == (True, True, True)
    assert halves("You review it with Elif.") == (True, False, False)
    assert halves("Ada Example wrote it.") == (False, True, False)


def test_a_row_is_named_for_the_model_that_weighs_in_it(tmp_path: Path) -> None:
    """Daemons without a `scorer_model` have no other model than the library's, which embeds texts one by one."""
    settings = DeviceSettings(data=tmp_path, scorer="cross-encoder")
    assert isinstance(load_relevance_model(settings.scorer_model, SentenceTransformerEmbedder(), "cpu"), BiEncoder)
    assert answers.WEIGHTS[settings.scorer] == "bi-encoder weights"


def test_shares_have_an_interval_wherever_they_are() -> None:
    wrong = [answers.Answer("m", number, proposals.NAMED, "", False, number == 0, 0.0) for number in range(20)]
    (row,) = answers.table(wrong).rows
    assert row == ["m", "0.00 [0.00-0.16]", "0.00 [0.00-0.16]", "0.05 [0.01-0.24]", "0.00"]


def test_latency_is_told_over_the_slower_side() -> None:
    plan = FULL.latency
    of: dict[str, Any] = {
        "floors": "0/0",
        "temperature": 0.7,
        "sent": {"question": 300, "tokens": 60, "probabilities": 40},
        "received_bytes": 1600,
    }
    found = [answered(mode.name, 100.0 if mode.name == "cloud only" else 120.0, **of) for mode in plan.modes]
    rows = {row[1]: row for row in latency.table(found, plan).rows}
    race = next(answer for answer in found if answer.mode == "race/device")
    assert str(rows["race/device"][4]).startswith(f"{race.whole / race.tokens / 120:.2f} (")
    assert rows["race/device"][7:] == ["10 / 160", "100.0"]
    assert latency.differing(found, plan) == (0, 6)
    other = answered("race/mirrored", 1.0, **of | {"pieces": ["x"]})
    assert latency.differing([*found, other], plan) == (1, 7)
