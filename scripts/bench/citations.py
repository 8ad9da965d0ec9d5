"""The suite `citations`: footnotes of the default model's answers, judged, and what it says where no note knows.

A third of the questions is answered by one note each, a third by what any model has read, a third by nobody. Those of
notes are asked again at temperature 1. A footnote is to the point if its question is about the note that it names. A
number that is cited is wrong unless the right answer has it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from common.configuration.settings import default_model, default_models
from device.cli.render import OWN_WORDS, footnotes
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.bench.rows import Row
from scripts.bench.rows import table as tabulate
from scripts.daemons import Pair, fill_library
from scripts.demo.judge import words

TOKENS: Final = 32
SHORT: Final = 2  # questions of each kind
SEEDS: Final = range(10)  # of each question at temperature 1

NOTES: Final[Mapping[str, str]] = {
    "bicycle": "My Brompton is green. It has six gears and was bought in Ghent in 2014.",
    "viola": "The viola lesson is on Monday at five. The teacher is called Margit.",
    "allotment": "The allotment is number 47 in Weidenweg. The rent of 90 euros is due in March.",
    "dentist": "The dentist is Doctor Haller. The next appointment is on 14 May at half past eight.",
    "cat": "The cat is called Pixel. She gets 60 grams of dry food a day.",
    "boiler": "The boiler was serviced on 3 October by Heating Vogt. The pressure should be 1.6 bar.",
    "passport": "The passport runs out on 9 August 2029. It was issued in Freiburg.",
    "wifi": "The guest network is called Lindenhof. Its password is in the red folder.",
    "car": "The car is a Skoda Fabia. It gets winter tyres at garage Brandt.",
    "holiday": "The summer holiday begins on 26 July. We rent a hut in Lofoten.",
    "choir": "The choir sings on Thursday evening in the town hall. The conductor is Ines.",
    "insurance": "The household insurance is with Helvetia. The policy number is 8812.",
    "plants": "The monstera stands in the living room. The basil stands on the balcony.",
    "school": "The parents' evening is on 11 November in room 204.",
    "bread": "The sourdough rests for eighteen hours. It bakes at 240 degrees.",
    "library": "The library card is number 5560. Books are due after four weeks.",
    "neighbour": "The neighbour upstairs is Mister Okafor. He has a spare key.",
    "printer": "The printer takes toner of type TN-2410. It stands in the hallway.",
    "doctor": "The blood test is on Friday at seven. One has to come without breakfast.",
    "garden": "The apple tree was planted in 2011. It is a Boskoop.",
}
OF_NOTES: Final = (
    ("bicycle", "How many gears does my Brompton have?", "six"),
    ("viola", "When is the viola lesson?", "Monday at five"),
    ("allotment", "What number is the allotment?", "47"),
    ("dentist", "What is the dentist called?", "Doctor Haller"),
    ("cat", "What is the cat called?", "Pixel"),
    ("boiler", "What should the pressure of the boiler be?", "1.6 bar"),
    ("passport", "When does the passport run out?", "9 August 2029"),
    ("wifi", "What is the guest network called?", "Lindenhof"),
    ("car", "At which garage does the car get winter tyres?", "Brandt"),
    ("holiday", "When does the summer holiday begin?", "26 July"),
    ("choir", "Who conducts the choir?", "Ines"),
    ("insurance", "What is the policy number of the household insurance?", "8812"),
    ("plants", "Where does the basil stand?", "on the balcony"),
    ("school", "In which room is the parents' evening?", "room 204"),
    ("bread", "At how many degrees does the sourdough bake?", "240 degrees"),
    ("library", "What number is the library card?", "5560"),
    ("neighbour", "Who is the neighbour upstairs?", "Mister Okafor"),
    ("printer", "Which toner does the printer take?", "TN-2410"),
    ("doctor", "On which day is the blood test?", "Friday at seven"),
    ("garden", "When was the apple tree planted?", "2011"),
)
OF_COMMON_KNOWLEDGE: Final = (
    "What is the capital of France?",
    "In which year was the Eiffel Tower finished?",
    "Who wrote Romeo and Juliet?",
    "How many days does a week have?",
    "What is the largest planet?",
    "Which gas do plants take in?",
    "What colour is the sky on a clear day?",
    "How many legs does a spider have?",
    "Who painted the Mona Lisa?",
    "What is frozen water called?",
    "Which language is spoken in Brazil?",
    "What is the longest river of Africa?",
    "How many minutes does an hour have?",
    "What do bees make?",
    "Which animal barks?",
    "Who discovered penicillin?",
    "What is the opposite of hot?",
    "On which continent is Egypt?",
    "What is the chemical symbol of gold?",
    "How many sides does a triangle have?",
)
OF_NOBODY: Final = (
    "What is my bank's telephone number?",
    "When is my sister's birthday?",
    "How tall is the fence in the yard?",
    "Which shoe size does my father have?",
    "What did the sofa cost?",
    "Who repaired the washing machine?",
    "What is the code of the suitcase?",
    "Where did I park the van?",
    "Which colour has the kitchen door?",
    "When was the roof insulated?",
    "What is the name of my boss?",
    "How much does the gym cost a month?",
    "Which train do I take on Saturday?",
    "What is the alarm's PIN?",
    "Who borrowed the drill?",
    "What is my tax number?",
    "When is the rubbish collected?",
    "Which film did we see in spring?",
    "What is the dog's weight?",
    "Where are the ski boots?",
)
NOTE: Final = (
    "Verbatim: every quote of the footnote is a span of its note. Wrong numbers: numbers, in digits or in words, that "
    "stand in a quote and not in the right answer. Doubted: `dragon ask` says before the answer that no document is "
    "close to the question, or below it that the answer is not from the documents."
)


def run(results: Results) -> None:
    """Ask a real pair, and count."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        fill_library(data, "device", NOTES)
        flags = {"model": default_model(), "models": default_models(), "search": "hybrid"}
        with Pair(data, device=flags | {"unmatched": "warn"}, cloud=flags) as pair:
            rows = results.measured(cases(SHORT if results.short else None), partial(ask, pair))
    results.table("Footnotes, judged", table(rows), NOTE)


def cases(most: int | None) -> list[Row]:
    """Questions of each kind, `most` of them; one of a note is about the note that it names."""
    of_notes: list[Row] = [
        {"kind": "of a note", "note": note, "question": question, "answer": answer, "temperature": 0, "seed": 0}
        for note, question, answer in OF_NOTES[:most]
    ]
    others = [
        {"kind": kind, "note": "", "question": question, "answer": "", "temperature": 0, "seed": 0}
        for kind, questions in (("of common knowledge", OF_COMMON_KNOWLEDGE), ("of nobody", OF_NOBODY))
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
        "wrong numbers": len(_numbers(marked) - _numbers(answer)),
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


def _numbers(text: str) -> set[str]:
    """The numbers of a text, small ones in words, too."""
    return {word for word in words(text) if any(map(str.isdecimal, word))}
