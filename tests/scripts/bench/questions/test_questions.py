"""The questions of the suite `questions` fit their notes and, where the folder of texts is there, the public texts."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from scripts.bench.questions.judge import right
from scripts.bench.questions.suite import ASKED, NOTES, PEPS, QUESTIONS, Question, first_of_each, read
from scripts.bench.results import TEXT_FOLDER, NoText

PUBLIC = Path(os.environ.get(TEXT_FOLDER, "/nowhere")) / "peps"
ANSWERED = [each for each in QUESTIONS if each.parts]


def test_there_are_so_many_of_each_kind() -> None:
    assert Counter(each.kind for each in QUESTIONS) == {"device": 20, "cloud": 20, "both": 20, "nobody": 60}
    assert len({each.text for each in QUESTIONS}) == len(QUESTIONS)
    assert Counter(each.kind for each in first_of_each(2)) == {"device": 2, "cloud": 2, "both": 2, "nobody": 4}
    assert Counter(each.near for each in QUESTIONS) == {None: 60, "device": 30, "cloud": 30}
    assert len(PEPS) == 60
    assert PEPS >= ASKED


@pytest.mark.parametrize("question", [each for each in ANSWERED if each.note], ids=lambda each: each.note)
def test_only_its_note_has_the_private_part(question: Question) -> None:
    private = question.parts[:1]
    assert right(NOTES[question.note], private)
    assert not right(question.text, private)
    if question.kind == "both":
        assert not right(NOTES[question.note], question.parts[1:])


@pytest.mark.parametrize("question", [each for each in ANSWERED if each.kind == "device"], ids=lambda each: each.note)
def test_who_quotes_the_whole_note_answers_its_question(question: Question) -> None:
    """Whatever else stands there."""
    assert right(NOTES[question.note], question.parts, question.wrong)


def test_no_question_answers_its_public_part() -> None:
    assert not [each.text for each in ANSWERED if each.pep and right(each.text, each.parts[-1:])]


@pytest.mark.skipif(not PUBLIC.is_dir(), reason=f"{TEXT_FOLDER} names no folder of proposals")
def test_the_public_parts_stand_in_their_texts() -> None:
    texts = read(PUBLIC, PEPS)
    assert not [
        (each.pep, each.parts[-1])
        for each in ANSWERED
        if each.pep and not right(texts[f"pep-{each.pep:04}"], each.parts[-1:])
    ]


def test_texts_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "pep-0020.rst").write_text("PEP: 20\n")
    assert read(tmp_path, [20]) == {"pep-0020": "PEP: 20\n"}
    with pytest.raises(NoText, match=r"lacks pep-0007\.rst, pep-3102\.rst"):
        read(tmp_path, [3102, 20, 7])
