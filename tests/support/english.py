"""Measures of plain English, per document: words, length of sentences, and habits that make a text slow to read.

`python -m tests.support.english` prints them, `... docs/api.md` those of one document with its long sentences, `...
page` or another room those of what the program says, and `... --lower` lowers the limits in `tests/english.json` to
what is reached. The program may say as many words as it needs: only its long sentences and habits have limits.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Final

from tests.support import program

ROOT: Final = Path(__file__).resolve().parents[2]
LIMITS: Final = ROOT / "tests" / "english.json"
LONG: Final = 30  # words of a sentence
LONG_SAID: Final = 25  # words of a sentence of the program, or of its half before or after a semicolon or colon
WORDS_OF_A_NAME: Final = 3
WORD: Final = re.compile(r"[^\W_]")  # bars of tables, rules and signs are none

HABITS: Final = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "behind, for after": r"\bbehind\b",
        "told, for gets or reports": r"\b(?:tells?|told)\b",
        "but for, for except": r"\bbut for\b",
        "as long as, for while": r"\b(?:as|so) long as\b",
        "of whom, of which": r"\bof (?:whom|which)\b",
        "those that, for the thing's name": r"\bthose (?:that|which|who|of)\b",
        "such, for the thing's name": r"\bsuch\b(?! as\b)",
        "what is there, for the thing's name": r"\bwhat (?:is|was|were) (?:there|found)\b",
        "holds, for is true": r"\bholds?\b",
        "goes and comes, for a state": r"\b(?:goes|comes)\b(?! on\b)",
        "some 160, for about": r"\bsome \d",
        "in vain, for wasted": r"\bin vain\b",
        "the way, for the network": r"\b(?:the|one) way\b",
        "place, for slot": r"\bplaces?\b",
        "who or what as a sentence's first word": r"(?:^|(?<=[.:!?] ))(?-i:Who|What|Those|One|Of) ",
    }.items()
}


@dataclass(frozen=True)
class English:
    """The measures of one document. `sentence` is the mean length in words."""

    words: int
    sentence: float
    long: int
    habits: int


def worse(measured: English, limit: English) -> list[str]:
    """The names of the measures that are above their limits."""
    allowed = asdict(limit)
    return [
        f"{name}: {figure}, not {allowed[name]}" for name, figure in asdict(measured).items() if figure > allowed[name]
    ]


def pieces(document: str) -> list[str]:
    """Paragraphs, list items and table cells, without code and headings."""
    text = re.sub(r"```.*?```|<!--.*?-->|^#.*?$", "", document, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    found = list[str]()
    for paragraph in re.split(r"\n[ \t]*\n", text):
        if re.match(r"\n? {4}", paragraph):
            continue  # a block of code
        for block in re.split(r"\n(?=\s*(?:[*-] |\d+\. |\|))", paragraph):
            stripped = re.sub(r"^[*-] |^\d+\. ", "", block.strip())
            found += stripped.strip("|").split("|") if stripped.startswith("|") else [stripped]
    return [" ".join(piece.replace("*", "").split()) for piece in found if re.search(r"[A-Za-z]", piece)]


def sentences(document: str) -> list[str]:
    """All sentences. Names and numbers that stand alone, as in the cells of tables, are none."""
    found = [one for piece in pieces(document) for one in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9(]|code\b)", piece)]
    return [one for one in found if len(one.split()) > WORDS_OF_A_NAME]


def habits(document: str) -> Mapping[str, int]:
    """The number of times that each habit occurs."""
    found = pieces(document)
    return {name: sum(len(pattern.findall(piece)) for piece in found) for name, pattern in HABITS.items()}


def measured(document: str) -> English:
    """The measures of a document. Words have a letter or a digit; those of code and tables count."""
    lengths = [len(sentence.split()) for sentence in sentences(document)]
    return English(
        words=sum(bool(WORD.search(word)) for word in document.split()),
        sentence=round(sum(lengths) / max(1, len(lengths)), 1),
        long=sum(length > LONG for length in lengths),
        habits=sum(habits(document).values()),
    )


def long_said(texts: Iterable[str]) -> list[str]:
    """Sentences that are too long for people who wait for the program."""
    plain = (" ".join(re.sub(r"`[^`]*`", "code", text).split()) for text in texts)
    found = (clause for text in plain for clause in re.split(r"(?<=[.!?;:])\s+", text))
    return [clause for clause in found if len(clause.split()) > LONG_SAID]


def measured_program(texts: Sequence[str]) -> English:
    """The measures of what a room of the program says."""
    return English(0, 0.0, len(long_said(texts)), sum(sum(habits(text).values()) for text in texts))


def everything() -> dict[str, English]:
    """The measures of the documents and of the program, by document and room."""
    return documents() | {room: measured_program(texts) for room, texts in program.said().items()}


def documents() -> dict[str, English]:
    """The measures of the documents that people write: not of `docs/results/`, which the suites write."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): measured(path.read_text("utf-8")) for path in paths}


def limits() -> dict[str, English]:
    """The limits of each document."""
    return {name: English(**limit) for name, limit in json.loads(LIMITS.read_text("utf-8")).items()}


def lowered(now: Mapping[str, English], before: Mapping[str, English]) -> dict[str, English]:
    """The limits of each document: what it reaches, rounded up to 50 words and half a word of a sentence, and never
    more than before.
    """
    reached = {
        name: English(-(-english.words // 50) * 50, math.ceil(english.sentence * 2) / 2, english.long, english.habits)
        for name, english in now.items()
    }
    return {
        name: English(*map(min, astuple(english), astuple(before.get(name, english))))
        for name, english in reached.items()
    }


def report(path: Path) -> None:
    """Print the measures of one document, its habits and its long sentences."""
    text = path.read_text("utf-8")
    print(measured(text))
    for name, count in habits(text).items():
        if count:
            print(f"{count:4} {name}")
    for sentence in sentences(text):
        if len(sentence.split()) > LONG:
            print(f"{len(sentence.split()):4} words: {sentence}")


def report_said(texts: Iterable[str]) -> None:
    """Print the long sentences of a room, and its texts with habits."""
    texts = list(texts)
    for sentence in long_said(texts):
        print(f"{len(sentence.split())} words: {sentence}")
    for text in texts:
        for name, count in habits(text).items():
            if count:
                print(f"{name}: {text}")


def main() -> None:
    """Print the measures of all documents or of one, or lower the limits."""
    match sys.argv[1:]:
        case [name] if name.endswith(".md"):
            report(Path(name))
            return
        case [name] if name in (said := program.said()):
            report_said(said[name])
            return
        case ["--lower"]:
            reached = lowered(everything(), limits())
            rows = [f"  {json.dumps(name)}: {json.dumps(asdict(english))}" for name, english in reached.items()]
            LIMITS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
    now = everything()
    print(f"{'':26}{'words':>7}{'sentence':>10}{'long':>6}{'habits':>8}")
    for name, english in now.items():
        print(f"{name:26}{english.words:7}{english.sentence:10}{english.long:6}{english.habits:8}")
    print(f"{'all':26}{sum(english.words for english in now.values()):7}")


if __name__ == "__main__":
    main()
