"""Asks two daemons what a note says, what a public text says, what both say together, and what nobody says.

The folder that `DRAGON_BENCH_TEXT` names holds `peps/pep-*.rst`, the cloud's library.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from proto.fields import Side
from scripts.bench.asking import check_whole, pair_of
from scripts.bench.citations import doubted
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table, grouped, mean_interval, share_interval
from scripts.bench.plan import Plan
from scripts.bench.questions import rows
from scripts.bench.questions.judge import abstains, right
from scripts.bench.questions.notes import NOTES
from scripts.bench.questions.public import ASKED, PEPS, read
from scripts.bench.questions.questions import QUESTIONS, Kind, Question, first_of_each
from scripts.bench.questions.rows import Row
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.daemons import Pair, fill_library

FULL: Final = Plan(questions=len(QUESTIONS), tokens=40, documents=(4,))
SHORT: Final = replace(FULL, questions=2, tokens=8)  # of each kind
NO_WAIT: Final = 60.0  # seconds; an answer that goes on without the cloud is another one
ANSWERABLE: Final[tuple[Kind, ...]] = ("device", "cloud", "both")
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


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, judged. Times are milliseconds."""

    row: str
    number: int  # of the question
    kind: Kind
    near: Side | None  # whose documents are close to the question, where nobody answers it
    question: str
    text: str
    right: bool
    abstains: bool
    doubted: bool
    found: tuple[str, ...]  # titles of the documents that were read
    ttft: float
    per_token: float | None  # None: no second token
    tokens: int


def run(results: Results) -> None:
    """The entry of `make bench`. Raises `NoText`."""
    folder = Path(os.environ.get(TEXT_FOLDER, "")) / "peps"
    if not os.environ.get(TEXT_FOLDER) or not folder.is_dir():
        raise NoText(f"set {TEXT_FOLDER} to a folder with peps/pep-*.rst")
    if default_model() == str(EMBEDDED_MODEL):
        raise NoText("there is no model of real text: `make setup` installs the package that brings it")
    plan, asked, chosen = FULL, QUESTIONS, rows.ROWS
    if results.short:
        plan, asked, chosen = SHORT, first_of_each(SHORT.questions), rows.SHORT
    numbers = {each.pep for each in asked} & ASKED if results.short else PEPS
    public = read(folder, numbers)
    found: list[Answered] = []
    try:
        found += measure(public, asked, chosen, plan, results.say)
    finally:  # what was asked took its time, whatever ends the run
        results.samples("questions", {"plan": plan.sizes(), "answers": found})
    judged_table = table(found)
    results.table("Questions judged", judged_table, NOTE)
    results.table("In short", judged_table.columns(IN_SHORT))
    results.table("Questions that nobody answers", unanswered(found), NOTE_UNANSWERED)


def measure(
    public: Mapping[str, str], asked: Sequence[Question], chosen: Sequence[Row], plan: Plan, say: Callable[[str], None]
) -> Iterator[Answered]:
    """Every question by every row, at temperature 0, by one client. Rows of like settings share their daemons.

    Raises `RuntimeError` where the device decided tokens alone.
    """
    own: dict[str, object] = {"model": default_model(), "models": default_models(), "search": "hybrid"}
    (documents,) = plan.documents
    law = {"temperature": 0, "documents": documents}
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        data = Path(folder)
        fill_library(data, "device", NOTES)
        fill_library(data, "cloud", public, ".rst")
        say(f"{len(NOTES)} notes and {len(public)} public texts in the libraries")
        for same in grouped(chosen, lambda row: tuple(sorted(row.settings.items()))).values():
            settings = own | dict(same[0].settings)
            with pair_of(data, settings | {"patience": NO_WAIT}, settings) as pair:
                for question in asked:  # reads the documents of every question once
                    pair.complete(question.text, **law, max_tokens=1)
                for row in same:
                    for number, question in enumerate(asked):
                        yield ask(pair, row, number, question, law | {"max_tokens": plan.tokens})
                    say(f"{row.name}: {len(asked)} answers")


def ask(pair: Pair, row: Row, number: int, question: Question, law: Mapping[str, object]) -> Answered:
    """The judged answer to one question. Raises `RuntimeError` where the device decided tokens alone."""
    response = pair.complete(question.text, **{**law, **row.fields})
    check_whole(response["dragon"], f"{row.name}, {question.text}")
    return judged(row.name, number, question, response)


def judged(row: str, number: int, question: Question, response: Mapping[str, Any]) -> Answered:
    """An answer as the HTTP interface gave it, judged."""
    report, text = response["dragon"], response["choices"][0]["message"]["content"].strip()
    return Answered(
        row,
        number,
        question.kind,
        question.near,
        question.text,
        text,
        bool(question.parts) and right(text, question.parts, question.wrong),
        abstains(text),
        doubted(report),
        tuple(source["title"] for source in report["sources"]),
        1e3 * report["ttft"],
        1e3 * report["per_token"] if report["tokens"] > 1 else None,
        report["tokens"],
    )


def table(found: Sequence[Answered]) -> Table:
    """A row for each way of reading; all rows have the same questions in the same order."""
    by_row = grouped(found, lambda each: each.row)
    first = [each.right for each in next(iter(by_row.values())) if each.kind != "nobody"]
    lines = []
    for name, answers in by_row.items():
        known = [each for each in answers if each.kind != "nobody"]
        unknown = [each for each in answers if each.kind == "nobody"]
        gained = [float(each.right) - float(before) for each, before in zip(known, first, strict=True)]
        steps = [each.per_token for each in answers if each.per_token is not None]
        lines.append(
            [
                name,
                *(_share([each.right for each in known if each.kind == kind]) for kind in ANSWERABLE),
                _share([each.right for each in known]),
                mean_interval(gained, signed=True),
                _share([each.abstains for each in unknown]),
                _share([each.doubted for each in unknown]),
                _share([each.abstains and not each.right for each in known]),
                _share([each.doubted for each in known if each.right]),
                _share([each.doubted for each in known if not each.right]),
                f"{median(each.ttft for each in answers):.0f}",
                f"{median(steps):.0f}" if steps else "",
            ]
        )
    return Table(list(HEADS), lines)


def unanswered(found: Sequence[Answered]) -> Table:
    """A row for each way of reading: what is said of questions that no document answers, by the side they are near."""
    lines = []
    for name, answers in grouped(found, lambda each: each.row).items():
        near = [[each for each in answers if each.near == side] for side in SIDES]
        said = [_share([each.abstains for each in these]) for these in near]
        doubts = [_share([each.doubted for each in these]) for these in near]
        either = [_share([each.abstains or each.doubted for each in these]) for these in near]
        lines.append([name, *(cell for cells in zip(said, doubts, either, strict=True) for cell in cells)])
    return Table(list(HEADS_UNANSWERED), lines)


HEADS: Final = (
    "read as",
    "device's right",
    "cloud's right",
    "both's right",
    "all right",
    "against the first",
    "nobody's: model says so",
    "nobody's: dragon says so",
    "answerable: model refused",
    "right: dragon doubted",
    "wrong: dragon doubted",
    "TTFT, ms",
    "ms per token",
)
IN_SHORT: Final = ("read as", "all right", "against the first", "nobody's: dragon says so", "TTFT, ms")
HEADS_UNANSWERED: Final = (
    "read as",
    "near notes: model says so",
    "near notes: dragon says so",
    "near notes: either",
    "near public texts: model says so",
    "near public texts: dragon says so",
    "near public texts: either",
)


def _share(counted: Sequence[bool]) -> str:
    return share_interval(sum(counted), len(counted))
