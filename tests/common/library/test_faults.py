"""Kills, damaged files and full disks: nothing is lost, or one sentence says what is wrong."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from common.library import database
from common.library.chunks import Chunker
from common.library.database import Database
from common.library.errors import LibraryDamaged, LibraryError, LibraryFull
from common.library.library import Library
from common.library.store import DATABASE, Store
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

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
        with Library(tmp_path / "undisturbed", toy, chunker=chunker) as library:
            fill(write, "second")
            library.add(documents)
            expected = {path: {text.split(" ", 1)[1] for text in texts} for path, texts in content(library).items()}
        draw = random.Random(7)
        folder = tmp_path / "library"
        command = [sys.executable, "-m", "tests.common.library.ingesting", str(folder), str(documents)]
        for attempt in range(6):
            # The documents change halfway, so that some kills hit replacements.
            fill(write, "first" if attempt < 3 else "second")
            with Library(folder, toy, chunker=chunker) as library:
                before = {file.relative_path for file in library.files()}
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            for _ in range(draw.randrange(1, 45)):
                child.stdout.readline()
            time.sleep(draw.uniform(0.0, 1e-3))  # somewhere within the step
            child.send_signal(signal.SIGKILL)
            child.communicate()
            with Library(folder, toy, chunker=chunker) as library:
                check(library)
                assert {file.relative_path for file in library.files()} >= before
        with Library(folder, toy, chunker=chunker) as library:
            library.add(documents)
            check(library)
            found = {path: {text.split(" ", 1)[1] for text in texts} for path, texts in content(library).items()}
            assert found == expected


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chunker: Chunker) -> Path:
    """The folder of a library, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    documents = folder / "documents"
    documents.mkdir()

    def write(name: str, content: str | bytes) -> Path:
        path = documents / name
        path.write_text(str(content))
        return path

    fill(write, "first")
    with Library(folder / "library", ToyEmbedder(), chunker=chunker) as library:
        library.add(documents)
    return folder / "library"


@pytest.fixture
def filled(made: Path, tmp_path: Path, toy: ToyEmbedder, chunker: Chunker) -> Iterator[Library]:
    """A library whose documents are not here."""
    with Library(shutil.copytree(made, tmp_path / "library"), toy, chunker=chunker) as library:
        yield library


