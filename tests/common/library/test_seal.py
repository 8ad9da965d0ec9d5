"""Seals of a library: when there is one, and that it is opened beside changes without false alarms."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from common.library import seal
from common.library.chunks import Chunker
from common.library.database import Database
from common.library.errors import LibraryFull, PathError
from common.library.library import Library
from common.library.seal import SEAL
from common.library.store import DATABASE, Store
from tests.common.library.conftest import Write
from tests.common.library.former_formats import put_back
from tests.common.library.test_faults import fill
from tests.common.library.test_processes import adding
from tests.common.library.toy_embedder import ToyEmbedder


@pytest.fixture
def filled(library: Library, write: Write, documents: Path) -> Library:
    fill(write, "first")
    library.add(documents)
    return library


def is_sealed(folder: Path) -> bool:
    """Whether the seal is there and right."""
    return seal.check(folder)


def test_every_change_seals(filled: Library, documents: Path, toy: ToyEmbedder) -> None:
    assert is_sealed(filled.folder)
    filled.rebuild()
    assert is_sealed(filled.folder)
    with Library(filled.folder, toy) as other:
        other.remove("all")
        assert is_sealed(filled.folder)
    filled.search("note", 1)
    filled.close()
    assert is_sealed(filled.folder)
    # As `sha256sum --check` reads it. Not before: the connection's locks would end with the reading.
    digest = hashlib.sha256((filled.folder / DATABASE).read_bytes()).hexdigest()
    assert (filled.folder / SEAL).read_text() == f"{digest}  {DATABASE}\n"


def test_a_large_database_has_none(filled: Library, monkeypatch: pytest.MonkeyPatch, toy: ToyEmbedder) -> None:
    monkeypatch.setattr(seal, "_LARGE", 1)
    filled.remove("all")
    filled.search("note", 1)
    assert not (filled.folder / SEAL).exists()
    with Library(filled.folder, toy) as reopened:
        assert reopened.count == 0


def test_a_killed_change_leaves_none_and_the_next_search_makes_it(
    filled: Library, write: Write, documents: Path, toy: ToyEmbedder
) -> None:
    fill(write, "second")
    with adding(filled.folder, documents, "wait") as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert not (filled.folder / SEAL).exists()
        child.kill()
        child.wait()
    assert not (filled.folder / SEAL).exists()
    with Library(filled.folder, toy) as reopened:
        reopened.search("note", 1)
        assert is_sealed(filled.folder)


def test_a_change_that_fails_is_sealed_by_the_next_search(filled: Library, tmp_path: Path) -> None:
    with pytest.raises(PathError):
        filled.add(tmp_path / "nowhere")
    filled.search("note", 1)
    assert is_sealed(filled.folder)


def test_while_somebody_reads_all_the_time_there_is_none(
    filled: Library, write: Write, documents: Path, toy: ToyEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that a reader still needs can't be brought into the file."""
    monkeypatch.setattr("common.library.database._PATIENCE", 0.05)
    with Library(filled.folder, toy) as reader, reader._store.reading():
        reader._store.count()
        write("new.txt", "new words")
        with Library(filled.folder, toy, chunker=filled._cutter()) as writer:
            writer.add(documents)
        assert not (filled.folder / SEAL).exists()
    filled.add(documents)
    assert is_sealed(filled.folder)


def test_searches_go_on_while_the_seal_waits_for_somebody_who_reads(
    filled: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample for the index, or a snapshot, takes seconds and more."""
    begun, ended, gather = threading.Event(), threading.Event(), Database.gather

    def noted(database: Database, patient: bool) -> bool:
        begun.set()
        whole = gather(database, patient)
        ended.set()
        return whole

    monkeypatch.setattr(Database, "gather", noted)
    with closing(Store(filled.folder)) as reader, ThreadPoolExecutor(1) as pool:
        with reader.reading():
            reader.count()
            waiting = pool.submit(lambda: filled.remove("all"))
            assert begun.wait(60.0)
            filled.search("note", 1)
            assert not ended.is_set()
        assert waiting.result(60.0) > 0


def test_a_search_that_finds_no_seal_waits_for_nobody_who_reads(
    filled: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change makes it."""
    monkeypatch.setattr("common.library.database._PATIENCE", 600.0)
    with closing(Store(filled.folder)) as reader, ThreadPoolExecutor(1) as pool:
        with reader.reading():
            reader.count()
            with closing(Store(filled.folder)) as killed, killed.writing():
                killed.advance()
            seal.remove(filled.folder)
            filled._sealed = False
            assert pool.submit(lambda: filled.search("note", 1)).result(30.0)
            assert not (filled.folder / SEAL).exists()
        write("new.txt", "new words")
        filled.add(documents)
        assert is_sealed(filled.folder)


def test_opened_beside_changes(filled: Library, write: Write, documents: Path, chunker: Chunker) -> None:
    opened = 0
    for version in ("second", "third"):
        fill(write, version)
        with adding(filled.folder, documents) as child:
            while child.poll() is None:
                with Library(filled.folder, ToyEmbedder(), chunker=chunker) as library:
                    library.search("note", 3)
                opened += 1
            assert child.wait() == 0
    assert opened > 2
    assert is_sealed(filled.folder)


def test_a_folder_that_can_not_be_written_to(filled: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index and its seal are for the next start; this one goes on."""
    seal.remove(filled.folder)

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    seal.write(filled.folder)
    assert {path.name for path in filled.folder.iterdir()} & {SEAL, f"{SEAL}.new"} == set()
    assert filled.search("note", 1)


def test_a_disk_without_space_keeps_nobody_from_searching(
    filled: Library, write: Write, documents: Path, toy: ToyEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was committed is found where it is; a change is done when that is."""
    seal.remove(filled.folder)

    def full(database: Database, patient: bool) -> bool:
        raise LibraryFull("no space is left")

    monkeypatch.setattr(Database, "gather", full)
    with Library(filled.folder, toy, chunker=filled._cutter()) as reopened:
        reopened.warm()
        assert reopened.search("note", 1)
        write("new.txt", "new words")
        assert reopened.add(documents).added == 1
        assert [hit.path for hit in reopened.search("new words", 1)] == ["new.txt"]
        # Nor do they need the lock of whoever writes.
        seal.remove(filled.folder)
    monkeypatch.setattr("filelock.FileLock.acquire", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with Library(filled.folder, toy) as reopened:
        assert reopened.search("note", 1)


def test_a_library_of_an_earlier_format_opens_on_a_disk_without_space(
    filled: Library, toy: ToyEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is brought up to date, and sealed when there is some."""
    filled.close()
    put_back(filled.folder, 5)
    seal.remove(filled.folder)

    def full(database: Database, patient: bool) -> bool:
        raise LibraryFull("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "gather", full)
        with Library(filled.folder, toy) as opened:
            assert opened.search("note", 1)
        assert not (filled.folder / SEAL).exists()
    with Library(filled.folder, toy) as reopened:
        assert reopened.search("note", 1)
    assert is_sealed(filled.folder)
