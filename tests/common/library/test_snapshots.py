"""Snapshots of a library: what others read while it goes on being changed."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from common.library import database, publishing, snapshots
from common.library.errors import LibraryError
from common.library.library import Library
from common.library.publishing import Follower, Publisher
from common.library.snapshots import find_newest_snapshot, forget, publish, tidy
from common.library.store import DATABASE, INDEX, Store
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder
from tests.daemons.streaming import wait_until

FIRST, SECOND = "The ferry leaves at nine.", "The museum opens at ten."


@pytest.fixture
def library(tmp_path: Path, toy: ToyEmbedder, write: Write, documents: Path) -> Iterator[Library]:
    write("ferry.txt", FIRST)
    with Library(tmp_path / "library", toy) as library:
        library.add(documents)
        yield library


@pytest.fixture
def opened(toy: ToyEmbedder) -> Callable[[Path], Library]:
    return lambda folder: Library(folder, toy)


def texts(library: Library) -> list[str]:
    return sorted(hit.text for hit in library.search("when", 9))


def test_is_what_the_library_was(
    library: Library, opened: Callable[[Path], Library], write: Write, documents: Path
) -> None:
    place = publish(library.folder)
    assert find_newest_snapshot(library.folder) == place == publish(library.folder)
    with opened(place) as snapshot:
        assert (snapshot.identity, snapshot.counts) == (library.identity, library.counts)
        write("museum.txt", SECOND)
        library.add(documents)
        assert texts(snapshot) == [FIRST]
        assert texts(library) == [FIRST, SECOND]
        other = publish(library.folder)
        with opened(other) as later:
            assert texts(later) == [FIRST, SECOND]
            assert later.passages("museum", "when")[0].text == SECOND
            assert [hit.text for hit in later.search("when", 9, only=["*.txt"])] != []
    assert find_newest_snapshot(library.folder) == other != place


def test_is_read_without_writing(library: Library, opened: Callable[[Path], Library]) -> None:
    """A disk that can't be written to, or locked on, does: nothing is made beside the database."""
    place = publish(library.folder)
    before = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    assert set(before) == {DATABASE, "published"}
    with opened(place) as snapshot:
        assert texts(snapshot) == [FIRST]
        assert {path.name: path.stat().st_mtime_ns for path in place.iterdir()} == before
        for change in (
            lambda: snapshot.add(place),
            lambda: snapshot.remove("all"),
            lambda: snapshot.watch(place),
            snapshot.rebuild,
        ):
            with pytest.raises(LibraryError, match="is a snapshot of another library: change that library"):
                change()
    with sqlite3.connect(place / DATABASE) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]


def test_of_a_library_without_documents(tmp_path: Path, opened: Callable[[Path], Library]) -> None:
    assert find_newest_snapshot(tmp_path) is None
    with opened(publish(tmp_path / "library")) as snapshot:
        assert (snapshot.identity, snapshot.count, texts(snapshot)) == ("", 0, [])


def test_what_is_known_of_it_is_known_when_it_is_closed(library: Library, opened: Callable[[Path], Library]) -> None:
    """Others may ask in the moment in which another one takes its place."""
    with opened(publish(library.folder)) as snapshot:
        snapshot.warm()
    assert (snapshot.identity, snapshot.counts, snapshot.count_to(9)) == (library.identity, library.counts, 1)
    with pytest.raises(LibraryError):
        snapshot.search("when", 1)


