"""Bits that flip in a library's files: the same is found as before, or one kind of error says that it is damaged."""

from __future__ import annotations

import random
from dataclasses import astuple
from pathlib import Path
from typing import Any, get_args

import pytest

from common.library.chunks import Chunker
from common.library.database import damaged
from common.library.errors import LibraryDamaged, LibraryError
from common.library.library import Library, SearchKind
from common.library.seal import SEAL
from common.library.store import DATABASE, INDEX
from tests.common.library.conftest import Write
from tests.common.library.test_faults import fill
from tests.common.library.toy_embedder import ToyEmbedder

FLIPS = 60  # a twentieth of the file that no check covered is hit with 95 % certainty
QUESTIONS = ("note 7 some words", "sentence 12 of the long one")


def told(folder: Path, chunker: Chunker) -> list[Any]:
    """All that a library says of itself, and what it finds in each way."""
    with Library(folder, ToyEmbedder(), chunker=chunker) as library:
        found: list[Any] = []
        for library._kind in get_args(SearchKind):  # opened once: each opening reads the whole database
            found += [library.search(question, 9) for question in QUESTIONS]
        found += [library.counts, library.identity, library.watched(), library.texts()]
        found += [astuple(each) for each in library.files()]
        return found + [astuple(each) for each in library.readings()]


@pytest.fixture
def files(library: Library, write: Write, documents: Path) -> dict[str, bytes]:
    """A library's files, by name; nobody has it open."""
    fill(write, "first")
    write("skipped.txt", b"\xff\xfe\xfd")
    library.add(documents, watch=True)
    library.close()
    return contents(library.folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def flipped(content: bytes, draw: random.Random) -> bytes:
    broken = bytearray(content)
    broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
    return bytes(broken)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [DATABASE, INDEX, SEAL])
def test_the_same_as_before_or_damaged(name: str, files: dict[str, bytes], library: Library, chunker: Chunker) -> None:
    folder, draw = library.folder, random.Random(11)
    assert set(files) == {DATABASE, INDEX, SEAL, "writer.lock"}
    expected = told(folder, chunker)
    sentences = []
    for _ in range(FLIPS if name == DATABASE else FLIPS // 5):
        restore(folder, files | {name: flipped(files[name], draw)})
        try:
            assert told(folder, chunker) == expected
        except LibraryDamaged as error:
            sentences.append(str(error))
    assert len(sentences) == {DATABASE: FLIPS, INDEX: 0, SEAL: FLIPS // 5}[name]
    assert set(sentences) <= {str(damaged(folder / DATABASE, "it is not as the last change left it"))}


@pytest.mark.timeout(600)
def test_without_a_seal_no_other_error(files: dict[str, bytes], library: Library, chunker: Chunker) -> None:
    """As after a change that was killed. What is found may differ where no checksum reaches, but nothing breaks."""
    folder, draw = library.folder, random.Random(12)
    expected = told(folder, chunker)
    same = noticed = 0
    for _ in range(FLIPS):
        restore(folder, {name: content for name, content in files.items() if name not in (SEAL, INDEX)})
        (folder / DATABASE).write_bytes(flipped(files[DATABASE], draw))
        try:
            same += told(folder, chunker) == expected
        except LibraryError:  # or it might be another program's database
            noticed += 1
    assert same + noticed > 0.9 * FLIPS


def test_a_database_that_is_gone(files: dict[str, bytes], library: Library, chunker: Chunker) -> None:
    (library.folder / DATABASE).unlink()
    with pytest.raises(LibraryDamaged, match="is not as the last change left it"):
        told(library.folder, chunker)
    assert not (library.folder / DATABASE).exists()
