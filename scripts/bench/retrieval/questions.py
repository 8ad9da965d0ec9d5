"""Questions whose answers stand in the heads of Python's enhancement proposals, and which document each is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.library.library import Library

HEAD = re.compile(r"^([A-Z][\w-]+):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
TEMPLATES = {
    "author, by title": ("Title", "Author", "Who wrote the PEP titled {Title}?"),
    "date, by title": ("Title", "Created", "When was the PEP about {Title} created?"),
    "status, by number": ("PEP", "Status", "What is the status of PEP {PEP}?"),
    "version, by number": ("PEP", "Python-Version", "Which Python version does PEP {PEP} target?"),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its kind, and the name of the file that has the answer."""

    kind: str
    text: str
    file: str


def questions(files: Iterable[Path], most: int) -> list[Question]:
    """Up to `most` questions of each kind, about files drawn with a fixed seed."""
    paths = sorted(files)
    found: dict[str, list[Question]] = {kind: [] for kind in TEMPLATES}
    for index in np.random.default_rng(5).permutation(len(paths)):
        head = dict(HEAD.findall(paths[index].read_text("utf-8", errors="replace").partition("\n\n")[0]))
        for kind, (named, asked, template) in TEMPLATES.items():
            if named in head and asked in head and len(found[kind]) < most:
                found[kind].append(Question(kind, template.format_map(head), paths[index].name))
    return [question for kind in found.values() for question in kind]


def ranks(library: Library, asked: Iterable[Question], k: int) -> list[int]:
    """Rank of the first chunk of each question's file, from 1; `k` + 1 where none is among the first `k`."""
    places = []
    for question in asked:
        files = [Path(hit.path).name for hit in library.search(question.text, k)]
        places.append(files.index(question.file) + 1 if question.file in files else k + 1)
    return places
