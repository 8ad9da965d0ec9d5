"""Removed documents leave nothing of themselves in the library's files: no text, no word, no vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.library import library as module
from common.library.library import Library
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

WORDS = ("quorzelwump", "vlarnibask", "778812")
SECRET = f"The pincode of {WORDS[0].title()} is {WORDS[1]} {WORDS[2]}. " * 30


@pytest.fixture
def library(tmp_path: Path, toy: ToyEmbedder, documents: Path, write: Write) -> Iterator[Library]:
    """A library with ordinary notes and a secret, open as in a daemon."""
    for number in range(60):
        write(f"{number}.md", f"An ordinary note, number {number}, on gardens and weather. " * 20)
    write("secret.md", SECRET)
    with Library(tmp_path / "library", toy) as library:
        library.add(documents)
        yield library


def vectors(library: Library) -> list[bytes]:
    query = "SELECT vector FROM vectors JOIN chunks ON chunks.id = vectors.chunk WHERE text LIKE ?"
    with library._reading():
        return [vector for (vector,) in library._store._database.all(query, (f"%{WORDS[2]}%",))]


def left(library: Library, known: list[bytes]) -> set[str]:
    """Words in any of the files, and vectors."""
    contents = [path.read_bytes() for path in library.folder.rglob("*") if path.is_file()]
    found = {word for word in WORDS if any(word.encode() in content.lower() for content in contents)}
    return found | {"a vector" for vector in known if any(vector in content for content in contents)}


def forget_by_hand(library: Library, documents: Path, write: Write) -> None:
    library.remove([documents / "secret.md"])


def forget_all(library: Library, documents: Path, write: Write) -> None:
    library.remove("all")


def replace(library: Library, documents: Path, write: Write) -> None:
    write("secret.md", "Nothing is said here any more, but that it was said.")
    library.add(documents)


def delete(library: Library, documents: Path, write: Write) -> None:
    (documents / "secret.md").unlink()
    library.add(documents)


@pytest.mark.parametrize("forget", [forget_by_hand, forget_all, replace, delete], ids=lambda each: each.__name__)
def test_nothing_is_left(
    library: Library, documents: Path, write: Write, forget: Callable[[Library, Path, Write], None]
) -> None:
    known = vectors(library)
    assert len(known) > 1
    assert left(library, known) == {*WORDS, "a vector"}, "else this test says nothing"
    forget(library, documents, write)
    assert left(library, known) == set()
    library.close()
    assert left(library, known) == set()


def test_words_that_were_left_go_with_the_next_removal(
    library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a large library does not write its index of words anew."""
    monkeypatch.setattr(module, "_FORGOTTEN_AT_ONCE", 10)
    known = vectors(library)
    delete(library, documents, write)
    assert left(library, known) == set(WORDS), "of the text nothing is left"
    library.remove([documents / "7.md"])
    assert left(library, known) == set()
