"""The suite `citations`: footnotes of the default model's answers, judged, and what it says where no note knows.

A third of the questions is answered by one note each, a third by what any model has read, a third by nobody. A footnote
is right if its question is about the note that it names, and the note has the words that it quotes.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from common.configuration.settings import default_model, default_models
from device.cli.render import OWN_WORDS, footnotes
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.daemons import Pair, fill_library

Kind = Literal["of a note", "of common knowledge", "of nobody"]
TOKENS: Final = 32
SHORT: Final = 2  # questions of each kind

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
    ("bicycle", "How many gears does my Brompton have?"),
    ("viola", "When is the viola lesson?"),
    ("allotment", "What number is the allotment?"),
    ("dentist", "What is the dentist called?"),
    ("cat", "What is the cat called?"),
    ("boiler", "What should the pressure of the boiler be?"),
    ("passport", "When does the passport run out?"),
    ("wifi", "What is the guest network called?"),
    ("car", "At which garage does the car get winter tyres?"),
    ("holiday", "When does the summer holiday begin?"),
    ("choir", "Who conducts the choir?"),
    ("insurance", "What is the policy number of the household insurance?"),
    ("plants", "Where does the basil stand?"),
    ("school", "In which room is the parents' evening?"),
    ("bread", "At how many degrees does the sourdough bake?"),
    ("library", "What number is the library card?"),
    ("neighbour", "Who is the neighbour upstairs?"),
    ("printer", "Which toner does the printer take?"),
    ("doctor", "On which day is the blood test?"),
    ("garden", "When was the apple tree planted?"),
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
    "Doubted: `dragon ask` says before the answer that no document is close to the question, or below it that no "
    "document says this."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer with its footnotes."""

    kind: Kind
    question: str
    text: str
    footnotes: tuple[str, ...]
    words: int  # footnotes whose words their note has
    right: int  # of these, those whose note the question is about
    doubted: bool  # said to be of no document, or of documents that are not close to the question


def run(results: Results) -> None:
    """Ask a real pair, and count."""
    found: list[Judged] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        fill_library(data, "device", NOTES)
        flags = {"model": default_model(), "models": default_models(), "search": "hybrid"}
        with Pair(data, device=flags, cloud=flags) as pair:
            for kind, note, question in _questions(results.short):
                answer = pair.complete(question, sources="device", temperature=0, max_tokens=TOKENS)
                report, text = answer["dragon"], answer["choices"][0]["message"]["content"]
                found.append(judge(kind, note, question, text, report))
                results.say(f"{question} {text!r}: {'; '.join(found[-1].footnotes) or 'no document'}")
    results.samples("answers", found)
    results.table("Footnotes, judged", table(found), NOTE)


def judge(kind: Kind, note: str | None, question: str, text: str, report: Mapping[str, Any]) -> Judged:
    """Count the footnotes of an answer whose words are their note's, and those of `note` among them."""
    found = [(report["sources"][each["source"]]["title"], " … ".join(each["quotes"])) for each in report["citations"]]
    own = [title for title, quoted in found if _words(quoted) <= _words(NOTES[title])]
    quotes = tuple(f"{title}: {quoted}" for title, quoted in found)
    return Judged(kind, question, text, quotes, len(own), own.count(note or ""), doubted(report))


def doubted(report: Mapping[str, Any]) -> bool:
    """Whether `dragon ask` says that no document is close to the question, or that none says the answer."""
    return bool(report["unmatched"]) or footnotes(report)[-1:] == [OWN_WORDS]


def table(found: Sequence[Judged]) -> Table:
    """A row for each kind of question, and one for all."""
    kinds: tuple[Kind, ...] = ("of a note", "of common knowledge", "of nobody")
    rows = [_row(f"questions {kind}", [each for each in found if each.kind == kind]) for kind in kinds]
    heads = ["", "answers", "footnotes", "in the note's words", "and to the point", "doubted"]
    return Table(heads, [*rows, _row("all", found)])


def _row(name: str, found: Sequence[Judged]) -> list[str]:
    counts = (
        len(found),
        *(
            sum(count)
            for count in zip(
                *((len(each.footnotes), each.words, each.right, each.doubted) for each in found), strict=True
            )
        ),
    )
    return [name, *map(str, counts)]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _questions(short: bool) -> Iterator[tuple[Kind, str | None, str]]:
    most = SHORT if short else None
    yield from (("of a note", note, question) for note, question in OF_NOTES[:most])
    yield from (("of common knowledge", None, question) for question in OF_COMMON_KNOWLEDGE[:most])
    yield from (("of nobody", None, question) for question in OF_NOBODY[:most])
