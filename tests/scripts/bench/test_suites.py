"""Every suite runs in short by its command, shows tables, keeps samples and draws. How long anything takes, or how good
it is, is not tested; what must hold in any run is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from common.configuration.settings import EMBEDDED_MODEL, default_model
from scripts.bench.__main__ import SUITES, main
from scripts.bench.questions.suite import SHORT_QUESTIONS, first_of_each
from scripts.bench.results import TEXT_FOLDER
from scripts.bench.rows import Row, where
from tests.scripts.bench.published import marked

pytestmark = [pytest.mark.suite, pytest.mark.timeout(900)]  # daemons to start, on a busy machine

SAME_IN_SHORT = {"methods-grid": "methods"}
NOT_IN_SHORT = ("Eager answers",)  # which have a column for each distance
OF_REAL_TEXT = ("questions", "weights", "peers", "conversations")
PICTURES = {
    "latency": 2,
    "methods": 2,
    "papers": 12,
    "sessions": 1,
}
HEAD = "PEP: {number}\nTitle: {title}\nAuthor: {author}\nStatus: {status}\n"
BODY = "The proposal says what is to be done, why it is to be done, and what was not done although somebody asked. " * 8
PROPOSALS = {8: "Style guide", 484: "Type hints", 572: "Assignment expressions"}
MORE = {each.pep: f"Question {each.pep}" for each in first_of_each(SHORT_QUESTIONS) if each.pep}


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of proposals, for the suites that measure on text."""
    folder = tmp_path / "texts"
    (folder / "peps").mkdir(parents=True)
    for number, title in PROPOSALS.items():
        head = HEAD.format(number=number, title=title, author="A. Writer", status="Final")
        (folder / f"pep-{number:04}.rst").write_text(f"{head}\n{title}\n{'=' * 30}\n\n{BODY}")
    for place, (number, title) in enumerate((PROPOSALS | MORE).items()):
        head = HEAD.format(number=number, title=title, author=f"Author {title}", status=("Final", "Draft")[place % 2])
        text = f"{head}Python-Version: 3.{place}\n\n{title}\n{'=' * 30}\n\n{title}. {BODY}"
        (folder / "peps" / f"pep-{number:04}.rst").write_text(text)
    (folder / "wikitext-2").mkdir()
    (folder / "wikitext-2" / "test.txt").write_text(f" = Proposals = \n\n{BODY * 4}")
    monkeypatch.setenv(TEXT_FOLDER, str(folder))


def of_methods(rows: list[Row]) -> None:
    """The report tells the bytes that are on the line."""
    for row in rows:
        assert row["mode"] == "draft alone" or row["forwarded_up"] > row["sent"]
        assert row["mode"] == "draft alone" or row["forwarded_down"] > row["received"]
        assert row["tokens"] == 12


def of_papers(rows: list[Row]) -> None:
    """Numbers that equations fix are the printed ones, and the exact order keeps the law of the target."""
    printed = where(rows, figure="DSSD 1")
    assert all(abs(row["ms"] - row["printed_ms"]) < 0.0051 for row in printed)
    (bits,) = where(rows, figure="QSV bits", resolution=64)
    assert bits["fixed"] == 704
    exact = [row["moved"] for row in where(rows, figure="QSV 3") if row["way"].startswith("Q-S")]
    assert max(exact) < 1e-9
    drafted = where(rows, figure="DSSD 2")
    assert max(row["sent"] / row["rounds"] for row in where(drafted, family="DSSD")) < 200
    assert min(row["sent"] / row["rounds"] for row in where(drafted, family="DSD")) > 10_000


def of_privacy(rows: list[Row]) -> None:
    """The attacker computes what the product does: nothing that was seen speaks against the device's note."""
    for row in where(rows, way="race"):
        seen = {attacker: logs[row["secret"]] for attacker, logs in row["logs"].items() if attacker != "text"}
        assert len(seen) == 5 and not any(seen.values())
    for row in where(rows, way="secret"):  # a token with a question, or without, is part of that token
        pairs = zip(row["logs"]["secret"], row["logs"]["text"], strict=True)
        assert all(seen <= text + 1e-3 for seen, text in pairs)
    assert {row["mode"] for row in where(rows, part="speed")} == {"strict", "balanced", "secret", "token by token"}