def test_one_whose_making_was_killed_is_made_anew(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(made: Path, path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(snapshots, "put_in_place", killed)
        publish(library.folder)
    assert find_newest_snapshot(library.folder) is None
    assert publish(library.folder) == find_newest_snapshot(library.folder)


def test_the_making_of_a_large_one_can_be_stopped(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_COPIED", 1)
    store = library._store
    with store.writing():
        store.stage("work", range(4000), np.zeros((4000, 1000), np.float32))

    def told(number: int, frame: object) -> None:
        raise InterruptedError

    def copied(store: Store, folder: Path) -> None:
        # Of processor time, a small part of what the copy takes, however busy the machine is.
        signal.setitimer(signal.ITIMER_PROF, 0.005)
        copy(store, folder)

    copy = Store.copy
    monkeypatch.setattr(Store, "copy", copied)
    former = signal.signal(signal.SIGPROF, told)
    try:
        with pytest.raises(LibraryError, match="can't be published"):
            publish(library.folder)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, former)
    (made,) = (path for path in (library.folder / "snapshots").rglob(DATABASE))
    assert made.stat().st_size < 16_000_000
    assert find_newest_snapshot(library.folder) is None


def test_a_disk_that_is_full_is_told_of(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(made: Path, path: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(snapshots, "put_in_place", full)
    with pytest.raises(LibraryError, match="can't be published: No space left on device"):
        publish(library.folder)


def test_another_index_of_the_same_content_is_another_snapshot(
    library: Library, toy: ToyEmbedder, opened: Callable[[Path], Library]
) -> None:
    """Whoever opens it is given what was trained, and trains nothing."""
    first = publish(library.folder)
    with Library(library.folder, toy, approximate_from=1) as trained:
        trained.warm()
        trained._index.finish_training()
        assert publish(library.folder) == first
        trained.settle()
        second = publish(library.folder)
    assert second == find_newest_snapshot(library.folder) == publish(library.folder) != first
    assert (second / INDEX).exists() > (first / INDEX).exists()
    for place, lists in ((first, False), (second, True)):
        with Library(place, toy, approximate_from=1) as snapshot:
            assert texts(snapshot) == [FIRST]
            snapshot._index.finish_training()
            assert texts(snapshot) == [FIRST]
            assert snapshot._index.approximate == lists
    with opened(second) as exhaustive:
        assert texts(exhaustive) == [FIRST]


def test_those_that_were_replaced_go_when_nobody_reads_them(
    library: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(library.folder)
    write("museum.txt", SECOND)
    library.add(documents)
    second = publish(library.folder)
    tidy(library.folder)
    assert first.is_dir() and second.is_dir()
    monkeypatch.setattr(snapshots, "_KEPT", 0.0)
    tidy(library.folder)
    assert not first.exists() and second.is_dir()


def test_forgotten_ones_are_gone(library: Library) -> None:
    publish(library.folder)
    forget(library.folder)
    assert find_newest_snapshot(library.folder) is None
    assert not any(path.is_dir() for path in library.folder.iterdir())
    assert texts(library) == [FIRST]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_LOOK", 0.01)
    monkeypatch.setattr(publishing, "_SHARE", 1.0)
    monkeypatch.setattr(publishing, "_PAUSE", 0.01)


@pytest.mark.usefixtures("quick")
class TestThreads:
    def test_each_content_is_published_and_opened(
        self, library: Library, opened: Callable[[Path], Library], write: Write, documents: Path
    ) -> None:
        place = publish(library.folder)
        taken: list[Library] = []
        publisher = Publisher(library)
        follower = Follower(library.folder, place, opened, taken.append)
        write("museum.txt", SECOND)
        library.add(documents)
        wait_until(lambda: bool(taken), "it is opened")
        follower.close()
        publisher.close()
        assert len(taken) == 1
        assert texts(taken[0]) == [FIRST, SECOND]
        taken[0].close()

    def test_one_that_cannot_be_opened_is_tried_again(
        self, library: Library, opened: Callable[[Path], Library], caplog: pytest.LogCaptureFixture
    ) -> None:
        taken: list[Library] = []
        tries = 0

        def at_last(folder: Path) -> Library:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise LibraryError("not yet")
            return opened(folder)

        publish(library.folder)
        follower = Follower(library.folder, library.folder / "former", at_last, taken.append)
        wait_until(lambda: bool(taken), "it is opened")
        follower.close()
        taken[0].close()
        assert caplog.text.count("opening a snapshot of the library failed with LibraryError; it is tried again") == 1

    def test_searches_go_on_while_contents_come_and_go(
        self, library: Library, opened: Callable[[Path], Library], write: Write, documents: Path
    ) -> None:
        """As a worker has it: each search finds all of one content, whichever that is."""
        place = publish(library.folder)
        searching, lock = [opened(place)], threading.Lock()

        def take(other: Library) -> None:
            with lock:
                former, searching[0] = searching[0], other
                former.close()

        publisher, follower = Publisher(library), Follower(library.folder, place, opened, take)
        added = ["The ferry leaves at nine."]
        until = time.monotonic() + 2.0
        seen: set[int] = set()
        while time.monotonic() < until or len(seen) < 3:
            added.append(f"Museum number {len(added)} opens at ten.")
            write(f"museum{len(added)}.txt", added[-1])
            library.add(documents)
            with lock:
                found = {hit.text for hit in searching[0].search("when", 1000)}
            seen.add(len(found))
            assert found == set(added[: len(found)])
        follower.close()
        publisher.close()
        searching[0].close()
