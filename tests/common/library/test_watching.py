"""A watched folder: a real watcher and its reading process, beside a library that goes on being searched."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from watchfiles import Change, watch

from common.configuration.settings import Settings
from common.library import commands
from common.library.add_process import PROMPT, FolderReader
from common.library.database import writer_lock
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from common.library.reading_process import Changes, ReadingProcess
from common.library.watching import FolderWatcher, There
from tests.common.library.conftest import Write

PATIENCE = 900.0  # seconds; the reader lets everybody else go first
MANY = 400  # documents of a hundred passages each: more than is read while a test runs

pytestmark = pytest.mark.timeout(1000)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", document_store_bytes=0)


@pytest.fixture
def library(
    settings: Settings, documents: Path, write: Write, embedder: SentenceTransformerEmbedder
) -> Iterator[Library]:
    """One that watches `documents`, with a model that is loaded already."""
    write("first.txt", "the first note")
    with commands.open_library(settings, lambda own: embedder) as library:
        library.add(documents, watch=True)
        yield library


def until(seen: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := seen()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)  # a search takes from the reader


def titles(library: Library) -> dict[str, str]:
    """Titles that a search finds, and their places."""
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
        commands.print_status(settings)
        assert ", watched\n" in capsys.readouterr().out
    finally:
        watcher.close()


def test_a_folder_that_goes_away_keeps_its_documents_and_is_read_when_it_is_back(
    settings: Settings, library: Library, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.library.watching.PAUSE", 0.2)
    away = documents.with_name("away")
    look, looks = FolderWatcher._there, list[set[str]]()

    def noted(watcher: FolderWatcher) -> There:
        found = look(watcher)
        looks.append(set(found))
        return found

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


def test_what_takes_the_place_of_a_watched_folder_or_document_is_watched(
    settings: Settings, library: Library, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Editors save so, and programs that exchange a whole folder at once."""
    monkeypatch.setattr("common.library.watching.PAUSE", 0.2)
    note = tmp_path / "note.txt"
    note.write_text("a note of mine")
    library.watch(note)

    def save(text: str) -> None:
        note.with_name("saved").write_text(text)
        note.with_name("saved").rename(note)

    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: set(titles(library)), {"the first note", "a note of mine"})
        for number in range(3):
            save(f"a note that was saved {number}")
            until(lambda text=f"a note that was saved {number}": text in titles(library), True)  # type: ignore[misc]
        shutil.rmtree(documents)
        documents.mkdir()
        (documents / "made.txt").write_text("a note made again")
        until(lambda: "a note made again" in titles(library), True)
        (documents / "more.txt").write_text("one more note")
        until(lambda: "one more note" in titles(library), True)
        (tmp_path / "next").mkdir()
        (tmp_path / "next" / "next.txt").write_text("the next note")
        documents.rename(tmp_path / "away")
        (tmp_path / "next").rename(documents)
        until(lambda: "the next note" in titles(library), True)
        (documents / "last.txt").write_text("the last note")
        until(lambda: set(titles(library)), {"a note that was saved 2", "the next note", "the last note"})
    finally:
        watcher.close()