def of_questions(rows: list[Row]) -> None:
    assert Counter(row["way"] for row in rows) == {"a row per document": 10, "all texts in one context": 10}
    assert all(row["text"] and (row["found"] or row["doubted"]) for row in rows)  # far documents take no part
    assert not any(row["right"] for row in where(rows, kind="nobody"))


def of_retrieval(rows: list[Row]) -> None:
    assert {row["rank"] for row in where(rows, search="keyword")} == {1}
    recalls = [row["recall"] for row in rows if "recall" in row]
    assert min(recalls) >= 0.9  # all lists of so few are looked into; texts that are equal are equally near


def of_sessions(rows: list[Row]) -> None:
    """Every answer is complete, and is what the cloud says alone; a drafting device is followed now and then."""
    played = [row for row in where(rows, plan=0) if row["kind"] != "bare model"]
    assert played and not any(row["differing"] for row in played)
    assert all(row["tokens"] == 16 * row["sessions"] for row in played)
    drafting = where(played, kind="drafting")
    assert sum(row["rollbacks"] for row in drafting) > 0
    assert all(row["device_weight"] == pytest.approx(0.1, abs=0.1) for row in drafting)


def of_weights(rows: list[Row]) -> None:
    """Codes repeat to the bit, and say what their plain numbers say."""
    assert {row["exactness"] for row in rows} == {"bit-exact"}
    stored, plain = where(rows, read="stored"), where(rows, read="bfloat16")
    assert all("int4" in row["weights"] for row in stored) and {row["weights"] for row in plain} == {"bfloat16"}
    for row, other in zip(stored, plain, strict=True):
        assert row["perplexity"] == pytest.approx(other["perplexity"], rel=0.05)


def of_peers(rows: list[Row]) -> None:
    """A process loads the file, and answers with one row and with four."""
    assert [row["rows"] for row in where(rows, side="dragon")] == [1, 4]
    assert all(row["steps"] > 0 and row["memory"] > row["file"] for row in rows)


CHECKS: dict[str, Callable[[list[Row]], None]] = {
    "methods": of_methods,
    "papers": of_papers,
    "privacy": of_privacy,
    "peers": of_peers,
    "questions": of_questions,
    "retrieval": of_retrieval,
    "sessions": of_sessions,
    "weights": of_weights,
}


@pytest.mark.parametrize("name", [name for name in SUITES if name not in SAME_IN_SHORT])
def test_a_suite_in_short(name: str, tmp_path: Path) -> None:
    if name in OF_REAL_TEXT and default_model() == str(EMBEDDED_MODEL):
        pytest.skip("the package with the model of real text is not installed")
    folder = tmp_path / "bench"
    main([name, "--short", "--folder", str(folder)])
    record = json.loads((folder / f"{name}.json").read_text())
    assert record["short"] and record["machine"]["versions"]["torch"]
    run, *rows = (json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines())
    assert (run["suite"], run["short"]) == (name, True)
    assert rows and record["tables"]
    for table in record["tables"].values():
        assert all(len(row) == len(table["heads"]) for row in table["rows"])
    for suite, title, heads in marked():
        if suite == name and title not in NOT_IN_SHORT:
            (table,) = [table for named, table in record["tables"].items() if named.startswith(title)]
            assert [head.strip() for head in table["heads"]] == heads, f"the documents have other columns: {title}"
    pictures = list(folder.glob(f"{name}-*.png"))
    assert len(pictures) >= PICTURES.get(name, 0)
    assert all(picture.stat().st_size > 1000 for picture in pictures)
    if name in CHECKS:
        CHECKS[name](rows)
