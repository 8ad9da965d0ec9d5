"""The suite `citations`: footnotes of the default model's answers, judged, and what it says where no note knows.

A third of the questions is answered by one note each, a third by what any model has read, a third by nobody. Those of
notes are asked again at temperature 1. A footnote is to the point if its question is about the note that it names. A
number that is cited is wrong unless the right answer has it, or the quote has it before the same word.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from common.configuration.settings import default_model, default_models
from device.cli.render import OWN_WORDS, footnotes
from scripts.bench.asking import own_folder
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.bench.rows import Row
from scripts.bench.rows import table as tabulate
from scripts.daemons import Pair, fill_library
from scripts.demo.judge import words

TOKENS: Final = 32
SHORT: Final = 2  # questions of each kind
SEEDS: Final = range(10)  # of each question at temperature 1

TEXTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
NOTES: Final[Mapping[str, str]] = TEXTS["notes"]
NOTE: Final = (
    "Verbatim: every quote of the footnote is a span of its note. Wrong numbers: cited numbers, in digits or in words, "
    "that the right answer lacks, and that stand before another word than in the quote. Doubted: `dragon ask` says "
    "before the answer that no document is close to the question, or below it that nothing is cited."
)


def run(results: Results) -> None:
    """Ask a real pair, and count."""
    with own_folder() as data:
        fill_library(data, "device", NOTES)
        flags = {"model": default_model(), "models": default_models(), "search": "hybrid"}
        with Pair(data, device=flags | {"unmatched": "warn"}, cloud=flags) as pair:
            rows = results.measured(cases(SHORT if results.short else None), partial(ask, pair))
    results.table("Footnotes, judged", table(rows), NOTE)


def cases(most: int | None) -> list[Row]:
    """Questions of each kind, `most` of them; one of a note is about the note that it names."""
    of_notes: list[Row] = [
        {"kind": "of a note", "note": note, "question": question, "answer": answer, "temperature": 0, "seed": 0}
        for note, (question, answer) in list(TEXTS["of_notes"].items())[:most]
    ]
    others = [
        {"kind": kind, "note": "", "question": question, "answer": "", "temperature": 0, "seed": 0}
        for kind, questions in TEXTS["others"].items()
        for question in questions[:most]
    ]
    drawn = [
        {**case, "kind": "of a note, at temperature 1", "temperature": 1, "seed": seed}
        for case in of_notes
        for seed in SEEDS[:most]
    ]
    return [*of_notes, *others, *drawn]


def ask(pair: Pair, case: Row) -> Iterator[Row]:
    """The judged answer to a question."""
    law = {"temperature": case["temperature"], "seed": case["seed"], "max_tokens": TOKENS}
    answer = pair.complete(case["question"], sources="device", **law)
    yield judge(case["note"], case["answer"], answer["choices"][0]["message"]["content"], answer["dragon"])


def judge(note: str, answer: str, text: str, report: Mapping[str, Any]) -> Row:
    """Counts footnotes: all, those that are verbatim, those of `note`, and numbers in them that `answer` lacks."""
    found = [(report["sources"][each["source"]]["title"], each["quotes"]) for each in report["citations"]]
    marked = "".join(
        "".join(report["pieces"][first:end]) + " "
        for _, quotes in found
        for quote in quotes
        for first, end in quote["tokens"]
    )
    return {
        "text": text,
        "quotes": "; ".join(f"{title}: {quote['text']}" for title, quotes in found for quote in quotes),
        "footnotes": len(found),
        "verbatim": sum(all(quote["text"] in NOTES[title] for quote in quotes) for title, quotes in found),
        "to the point": sum(title == note for title, _ in found),
        "wrong numbers": len(
            wrong_numbers(marked, answer, text, [quote["text"] for _, each in found for quote in each])
        ),
        "doubted": doubted(report),
    }


def doubted(report: Mapping[str, Any]) -> bool:
    """Whether `dragon ask` says that no document is close to the question, or that none says the answer."""
    return bool(report["unmatched"]) or footnotes(report)[-1:] == [OWN_WORDS]


def table(rows: Sequence[Row]) -> Table:
    """A line for each kind of question."""
    named = [{**row, "": f"questions {row['kind']}"} for row in rows]
    counts = ("footnotes", "verbatim", "to the point", "wrong numbers", "doubted")
    return tabulate(named, [""], {"answers": len} | {head: partial(_sum, head) for head in counts})


def _sum(field: str, rows: list[Row]) -> int:
    return sum(row[field] for row in rows)


def wrong_numbers(marked: str, answer: str, text: str, quotes: Iterable[str]) -> set[str]:
    """The numbers of the `marked` words of `text` that the right `answer` lacks, but for true ones.

    "60 grams" is true if a quote says "60 grams": nobody asked for it, but it is no invention.
    """
    true = {number for number, _ in _counted(text) & {each for quote in quotes for each in _counted(quote)}}
    return _numbers(marked) - _numbers(answer) - true


def _numbers(text: str) -> set[str]:
    """The numbers of a text, small ones in words, too."""
    return {word for word in words(text) if word.isdecimal()}


def _counted(text: str) -> set[tuple[str, str]]:
    """The numbers of a text, each with the word behind it."""
    return {(word, what) for word, what in pairwise(words(text)) if word.isdecimal()}
