"""Tables that a suite writes into the documents, and that documents ask for those that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import __main__ as bench
from scripts.bench.publish import BEGIN, UnknownTable, publish, published
from scripts.daemons import ROOT

DOCUMENT = """# Results

<!-- speed: Tokens -->
old
<!-- end: commit 1 -->

<!-- other: Tokens -->
| a |
|---|
<!-- end -->
"""
RECORD: dict[str, Any] = {
    "suite": "speed",
    "machine": {"processor": "a small one"},
    "tables": {"Tokens per second, alone": {"heads": ["n", "rate"], "rows": [["1", "20"]]}},
}


def test_a_table_takes_the_place_of_what_was_between_its_marks() -> None:
    text = published(DOCUMENT, RECORD, "now")
    assert "<!-- speed: Tokens -->\n\n| n | rate |\n| --- | --- |\n| 1 | 20 |\n\n<!-- end: now -->" in text
    assert "old" not in text
    assert text.startswith("# Results\n\n")
    assert text.endswith(DOCUMENT[DOCUMENT.index("<!-- other") :])
    assert published(text, RECORD, "now") == text


@pytest.mark.parametrize("tables", [{}, {"Tokens a": RECORD, "Tokens b": RECORD}])
def test_a_title_names_one_table(tables: dict[str, Any]) -> None:
    with pytest.raises(UnknownTable, match="begin with 'Tokens'"):
        published(DOCUMENT, RECORD | {"tables": tables}, "now")


def test_pictures_take_the_place_of_those_that_documents_have(tmp_path: Path) -> None:
    for folder in ("docs/figures", "build"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text(DOCUMENT)
    (tmp_path / "docs" / "page.md").write_text("nothing")
    (tmp_path / "docs" / "figures" / "speed-rates.png").write_text("before")
    for name in ("speed-rates", "speed-more", "others-rates"):
        (tmp_path / "build" / f"{name}.png").write_text("drawn")
    figure = tmp_path / "docs" / "figures" / "speed-rates.png"
    assert publish(RECORD, tmp_path / "build", tmp_path) == [tmp_path / "README.md", figure]
    assert figure.read_text() == "drawn"
    assert [path.name for path in figure.parent.iterdir()] == ["speed-rates.png"]
    assert (tmp_path / "docs" / "page.md").read_text() == "nothing"


def test_short_runs_are_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--short", "--publish", "dssd-tables"])
    assert "not to be published" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_documents_ask_suites_that_there_are_and_have_their_tables(path: Path) -> None:
    text = path.read_text("utf-8")
    for mark in BEGIN.finditer(text):
        assert mark["suite"] in bench.SUITES
        rest = text[mark.end() :]
        table = rest[: rest.index("<!-- end")]
        assert not BEGIN.search(table), "a mark without an end"
        assert re.search(r"^\|( --- \|)+$", table, re.M), f"{mark[0]} has no table yet"