def test_a_disk_that_is_mounted_over_a_folder_is_watched(
    settings: Settings, library: Library, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which the system tells nothing; and what is there, or changed elsewhere in between, is read."""
    monkeypatch.setattr("common.library.watching.PAUSE", 0.2)
    look, mounted, follows = FolderWatcher._there, list[int](), list[Changes]()
    follow = FolderWatcher._follow

    def there(watcher: FolderWatcher) -> There:
        return {root: (device + len(mounted), number) for root, (device, number) in look(watcher).items()}

    def noted(watcher: FolderWatcher, there: There) -> None:
        follows.append(dict(watcher._due))
        follow(watcher, there)

    monkeypatch.setattr(FolderWatcher, "_there", there)
    monkeypatch.setattr(FolderWatcher, "_follow", noted)
    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: len(follows), 1)
        mounted.append(1)
        until(lambda: len(follows), 2)
        assert list(follows[1]) == [str(documents)]
    finally:
        watcher.close()


def test_the_empty_folder_that_a_disk_leaves_is_not_read(tmp_path: Path) -> None:
    """Its documents stay in the library until the disk is there again; who empties a folder means it."""
    root, device = str(tmp_path), os.stat(tmp_path).st_dev
    library = SimpleNamespace(watched=lambda: [root])
    watcher: Any = SimpleNamespace(_library=library, _data=str(tmp_path / "data"), _devices={root: device + 1})
    assert FolderWatcher._there(watcher) == {}
    (tmp_path / "note.txt").write_text("words")
    assert set(FolderWatcher._there(watcher)) == {root} and watcher._devices == {root: device}
    (tmp_path / "note.txt").unlink()
    assert set(FolderWatcher._there(watcher)) == {root}
    watcher._devices.clear()
    assert FolderWatcher._there(watcher) == {}, "at the start the disk may not be mounted yet"
    watcher._data = root
    assert set(FolderWatcher._there(watcher)) == {root}, "uploads are on the disk that the library is on"


@pytest.mark.parametrize(
    ("lasts", "read"),
    [(0.0, [1.0]), (20.0, [21.0]), (70.0, [30.0, 60.5, 71.0])],
    ids=["saved", "written for a while", "written on and on"],
)
def test_a_folder_is_read_when_nothing_has_changed_there_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasts: float, read: list[float]
) -> None:
    """Half of a file is none; what never rests is read from time to time, and no other folder waits for that."""
    busy, other = str(tmp_path / "busy"), str(tmp_path / "other")
    now, told = 0.0, list[tuple[str, float]]()
    monkeypatch.setattr("common.library.watching.time", SimpleNamespace(monotonic=lambda: now))

    def changes(*asked: object) -> Iterator[set[tuple[Change, str]]]:
        nonlocal now
        for turn in range(200):
            now = turn / 2
            changed = [f"{busy}/slow.txt"] * (now <= lasts) + [f"{other}/note.txt"] * (turn == 4)
            yield {(Change.modified, path) for path in changed}

    def noted(changes: Changes) -> None:
        told.extend((root, now) for root in changes)

    watcher: Any = object.__new__(FolderWatcher)
    watcher._library = SimpleNamespace(busy=False)
    watcher._reading = SimpleNamespace(failed=dict, running=False, read=noted)
    watcher._own, watcher._due, watcher._changed, watcher._not_before = str(tmp_path / "library"), {}, {}, 0.0
    there = {busy: (0, 0), other: (0, 0)}
    watcher._changes, watcher._there = changes, lambda: there
    watcher._follow(there)
    assert [moment for root, moment in told if root == busy] == read
    assert [moment for root, moment in told if root == other] == [3.0]


def test_a_note_is_found_while_much_is_read(
    settings: Settings, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for hours of other documents, nor for another model, which a busy machine loads in minutes."""
    monkeypatch.setattr("common.library.watching.PAUSE", 0.2)
    embed, lent = library.embed, list[str]()

    def noted(texts: list[str]) -> NDArray[np.float32]:
        lent.extend(texts)
        return embed(texts)

    monkeypatch.setattr(library, "embed", noted)
    for number in range(MANY):
        write(f"many/{number:03}.txt", "\n\n".join(f"paragraph {each} of story {number}. " * 9 for each in range(100)))
    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: library.count > PROMPT, True)  # by now with a model of its own
        write("note.txt", "a note of today")
        until(lambda: "a note of today" in titles(library), True)
        assert "a note of today" in lent
        assert len(lent) < library.count < MANY * 100
        assert library.counts.documents < MANY
        # Whatever ends the reader, another one goes on, with what is new first.
        assert watcher._reading.running and watcher._reading._process is not None
        watcher._reading._process.kill()
        write("another.txt", "a note of tomorrow")
        until(lambda: "a note of tomorrow" in titles(library), True)
        assert library.counts.documents < MANY
    finally:
        watcher.close()


