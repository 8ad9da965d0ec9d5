"""A watched folder: a real watcher and its reading process, beside a library that goes on being searched."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.configuration.settings import Settings
from common.library import commands
from common.library.library import Library
from common.library.watching import FolderWatcher
from tests.common.library.conftest import Write

PATIENCE = 300.0  # seconds; the reader lets everybody else go first

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", document_store_bytes=0)


@pytest.fixture
def library(settings: Settings, documents: Path, write: Write) -> Iterator[Library]:
    """One that watches `documents`."""
    write("first.txt", "the first note")
    assert commands.add(settings, [documents], watch=True) == commands.DONE
    with commands.open_library(settings) as library:
        yield library


def until(seen: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := seen()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)  # a search takes from the reader


def titles(library: Library) -> dict[str, str]:
    """What a search finds, and where."""
    return {hit.text: hit.path for hit in library.search("note", 20)}


def test_changes_are_read_while_searches_go_on(
    settings: Settings, library: Library, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("before.txt", "written while nobody looked")
    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: len(titles(library)), 2)
        (documents / "first.txt").rename(documents / "moved.txt")
        (documents / "before.txt").unlink()
        write("new/page.md", "# Page\n\na new note")
        write("locked.pdf", b"no pdf")
        until(
            lambda: titles(library),
            {"the first note": "moved.txt", "# Page\n\na new note": "new/page.md"},
        )
        until(lambda: [len(reading.skipped) for reading in library.readings()], [1])
        capsys.readouterr()
        commands.status(settings)
        assert ", watched\n" in capsys.readouterr().out
    finally:
        watcher.close()


def test_a_folder_that_goes_away_keeps_its_documents_and_is_read_when_it_is_back(
    settings: Settings, library: Library, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.library.watching.PAUSE", 0.2)
    away = documents.with_name("away")
    look, looks = FolderWatcher._there, list[set[str]]()

    def noted(watcher: FolderWatcher) -> set[str]:
        looks.append(look(watcher))
        return looks[-1]

    monkeypatch.setattr(FolderWatcher, "_there", noted)
    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: looks[-1:], [{str(documents)}])
        documents.rename(away)
        # With the second look at no folder it has done all that it does about the first.
        until(lambda: looks[-2:], [set(), set()])
        assert list(titles(library)) == ["the first note"]
        (away / "second.txt").write_text("the second note")
        shutil.move(away, documents)
        until(lambda: len(titles(library)), 2)
    finally:
        watcher.close()


def test_what_is_removed_is_no_longer_watched(settings: Settings, library: Library, documents: Path) -> None:
    assert library.watched() == [str(documents)]
    commands.remove(settings, [str(documents)])
    assert library.watched() == []


def test_it_stops_at_once(settings: Settings, library: Library, write: Write) -> None:
    """In the middle of a reading, too."""
    write("long.txt", "\n\n".join(f"paragraph {number} of a long story" for number in range(4000)))
    watcher = FolderWatcher(settings, library)
    until(lambda: any(reading.running for reading in library.readings()), True)
    watcher.close()
    assert watcher._reader is not None
    assert watcher._reader.returncode == -signal.SIGTERM  # it was not waited for
    until(lambda: any(reading.running for reading in library.readings()), False)