def edit(library: Library, statements: str) -> None:
    """Close the library and change rows of its database without a word to whatever counts them."""
    library.close()
    with closing(sqlite3.connect(library.folder / DATABASE)) as connection:
        connection.create_function("checksum", -1, lambda *values: 0)
        connection.executescript(statements)


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
            try:
                with Library(filled.folder, toy, chunker=filled._cutter()) as library:
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
            "UPDATE chunks SET content = 1",
            "UPDATE contents SET title = upper(title)",
            "UPDATE contents SET chunks = chunks + 1",
            "UPDATE contents SET remarks = 'another'",
            "UPDATE paths SET path = path || 'x'",
            "UPDATE paths SET root = '/elsewhere'",
            "UPDATE paths SET path = CAST(path AS BLOB)",
            "DELETE FROM commits",
            "INSERT INTO model VALUES ('toy', 64)",
            "UPDATE model SET dimension = 'many'",
            "UPDATE model SET dimension = 1000000000",
            "UPDATE model SET embedder = x'00'",
        ],
    )
    def test_content_that_was_not_written_is_not_served(
        self, filled: Library, toy: ToyEmbedder, statement: str
    ) -> None:
        edit(filled, statement)
        with pytest.raises(LibraryDamaged, match="is damaged"), Library(filled.folder, toy) as library:
            library.search("words", 10_000)

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM paths WHERE path LIKE '%07.txt'",
            "DELETE FROM watched",
            "DELETE FROM skipped",
            "UPDATE tags SET tag = 'play'",
            "UPDATE encodings SET encoding = 'big5'",
            "UPDATE readings SET ended = 0",
            "UPDATE commits SET name = 'x' || name",
            "DELETE FROM sums",
            "UPDATE keywords_docsize SET sz = x'7f7f'",
            "DELETE FROM keywords_idx WHERE pgno = (SELECT max(pgno) FROM keywords_idx)",
        ],
    )
    def test_rows_that_are_missing_or_others_are_told(
        self, library: Library, write: Write, documents: Path, statement: str
    ) -> None:
        fill(write, "first")
        write("skipped.txt", b"\0")
        library.add(documents, watch=True, tags=["work"], encoding="cp1252")
        Library(library.folder, ToyEmbedder()).close()
        edit(library, f"PRAGMA foreign_keys = OFF; {statement}")
        with pytest.raises(LibraryDamaged, match="is damaged"):
            Library(library.folder, ToyEmbedder())

    def test_the_tables_that_it_is_compared_with_are_made_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is compared at each opening, and an answer about files of its own waits for several."""
        made, connect = list[object](), sqlite3.connect

        def noted(place: Any, **options: Any) -> sqlite3.Connection:
            made.append(place)
            connection: sqlite3.Connection = connect(place, **options)
            return connection

        monkeypatch.setattr("sqlite3.connect", noted)
        for _ in range(4):
            Store(tmp_path).close()
        assert len(made) >= 4 and made.count(":memory:") <= 1

    def test_another_file_in_its_place(self, tmp_path: Path, toy: ToyEmbedder) -> None:
        (tmp_path / DATABASE).write_text("something else entirely " * 99)
        with pytest.raises(LibraryDamaged, match=r"file is not a database.*move the folder away"):
            Library(tmp_path, toy)

    @pytest.mark.parametrize("version", [0, database.FORMAT])
    def test_another_programs_database_is_left_as_it_is(self, tmp_path: Path, toy: ToyEmbedder, version: int) -> None:
        path = tmp_path / DATABASE
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("CREATE TABLE letters (words TEXT); INSERT INTO letters VALUES ('dear')")
            connection.execute(f"PRAGMA user_version = {version}")
        before = path.read_bytes()
        with pytest.raises(
            LibraryError, match=r"tables, views or triggers that a library never has.*It was not changed"
        ):
            Library(tmp_path, toy)
        assert path.read_bytes() == before
        assert {item.name for item in tmp_path.iterdir()} == {DATABASE}

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TRIGGER t AFTER INSERT ON commits BEGIN DELETE FROM paths; END",
            "CREATE TRIGGER t AFTER DELETE ON paths BEGIN INSERT INTO staged VALUES ('x', 1, zeroblob(1000000)); END",
            "CREATE VIEW v AS SELECT * FROM paths",
            "CREATE INDEX i ON contents (abs(title))",
            "ALTER TABLE paths ADD COLUMN more TEXT DEFAULT 'x'",
            "ALTER TABLE paths RENAME TO documents; CREATE VIEW paths AS SELECT * FROM documents",
        ],
    )
    def test_what_would_run_with_what_is_written(self, filled: Library, toy: ToyEmbedder, statement: str) -> None:
        edit(filled, statement)
        with pytest.raises(LibraryError, match="that a library never has"):
            Library(filled.folder, toy)

    def test_the_format_of_another_release(self, filled: Library, toy: ToyEmbedder) -> None:
        edit(filled, "PRAGMA user_version = 99")
        with pytest.raises(LibraryError, match="has format 99"):
            Library(filled.folder, toy)

    def test_the_format_of_an_earlier_release(self, filled: Library, toy: ToyEmbedder) -> None:
        edit(filled, "PRAGMA user_version = 7")
        before = (filled.folder / DATABASE).read_bytes()
        with pytest.raises(LibraryError, match=r"has format 7 of an earlier version.*add the folders again"):
            Library(filled.folder, toy)
        assert (filled.folder / DATABASE).read_bytes() == before

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

        def small(path: Path, *options: bool) -> sqlite3.Connection:
            connection = original(path, *options)
            connection.execute("PRAGMA max_page_count = 40")  # SQLite reports it as a full disk
            return connection

        fill(write, "first")
        with monkeypatch.context() as context:
            context.setattr(database, "connect", small)
            with Library(tmp_path / "small", toy, chunker=chunker) as library:
                with pytest.raises(LibraryFull, match=r"no space is left.*continues where it stopped"):
                    library.add(documents)
                check(library)
                kept = library.count
        assert kept > 0
        with Library(tmp_path / "small", toy, chunker=chunker) as library:
            library.add(documents)
            check(library)
            assert library.count > kept

    def test_a_full_folder_of_temporary_files_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """SQLite sorts there what does not fit into memory; its error is the same."""
        free = {tmp_path / "library": 10**9, tmp_path / "temporary": 0}
        usage = type(shutil.disk_usage(tmp_path))
        monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path / "temporary"))
        monkeypatch.setattr("common.library.database.shutil.disk_usage", lambda place: usage(10**9, 0, free[place]))
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        (tmp_path / "library").mkdir()
        with closing(Database(tmp_path / "library" / DATABASE)) as opened:
            for fullest in ("temporary", "library"):
                free[tmp_path / "library"] = 10**9 if fullest == "temporary" else 0
                assert f"no space is left on the disk of {tmp_path / fullest}: free" in str(opened._explained(full))

    def test_a_folder_that_cannot_be(self, tmp_path: Path, toy: ToyEmbedder) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(LibraryError, match="can't be made"):
            Library(tmp_path / "file" / "library", toy)

    def test_a_log_that_the_database_has_no_room_for(
        self, library: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All that was committed is found where it is."""

        def full(database: Database) -> None:
            raise LibraryFull("no space is left")

        monkeypatch.setattr(Database, "gather", full)
        write("new.txt", "new words")
        assert library.add(documents).added == 1
        assert [hit.path for hit in library.search("new words", 1)] == ["new.txt"]
