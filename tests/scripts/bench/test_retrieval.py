"""The retrieval suite in its short form: every way embeds, every kind of search is asked, exactly and approximately."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.retrieval import questions, run

pytestmark = pytest.mark.suite

SUBJECTS = {8: "Style guide", 484: "Type hints", 572: "Assignment expressions"}
BODY = "The proposal says what is to be done, why it is to be done, and what was not done although somebody asked. " * 4


@pytest.fixture
def proposals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "proposals"
    folder.mkdir()
    for number, title in SUBJECTS.items():
        head = f"PEP: {number}\nTitle: {title}\nAuthor: A. Writer\nStatus: Final\n"
        (folder / f"pep-{number:04}.rst").write_text(
            f"{head}\n\nStatus: not of the head\n\n{title}\n{'=' * 30}\n\n{BODY}"
        )
    monkeypatch.setenv(TEXT_FOLDER, str(folder))
    return folder


def test_questions_are_of_what_the_head_says(proposals: Path) -> None:
    asked = questions(proposals.iterdir(), 2)
    assert {question.kind for question in asked} == {"author, by title", "status, by number"}
    assert len(asked) == 4
    assert all(question.file == "pep-0484.rst" for question in asked if "PEP 484?" in question.text)


def test_without_proposals_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEXT_FOLDER, str(tmp_path))
    with pytest.raises(NoText, match=r"pep-\*\.rst"):
        run(Results("retrieval", tmp_path / "bench", short=True))
