"""Readings that give way to others: what was named comes first, what was read is kept, and nothing is done twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from common.library import ingest
from common.library.documents import File, load
from common.library.ingest import BATCH, Interrupted, Progress
from common.library.library import Library
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

LONG = "\n\n".join(f"Paragraph {number} tells of {number * 7} things and then of some more." for number in range(900))


def until(reached: Callable[[int, str], bool]) -> Progress:
    """Raises when `reached` says so of the number of the call, from 0, and the document at work."""
    calls = iter(range(10**6))

    def progress(done: int, total: int, path: str, place: str) -> None:
        if reached(next(calls), path):
            raise Interrupted

    return progress


def documents_of(library: Library) -> list[str]:
    return [file.relative_path for file in library.files()]


def test_what_is_named_comes_first_and_is_found_at_once(library: Library, documents: Path, write: Write) -> None:
    """The others of its batch are not waited for."""
    for number in range(9):
        write(f"{number}.txt", f"story {number}")
    note = write("below/note.txt", "a note of today")
    write("below/second.txt", "a second note of today")

    def reached(done: int, total: int, path: str, place: str) -> None:
        if path == str(documents / "1.txt"):
            assert documents_of(library) == ["below/note.txt", "below/second.txt"]
            raise Interrupted

    with pytest.raises(Interrupted):
        library.add(documents, reached, first=[str(note.parent)])
    assert documents_of(library) == ["0.txt", "below/note.txt", "below/second.txt"]
    assert library.add(documents).added == 8


def test_a_long_document_goes_on_where_it_was_left(
    library: Library, documents: Path, write: Write, toy: ToyEmbedder
) -> None:
    """Whatever else is read in between, in its own folder and in others, long documents among them."""
    write("mine/long.txt", LONG)
    write("other/long.txt", f"{LONG} And more.")
    with pytest.raises(Interrupted):
        library.add(documents / "mine", until(lambda call, path: call == 5))
    staged = len(toy.embedded)
    assert staged == 4 * BATCH
    note = write("mine/note.txt", "a note of today")
    with pytest.raises(Interrupted):
        library.add(documents / "mine", until(lambda call, path: call > 2), first=[str(note)])
    another = write("mine/another.txt", f"{LONG} Another one.")
    with pytest.raises(Interrupted):
        library.add(documents / "mine", until(lambda call, path: path.endswith("/long.txt")), first=[str(another)])
    library.add(documents / "other")
    toy.embedded.clear()
    assert library.add(documents / "mine").added == 1
    (chunks,) = [file.chunks for file in library.files() if file.path == str(documents / "mine" / "long.txt")]
    assert len(toy.embedded) <= chunks - staged


def test_unfinished_work_is_forgotten_with_everything(
    library: Library, documents: Path, write: Write, toy: ToyEmbedder
) -> None:
    write("long.txt", LONG)
    with pytest.raises(Interrupted):
        library.add(documents, until(lambda call, path: call == 5))
    library.remove("all")
    toy.embedded.clear()
    library.add(documents)
    assert len(toy.embedded) == library.count


def test_what_is_known_is_not_hashed_again(
    library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a backup was restored, or a folder got another name."""
    monkeypatch.setattr("common.library.documents._TICK", 0)  # the times of files prove something at once
    for number in range(4):
        write(f"{'kept' if number < 2 else 'moved'}/{number}.txt", f"story {number}")
    library.add(documents)
    for number in range(2):
        os.utime(documents / "kept" / f"{number}.txt", ns=(10**18, 10**18))
    (documents / "moved").rename(documents / "now")
    with pytest.raises(Interrupted):
        library.add(documents, until(lambda call, path: call == 3))
    assert "now/2.txt" in documents_of(library)
    loaded = list[str]()

    def noted(path: str) -> File:
        loaded.append(os.path.relpath(path, documents))
        return load(path)

    monkeypatch.setattr(ingest, "load", noted)
    report = library.add(documents)
    assert (loaded, report.moved, report.unchanged, report.removed) == (["now/3.txt"], 1, 3, 0)
    assert documents_of(library) == ["kept/0.txt", "kept/1.txt", "now/2.txt", "now/3.txt"]
