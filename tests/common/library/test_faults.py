"""Kills, damaged files and full disks: nothing is lost, or one sentence says what is wrong."""

from __future__ import annotations

import hashlib
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from common.library import database, index_header, seal
from common.library.chunks import Chunker
from common.library.errors import LibraryDamaged, LibraryError, LibraryFull
from common.library.index_file import TEMPORARY
from common.library.library import Library
from common.library.store import DATABASE, INDEX, Store
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import DIMENSION, ToyEmbedder

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
        assert not (folder / TEMPORARY).exists()


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


@pytest.fixture
def added(library: Library, write: Write, documents: Path) -> Library:
    """One that is beside its documents."""
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


def edit(library: Library, statements: str) -> None:
    """Close the library and change its database; it has no seal, as where a change was killed."""
    library.close()
    with closing(sqlite3.connect(library.folder / DATABASE)) as connection:
        connection.executescript(statements)
    seal.remove(library.folder)


class TestIndexFile:
    @pytest.mark.parametrize("kind", ["flipped bit", "flipped bit in the header", "cut short", "empty", "noise"])
    def test_damage_is_noticed_and_repaired(self, filled: Library, kind: str, toy: ToyEmbedder) -> None:
        path = filled.folder / INDEX
        before, good = content(filled), path.read_bytes()
        damage(path, kind)
        with Library(filled.folder, toy) as reopened:
            assert content(reopened) == before
        assert path.read_bytes() == good

    @pytest.mark.parametrize(
        "kind", ["another dimension", "another kind", "another metric", "other ids", "half the ids", "absurd size"]
    )
    def test_a_file_that_claims_to_be_this_librarys(self, filled: Library, kind: str, toy: ToyEmbedder) -> None:
        """Its header and its checksum are right: whoever hands a library on can write both."""
        path = filled.folder / INDEX
        before, good = content(filled), path.read_bytes()
        written = index_header.written(good[: index_header.HEADER])
        assert written is not None
        ids = np.arange(1, filled.count + 1)
        width = 8 if kind == "another dimension" else DIMENSION
        inner = faiss.IndexFlatL2(width) if kind == "another metric" else faiss.IndexFlatIP(width)
        made = faiss.IndexIDMap2(faiss.IndexLSH(width, 16) if kind == "another kind" else inner)
        chosen = {"other ids": ids + 10**6, "half the ids": ids[::2]}.get(kind, ids)
        made.add_with_ids(np.zeros((len(chosen), width), np.float32), chosen)
        data = bytearray(faiss.serialize_index(made).tobytes())
        if kind == "absurd size":
            sizes = (4 * len(chosen) * width // 4).to_bytes(8, "little")
            assert sizes in data
            data = data.replace(sizes, (2**38).to_bytes(8, "little"))
        header = index_header.header(replace(written, sha256=hashlib.sha256(data).hexdigest()))
        path.write_bytes(header + data)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Library(filled.folder, toy) as reopened:
            assert content(reopened) == before
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**18  # KiB
        with Library(filled.folder, toy) as again:
            assert content(again) == before

    def test_an_old_file_is_brought_up_to_date(
        self, added: Library, toy: ToyEmbedder, write: Write, documents: Path
    ) -> None:
        path = added.folder / INDEX
        old = path.read_bytes()
        (documents / "07.txt").unlink()
        write("08.txt", "replaced words")
        added.add(documents)
        path.write_bytes(old)
        with Library(added.folder, toy) as reopened:
            assert content(reopened) == content(added)
            assert "07.txt" not in content(reopened)

    def test_a_disk_too_full_for_it_does_not_hurt(
        self, added: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*paths: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.replace", full)
        write("new.txt", "new words")
        assert added.add(documents).added == 1
        assert "new.txt" in content(added)
        assert not (added.folder / TEMPORARY).exists()


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
            "DELETE FROM commits",
            "INSERT INTO model VALUES ('toy', 64)",
        ],
    )
    def test_content_that_was_not_written_is_not_served(
        self, filled: Library, toy: ToyEmbedder, statement: str
    ) -> None:
        edit(filled, statement)
        (filled.folder / INDEX).unlink()
        with Library(filled.folder, toy) as library, pytest.raises(LibraryDamaged, match="is damaged"):
            library.search("words", 10_000)

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

    @pytest.mark.parametrize("version", [0, 3])
    def test_another_programs_database_is_left_as_it_is(self, tmp_path: Path, toy: ToyEmbedder, version: int) -> None:
        path = tmp_path / DATABASE
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("CREATE TABLE letters (words TEXT); INSERT INTO letters VALUES ('dear')")
            connection.execute(f"PRAGMA user_version = {version}")
        before = path.read_bytes()
        with pytest.raises(LibraryError, match=r"tables, views or triggers that no library has.*it is left as it is"):
            Library(tmp_path, toy)
        assert path.read_bytes() == before
        assert {item.name for item in tmp_path.iterdir()} == {DATABASE}

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TRIGGER t AFTER INSERT ON commits BEGIN DELETE FROM files; END",
            "CREATE TRIGGER t AFTER DELETE ON files BEGIN INSERT INTO staged VALUES ('x', 1, zeroblob(1000000)); END",
            "CREATE VIEW v AS SELECT * FROM files",
            "CREATE INDEX i ON files (abs(title))",
            "ALTER TABLE files ADD COLUMN more TEXT DEFAULT 'x'",
            "ALTER TABLE files RENAME TO documents; CREATE VIEW files AS SELECT * FROM documents",
        ],
    )
    def test_what_would_run_with_what_is_written(self, filled: Library, toy: ToyEmbedder, statement: str) -> None:
        edit(filled, statement)
        with pytest.raises(LibraryError, match="that no library has"):
            Library(filled.folder, toy)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE files SET root = '/elsewhere'",
            "UPDATE files SET path = CAST(path AS BLOB)",
            "UPDATE files SET title = 5.5, root = x''",
            "UPDATE model SET dimension = 'many'",
            "UPDATE model SET dimension = 1000000000",
            "UPDATE model SET embedder = x'00'",
        ],
    )
    def test_values_that_no_library_writes(self, filled: Library, toy: ToyEmbedder, statement: str) -> None:
        edit(filled, statement)
        with Library(filled.folder, toy) as library, pytest.raises(LibraryDamaged, match="is damaged"):
            library.search("words", 10)

    def test_a_document_beside_its_folder_is_chosen_by_no_pattern(self, filled: Library, toy: ToyEmbedder) -> None:
        """Also where its folder's name begins as that of its root does."""
        edit(filled, "UPDATE files SET root = substr(root, 1, length(root) - 1)")
        with Library(filled.folder, toy) as library, pytest.raises(LibraryDamaged, match="is damaged"):
            library.check(["*"])

    def test_the_format_of_another_release(self, filled: Library, toy: ToyEmbedder) -> None:
        edit(filled, "PRAGMA user_version = 99")
        with pytest.raises(LibraryError, match="has format 99"):
            Library(filled.folder, toy)

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
                with pytest.raises(LibraryFull, match=r"no space is left.*goes on where it stopped"):
                    library.add(documents)
                check(library)
                kept = library.count
        assert kept > 0
        with Library(tmp_path / "small", toy, chunker=chunker) as library:
            library.add(documents)
            check(library)
            assert library.count > kept

    def test_a_folder_that_cannot_be(self, tmp_path: Path, toy: ToyEmbedder) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(LibraryError, match="can't be made"):
            Library(tmp_path / "file" / "library", toy)
