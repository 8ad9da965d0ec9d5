"""Kills, damaged files and full disks: nothing is lost, or one sentence says what is wrong."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.retrieval import database
from common.retrieval.chunks import Chunker
from common.retrieval.errors import LibraryDamaged, LibraryError, LibraryFull
from common.retrieval.index import INDEX, TEMPORARY
from common.retrieval.library import Library
from common.retrieval.store import DATABASE
from tests.common.retrieval.conftest import Write
from tests.common.retrieval.toy_embedder import ToyEmbedder

ROOT = Path(__file__).resolve().parents[3]
LONG = " ".join(f"Sentence {number} of the long one is here." for number in range(120))


def fill(write: Write, version: str) -> None:
    write("long.txt", f"{version} {LONG}")
    for number in range(40):
        write(
            f"{number:02}.txt",
            f"{version}: note {number}. " + "Some words follow it here. " * (number % 7 * 3),
        )


def content(library: Library) -> dict[str, set[str]]:
    """Chunk texts by document, through the index."""
    found: dict[str, set[str]] = {}
    for hit in library.search("words", 10_000):
        found.setdefault(hit.path, set()).add(f"{hit.chunk} {hit.text}")
    return found


def check(library: Library) -> None:
    """The database is sound, and search, counts and files agree."""
    connection = sqlite3.connect(library.folder / DATABASE)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    counts = {path: len(chunks) for path, chunks in content(library).items()}
    assert counts == {file.relative_path: file.chunks for file in library.files()}


class TestKill:
    def test_kill_9_at_any_time_loses_nothing(
        self, tmp_path: Path, write: Write, documents: Path, chunker: Chunker
    ) -> None:
        toy = ToyEmbedder()
        with Library.open(tmp_path / "undisturbed", toy, chunker=chunker) as library:
            fill(write, "second")
            library.add(documents)
            expected = {path: {text.split(" ", 1)[1] for text in texts} for path, texts in content(library).items()}
        draw = random.Random(7)
        folder = tmp_path / "library"
        command = [sys.executable, "-m", "tests.common.retrieval.ingesting", str(folder), str(documents)]
        for attempt in range(8):
            # The documents change halfway, so that some kills hit replacements.
            fill(write, "first" if attempt < 4 else "second")
            with Library.open(folder, toy, chunker=chunker) as library:
                before = {file.relative_path for file in library.files()}
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            for _ in range(draw.randrange(1, 45)):
                child.stdout.readline()
            time.sleep(draw.uniform(0.0, 1e-3))  # somewhere within the step
            child.send_signal(signal.SIGKILL)
            child.communicate()
            with Library.open(folder, toy, chunker=chunker) as library:
                check(library)
                assert {file.relative_path for file in library.files()} >= before
        with Library.open(folder, toy, chunker=chunker) as library:
            library.add(documents)
            check(library)
            found = {path: {text.split(" ", 1)[1] for text in texts} for path, texts in content(library).items()}
            assert found == expected
        assert not (folder / TEMPORARY).exists()


@pytest.fixture
def filled(library: Library, write: Write, documents: Path) -> Library:
    fill(write, "first")
    library.add(documents)
    return library


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    match kind:
        case "flipped bit":
            data[len(data) // 2] ^= 1
        case "flipped bit in the header":
            data[20] ^= 1
        case "cut short":
            del data[len(data) // 2 :]
        case "empty":
            data.clear()
        case "noise":
            data[:] = random.Random(1).randbytes(len(data))
    path.write_bytes(data)


class TestIndexFile:
    @pytest.mark.parametrize("kind", ["flipped bit", "flipped bit in the header", "cut short", "empty", "noise"])
    def test_damage_is_noticed_and_repaired(self, filled: Library, kind: str, toy: ToyEmbedder) -> None:
        path = filled.folder / INDEX
        before, good = content(filled), path.read_bytes()
        damage(path, kind)
        with Library.open(filled.folder, toy) as reopened:
            assert content(reopened) == before
        assert path.read_bytes() == good

    def test_an_old_file_is_brought_up_to_date(
        self, filled: Library, toy: ToyEmbedder, write: Write, documents: Path
    ) -> None:
        path = filled.folder / INDEX
        old = path.read_bytes()
        (documents / "07.txt").unlink()
        write("08.txt", "replaced words")
        filled.add(documents)
        path.write_bytes(old)
        with Library.open(filled.folder, toy) as reopened:
            assert content(reopened) == content(filled)
            assert "07.txt" not in content(reopened)

    def test_a_disk_too_full_for_it_does_not_hurt(
        self, filled: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*paths: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.replace", full)
        write("new.txt", "new words")
        assert filled.add(documents).added == 1
        assert "new.txt" in content(filled)
        assert not (filled.folder / TEMPORARY).exists()


class TestDatabase:
    def test_a_page_of_noise_is_an_error_or_changes_nothing(
        self, filled: Library, toy: ToyEmbedder, documents: Path
    ) -> None:
        expected = content(filled)
        filled.close()
        path = filled.folder / DATABASE
        good = path.read_bytes()
        pages = len(good) // 4096
        draw = random.Random(3)
        noticed = 0
        sentences: list[str] = []
        for page in draw.sample(range(pages), min(pages, 40)):
            path.write_bytes(good[: page * 4096] + draw.randbytes(4096) + good[(page + 1) * 4096 :])
            (filled.folder / INDEX).unlink(missing_ok=True)
            try:
                with Library.open(filled.folder, toy, chunker=filled._cutter()) as library:
                    assert content(library) == expected
                    assert len(library.files()) == len(expected)
            except LibraryError as error:
                sentences.append(str(error))
                noticed += isinstance(error, LibraryDamaged)
        assert all(str(filled.folder) in sentence and "\n" not in sentence for sentence in sentences)
        assert noticed > pages // 2 or noticed > 20

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE chunks SET text = replace(text, 'words', 'sword')",
            "UPDATE vectors SET vector = zeroblob(256)",
            "UPDATE vectors SET vector = substr(vector, 1, 100), checksum = 0",
            "UPDATE vectors SET vector = 5",
            "DELETE FROM vectors WHERE chunk % 2",
            "DELETE FROM commits",
            "INSERT INTO model VALUES ('toy', 64)",
        ],
    )
    def test_content_that_was_not_written_is_not_served(
        self, filled: Library, toy: ToyEmbedder, statement: str
    ) -> None:
        filled.close()
        connection = sqlite3.connect(filled.folder / DATABASE)
        connection.execute(statement)
        connection.commit()
        connection.close()
        (filled.folder / INDEX).unlink()
        with Library.open(filled.folder, toy) as library, pytest.raises(LibraryDamaged, match="is damaged"):
            library.search("words", 10_000)

    def test_another_file_in_its_place(self, tmp_path: Path, toy: ToyEmbedder) -> None:
        (tmp_path / DATABASE).write_text("something else entirely " * 99)
        with pytest.raises(LibraryDamaged, match=r"file is not a database.*move the folder away"):
            Library.open(tmp_path, toy)

    def test_the_format_of_another_release(self, filled: Library, toy: ToyEmbedder) -> None:
        filled.close()
        connection = sqlite3.connect(filled.folder / DATABASE)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        with pytest.raises(LibraryError, match="has format 99"):
            Library.open(filled.folder, toy)

    def test_a_full_disk_keeps_what_is_committed(
        self,
        tmp_path: Path,
        toy: ToyEmbedder,
        chunker: Chunker,
        write: Write,
        documents: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        original = database.connect

        def small(path: Path) -> sqlite3.Connection:
            connection = original(path)
            connection.execute("PRAGMA max_page_count = 25")  # SQLite reports it as a full disk
            return connection

        fill(write, "first")
        with monkeypatch.context() as context:
            context.setattr(database, "connect", small)
            with Library.open(tmp_path / "small", toy, chunker=chunker) as library:
                with pytest.raises(LibraryFull, match=r"no space is left.*goes on where it stopped"):
                    library.add(documents)
                check(library)
                kept = library.count
        assert kept > 0
        with Library.open(tmp_path / "small", toy, chunker=chunker) as library:
            library.add(documents)
            check(library)
            assert library.count > kept

    def test_a_folder_that_cannot_be(self, tmp_path: Path, toy: ToyEmbedder) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(LibraryError, match="can't be made"):
            Library.open(tmp_path / "file" / "library", toy)