def test_folders_of_whose_changes_the_system_does_not_tell(
    settings: Settings,
    library: Library,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are more than its limit, for example."""

    def limited(*paths: str, force_polling: bool = False, **options: Any) -> Iterator[set[tuple[Change, str]]]:
        if not force_polling:
            raise OSError("OS file watch limit reached.")
        yield from watch(*paths, force_polling=True, **options)

    monkeypatch.setattr("common.library.watching.watch", limited)
    monkeypatch.setattr("common.library.watching.LOOKED", 0.2)
    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: [reading.running for reading in library.readings()], [False])
        write("note.txt", "a note of today")
        until(lambda: "a note of today" in titles(library), True)
    finally:
        watcher.close()
    assert caplog.text.count("fs.inotify.max_user_watches") == 1


def test_nothing_is_started_while_somebody_else_changes_the_library(
    settings: Settings, library: Library, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.library.watching.PAUSE", 0.2)
    busy, looks = Library.busy.fget, list[bool]()  # type: ignore[attr-defined]

    def noted(self: Library) -> bool:
        looks.append(busy(self))
        return looks[-1]

    monkeypatch.setattr(Library, "busy", property(noted))
    write("note.txt", "a note of today")
    with writer_lock(library.folder):
        watcher = FolderWatcher(settings, library)
        until(lambda: looks[:3], [True] * 3)
        assert watcher._reading._process is None
    try:
        until(lambda: "a note of today" in titles(library), True)
    finally:
        watcher.close()


def test_folders_that_are_passed_over_are_not_watched(
    settings: Settings, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[Changes]()
    read = ReadingProcess.read

    def noted(process: ReadingProcess, changes: Changes) -> None:
        told.append({folder: set(paths) for folder, paths in changes.items()})
        read(process, changes)

    monkeypatch.setattr(ReadingProcess, "read", noted)
    write("project/package.json", "{}")
    write(".git/index", "")
    write("project/build/made.txt", "")
    watcher = FolderWatcher(settings, library)
    try:
        until(lambda: len(told), 1)  # as it always begins
        write(".git/index", "changed")
        write("project/build/made.txt", "changed")
        write("note.txt", "a note of today")  # the first reading, which is still starting, may find it, too
        until(lambda: "a note of today" in titles(library), True)
        until(lambda: len(told) > 1, True)
    finally:
        watcher.close()
    assert told[0] == {str(documents): set()}
    assert {path for changes in told[1:] for path in changes[str(documents)]} == {str(documents / "note.txt")}


def test_what_is_removed_is_no_longer_watched(settings: Settings, library: Library, documents: Path) -> None:
    assert library.watched() == [str(documents)]
    commands.remove_documents(settings, [str(documents)])
    assert library.watched() == []


def test_what_is_removed_before_it_is_read_is_not_read(
    settings: Settings, library: Library, documents: Path, write: Write
) -> None:
    """The process that reads it takes seconds to start."""
    write("note.txt", "a note")
    library.remove([documents])
    left, told = [{str(documents): list[str]()}], list[dict[str, object]]()
    daemon: Any = SimpleNamespace(
        waiting=False, taken=1, tell=lambda **line: told.append(line), take=lambda wait: left.pop() if left else {}
    )
    lent: Any = SimpleNamespace(lent=0)
    FolderReader(daemon, settings, library, lent).run()
    assert (told, library.files(), library.readings()) == ([{"read": str(documents), "done": True, "taken": 1}], [], [])


def test_it_stops_at_once(settings: Settings, library: Library, write: Write) -> None:
    """In the middle of a reading, too."""
    write("long.txt", "\n\n".join(f"paragraph {number} of a long story" for number in range(4000)))
    watcher = FolderWatcher(settings, library)
    until(lambda: any(reading.running for reading in library.readings()), True)
    watcher.close()
    assert watcher._reading._process is not None
    assert watcher._reading._process.returncode == -signal.SIGTERM  # it was not waited for
    until(lambda: any(reading.running for reading in library.readings()), False)
