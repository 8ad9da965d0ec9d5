"""Tables that a suite writes into the documents, and that documents ask for those that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import __main__ as bench
from scripts.bench import measuring
from scripts.bench import publish as publishing
from scripts.bench.measuring import Table
from scripts.bench.publish import BEGIN, publish, published
from scripts.bench.results import TEXT_FOLDER, Results
from scripts.daemons import ROOT

STAMP = re.compile(r"<!-- end: (?:by hand in )?commit (?P<began>[0-9a-f]+)(?:-dirty)?(?: to (?P<ended>[0-9a-f]+))?")
DOCUMENT = """# Results

<!-- speed: Tokens -->
old
<!-- end: commit 1 -->

<!-- other: Tokens -->
| a |
|---|
<!-- end -->
"""
TITLE = "Tokens per second, alone"
TABLE = "| n | rate |\n| --- | --- |\n| 1 | 20 |"
RECORD: dict[str, Any] = {
    "suite": "speed",
    "machine": {"commit": "1a2b", "processor": "a small one"},
    "pictures": ["speed-rates.png", "speed-more.png"],
    "tables": {TITLE: {"heads": ["n", "rate"], "rows": [["1", "20"]]}},
}


class Said(list[str]):
    """Sentences that were said."""

    def __call__(self, sentence: str) -> None:
        self.append(sentence)


def test_a_table_takes_the_place_of_what_was_between_its_marks() -> None:
    said = Said()
    text = published(DOCUMENT, RECORD, "now", said)
    assert f"<!-- speed: Tokens -->\n\n*{TITLE}*\n\n{TABLE}\n\n<!-- end: now -->" in text
    assert "old" not in text
    assert text.startswith("# Results\n\n")
    assert text.endswith(DOCUMENT[DOCUMENT.index("<!-- other") :])
    assert published(text, RECORD, "now", said) == text
    assert not said


def test_a_title_that_is_the_mark_s_is_not_said_twice() -> None:
    text = published(DOCUMENT.replace("speed: Tokens", f"speed: {TITLE}"), RECORD, "now", Said())
    assert f"<!-- speed: {TITLE} -->\n\n{TABLE}\n\n<!-- end: now -->" in text


@pytest.mark.parametrize("tables", [{}, {"Others": RECORD}, {"Tokens a": RECORD, "Tokens b": RECORD}])
def test_a_table_that_the_run_does_not_have_stays(tables: dict[str, Any]) -> None:
    """As that of texts that were not there, in a suite that measured others."""
    said = Said()
    assert published(DOCUMENT, RECORD | {"tables": tables}, "now", said) == DOCUMENT
    (sentence,) = said
    assert sentence.startswith("the table 'Tokens' stays as it is")


def test_a_mark_without_an_end_swallows_no_text() -> None:
    said = Said()
    unended = DOCUMENT.replace("<!-- end: commit 1 -->", "Text that people wrote.")
    assert published(unended, RECORD, "now", said) == unended
    assert said == ["the table 'Tokens' stays as it is: it has no end mark"]
    assert "| 1 | 20 |" in published(unended, RECORD | {"suite": "other"}, "now", said)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Documents with pictures, and a folder `build` that runs of several suites have drawn into."""
    for name in ("docs/figures", "build"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "README.md").write_text(DOCUMENT)
    (tmp_path / "docs" / "page.md").write_text("nothing")
    for name in ("speed-rates", "speed-link-rates", "speed-before"):
        (tmp_path / "docs" / "figures" / f"{name}.png").write_text("before")
    for name in ("speed-rates", "speed-more", "speed-link-rates", "speed-before", "others-rates"):
        (tmp_path / "build" / f"{name}.png").write_text("drawn")
    return tmp_path


def test_pictures_of_the_run_take_the_place_of_those_that_documents_have(folder: Path) -> None:
    """Those of a suite whose name begins alike do not, nor one that another run has left."""
    figure = folder / "docs" / "figures" / "speed-rates.png"
    assert publish(RECORD, folder / "build", folder, print) == [folder / "README.md", figure]
    assert {path.name: path.read_text() for path in figure.parent.iterdir()} == {
        "speed-rates.png": "drawn",
        "speed-link-rates.png": "before",
        "speed-before.png": "before",
    }
    assert (folder / "docs" / "page.md").read_text() == "nothing"


def test_pictures_are_those_that_were_drawn(tmp_path: Path) -> None:
    results = Results("speed", tmp_path)
    with results.figure("rates", title="Rates"):
        pass
    assert results.record["pictures"] == [path.name for path in tmp_path.glob("*.png")] == ["speed-rates.png"]


@pytest.mark.parametrize(("now", "told"), [("1a2b", "1a2b, "), ("3c4d", "1a2b to 3c4d, ")])
def test_a_table_tells_of_the_commit_that_was_measured(
    now: str, told: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of the one that the run ended with: daemons that are started later are of that."""
    monkeypatch.setattr(publishing, "code", lambda: now)
    publish(RECORD, folder / "build", folder, print)
    assert f"<!-- end: commit {told}" in (folder / "README.md").read_text()


@pytest.mark.parametrize(("others", "told"), [(0, "1a2b"), (1, "1a2b-dirty")])
def test_documents_make_no_other_commit(others: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite before has just written its tables into them."""
    monkeypatch.setattr(measuring, "commit", lambda: "1a2b-dirty")
    monkeypatch.setattr(subprocess, "run", lambda *command, **how: subprocess.CompletedProcess(command, others))
    assert measuring.code() == told


def measure(results: Results) -> None:
    results.table("Speed", Table(["what", "how fast"], [["a token", "10 ms"]]))


def test_a_suite_without_its_texts_keeps_no_other_from_being_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TEXT_FOLDER, raising=False)
    suites = ["retrieval", "questions"]
    monkeypatch.setitem(bench.SUITES, "short", ("one table", f"{__name__}:measure"))
    bench.main(["--folder", str(tmp_path), "--short", *suites, "short"])
    assert (tmp_path / "short.json").is_file()
    said = capsys.readouterr().err
    assert [name for name in suites if f"{name}: nothing was measured: " not in said] == []
    assert [name for name in suites if (tmp_path / f"{name}.json").exists()] == []


def test_short_runs_are_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--short", "--publish", "engine"])
    assert "not to be published" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_documents_ask_suites_that_there_are_and_have_their_tables(path: Path) -> None:
    text = path.read_text("utf-8")
    for mark in BEGIN.finditer(text):
        assert mark["suite"] in bench.SUITES
        rest = text[mark.end() :]
        table = rest[: rest.index("<!-- end")]
        assert not BEGIN.search(table), "a mark without an end"
        assert re.search(r"^\|( --- \|)+$", table, re.M), f"{mark[0]} has no table yet"


def test_measured_commits_are_those_of_this_history() -> None:
    if not (ROOT / ".git").exists() or _git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this checkout has no history")
    stamps = {
        commit
        for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for stamp in STAMP.finditer(path.read_text("utf-8"))
        for commit in stamp.groups()
        if commit
    }
    known = _git("rev-list", "HEAD").split()
    assert stamps
    assert [commit for commit in stamps if not any(each.startswith(commit) for each in known)] == []


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
