"""Questions about Python Enhancement Proposals that need a private note and a public header."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random

from proto.fields import Side
from scripts.bench.workload import Texts

OTHERS = 2  # proposals that a question names beside the one that is meant
FIRST_WEEK = date(2022, 1, 3)
ABSTRACT = 400  # characters that are quoted

_ADDRESS = re.compile(r"\s*<[^>]*>|\s*\([^)]*@[^)]*\)|\s*\S+@\S+\s*")
_HEADING = re.compile(r"^([^\n]+)\n[=\-~]{4,}\n+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A header's facts, and where its text begins."""

    number: int
    title: str
    authors: tuple[str, ...]
    status: str
    version: str  # of Python; empty where the header names none
    abstract: str

    @property
    def entry(self) -> str:
        """The public library's document."""
        version = f" It is for Python {self.version}." if self.version else ""
        authors = " and ".join([", ".join(self.authors[:-1]), self.authors[-1]] if self.authors[1:] else self.authors)
        return (
            f"PEP {self.number} – {self.title}. PEP {self.number} was written by {authors}. "
            f"The status of PEP {self.number} is {self.status}.{version}\n\n{self.abstract}"
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the answers to its second half that count as right, and what a right answer contains besides."""

    text: str
    answers: tuple[str, ...]
    kind: str
    also: str = ""


def read_proposal(text: str) -> Proposal | None:
    """The facts of one file; None where its header lacks one that is asked for."""
    header, _, body = text.partition("\n\n")
    fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t]+.*)*)", header, re.MULTILINE))
    if not {"PEP", "Title", "Author", "Status"} <= fields.keys():
        return None
    authors = [" ".join(_ADDRESS.sub(" ", name).split()) for name in re.split(r",\n?|\n", fields["Author"])]
    version = fields.get("Python-Version", "").strip()
    return Proposal(
        int(fields["PEP"]),
        " ".join(fields["Title"].split()),
        tuple(name for name in authors if name),
        fields["Status"].strip(),
        version if re.fullmatch(r"[23]\.\d+", version) else "",
        _abstract(body),
    )


def read_proposals(folder: Path) -> list[Proposal]:
    """Those of every `pep-NNNN.rst` in `folder` that name an author."""
    files = sorted(folder.glob("pep-*.rst"))
    found = (read_proposal(path.read_text("utf-8", errors="replace")) for path in files)
    return [proposal for proposal in found if proposal is not None and proposal.authors]


NAMED, ONE_OF_THREE = "named", "one of three"
KINDS = (NAMED, ONE_OF_THREE)
COLLEAGUES = ("Anna", "Boris", "Chiara", "David", "Elif", "Farid", "Greta", "Hugo", "Irina", "Jonas", "Kira", "Luis")


def draw(proposals: Sequence[Proposal], count: int, seed: int) -> tuple[Texts, list[Asked]]:
    """`count` questions, a note for each, and all proposals as the public library.

    Only the note says with whom a proposal is reviewed, only the entry what is asked of it. A question names the
    proposal, or three of them and the week of the note about the one that is meant.
    """
    random = Random(seed)
    with_version = [proposal for proposal in proposals if proposal.version]
    facts = itertools.cycle(_QUESTIONS)
    notes, asked = [], []
    for number, fact in zip(range(count), facts, strict=False):
        meant = random.choice(with_version if fact == "version" else proposals)
        others = random.sample([each for each in with_version if _fact(each, fact) != _fact(meant, fact)], OTHERS)
        week = f"{FIRST_WEEK + timedelta(weeks=number):%-d %B %Y}"
        colleague = random.choice(COLLEAGUES)
        notes.append(f"In the week of {week} I review PEP {meant.number}, {meant.title}, together with {colleague}.")
        kind = KINDS[number // len(_QUESTIONS) % len(KINDS)]
        if kind == NAMED:
            text = f"With whom do I review PEP {meant.number}, and {_QUESTIONS[fact]}?"
            asked.append(Asked(text, _fact(meant, fact), kind, colleague))
        else:
            first, second, third = sorted(each.number for each in (meant, *others))
            which = f"In the week of {week} I review one of PEP {first}, PEP {second} and PEP {third}."
            asked.append(Asked(f"{which} Which one, and {_QUESTIONS[fact]}?", _fact(meant, fact), kind))
    documents: dict[Side, tuple[str, ...]] = {
        "device": tuple(notes),
        "cloud": tuple(proposal.entry for proposal in proposals),
    }
    return Texts(documents, tuple(each.text for each in asked)), asked


_QUESTIONS = {
    "author": "who wrote it",
    "version": "which version of Python is it for",
    "status": "what is its status",
}


def _fact(proposal: Proposal, kind: str) -> tuple[str, ...]:
    match kind:
        case "author":
            return proposal.authors
        case "version":
            return (proposal.version,)
        case _:
            return (proposal.status,)


def _abstract(body: str) -> str:
    """The first paragraph after the heading `Abstract`, or after the first heading, as one line."""
    headings = list(_HEADING.finditer(body))
    chosen = next(
        (heading for heading in headings if heading[1].strip() == "Abstract"), headings[0] if headings else None
    )
    start = chosen.end() if chosen else 0
    paragraph = body[start:].strip().partition("\n\n")[0]
    return " ".join(paragraph.replace("``", "").split())[:ABSTRACT]
