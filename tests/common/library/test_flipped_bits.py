"""Bits that flip in a library's files: the same is found as before, or one kind of error says that it is damaged."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any, get_args

import pytest

from common.library.chunks import Chunker
from common.library.errors import LibraryDamaged, LibraryError
from common.library.library import Library, SearchKind
from common.library.store import DATABASE
from tests.common.library.conftest import Write
from tests.common.library.test_faults import fill
from tests.common.library.toy_embedder import ToyEmbedder

FLIPS = 60  # a twentieth of the file that no check covered is hit with 95 % certainty
QUESTIONS = ("note 7 some words", "sentence 12 of the long one")


def told(folder: Path, chunker: Chunker) -> list[Any]:
    """All that a library says of itself, and what it finds in each way."""
    with Library(folder, ToyEmbedder(), chunker=chunker) as library:
        found: list[Any] = []
        for library._kind in get_args(SearchKind):
            found += [library.search(question, 9) for question in QUESTIONS]
        found += [library.counts, library.identity, library.watched(), library.tags(), library.texts()]
        found += [astuple(each) for each in library.files()]
        return found + [astuple(each) for each in library.readings()]


@pytest.fixture
def files(library: Library, write: Write, documents: Path) -> dict[str, bytes]:
    """A library's files, by name; nobody has it open."""
    fill(write, "first")
    write("# titled.md", "# A title of its own\n\nsome words")
    write("copy.txt", "first: note 0. ")
    write("skipped.txt", b"\xff\xfe\xfd")
    library.add(documents, watch=True, tags=["work"])
    library.close()
    return {path.name: path.read_bytes() for path in library.folder.iterdir()}


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def flipped(content: bytes, draw: random.Random) -> bytes:
    """One bit is another one, of a byte that is not zero: half of a small database is room that nothing is in."""
    broken = bytearray(content)
    broken[draw.choice([place for place, byte in enumerate(content) if byte])] ^= 1 << draw.randrange(8)
    return bytes(broken)


@pytest.mark.timeout(600)
def test_the_same_as_before_or_damaged(files: dict[str, bytes], library: Library, chunker: Chunker) -> None:
    """Titles, paths, texts, vectors and words are covered by checksums, and so are rows that may be missing."""
    folder, draw = library.folder, random.Random(11)
    assert set(files) == {DATABASE, "writer.lock"}
    expected = told(folder, chunker)
    noticed = 0
    for _ in range(FLIPS):
        restore(folder, files | {DATABASE: flipped(files[DATABASE], draw)})
        try:
            assert told(folder, chunker) == expected
        except LibraryError:  # with a damaged schema it might be another program's database
            noticed += 1
    assert noticed > FLIPS // 2


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE keywords_data SET block = substr(block, 1, 40) || x'00' || substr(block, 42) WHERE id > 10",
        "UPDATE contents SET title = 'another' WHERE id = 3",
        "DELETE FROM tags",
    ],
)
def test_a_change_takes_no_damage_for_what_was_written(
    library: Library, write: Write, documents: Path, damage: str, toy: ToyEmbedder
) -> None:
    """A bit that flips while a daemon runs is found by whoever adds a note, and by the next start."""
    fill(write, "first")
    library.add(documents, tags=["work"])
    with closing(sqlite3.connect(library.folder / DATABASE)) as connection:
        connection.create_function("checksum", -1, lambda *values: 0)
        connection.executescript(damage)
    write("late.txt", "some words that came late")
    for change in (lambda: library.add(documents), lambda: library.remove("all"), library.rebuild):
        with pytest.raises(LibraryDamaged, match="is damaged"):
            change()
    library.close()
    with pytest.raises(LibraryDamaged, match="is damaged"):
        Library(library.folder, toy)
