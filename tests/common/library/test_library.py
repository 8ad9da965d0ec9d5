"""Search, with the real model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Literal

import numpy as np
import pytest

from common.library.chunks import Chunker
from common.library.database import Database
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import LibraryError
from common.library.library import Library
from common.library.store import Counts
from common.scoring.static import StaticScorer
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

AT_ONCE = 10.0  # seconds, on a busy machine, too
NOTES = {
    "keys.md": "# Spare key\n\nThe spare key is under the blue flower pot on the balcony.",
    "dentist.txt": "Dentist appointment on the fourth of May at nine in the morning.",
    "bike/repair.md": "The bicycle shop on Mill Lane replaced both brake pads in March.",
    "bike/lock.txt": "The bicycle lock opens with the year the house was built.",
}


@pytest.fixture
def notes(tmp_path: Path, write: Write, embedder: SentenceTransformerEmbedder, documents: Path) -> Iterator[Library]:
    for name, text in NOTES.items():
        write(name, text)
    with Library(tmp_path / "library", embedder) as library:
        library.add(documents)
        yield library


class TestSearch:
    def test_finds_what_is_meant(self, notes: Library) -> None:
        best = notes.search("Where did I hide the door key?", 2)[0]
        assert (best.title, best.path, best.text) == ("Spare key", "keys.md", NOTES["keys.md"])
        assert notes.search("fixing the brakes", 1)[0].path == "bike/repair.md"
        assert notes.search("When do I see the doctor for my teeth?", 1)[0].title == "dentist"

    def test_a_question_that_follows_up_on_another_is_about_the_same(self, notes: Library) -> None:
        assert notes.search("And when was it?", 1)[0].path != "dentist.txt"
        assert notes.search("And when was it?", 1, "Do I have to see the dentist?")[0].path == "dentist.txt"
        assert notes.search("Where is the spare key?", 1, "Do I have to see the dentist?")[0].path == "keys.md"
        assert notes.search("bicycle", 4, " ") == notes.search("bicycle", 4)

    def test_gives_what_there_is_best_first(self, notes: Library) -> None:
        hits = notes.search("bicycle", 100)
        assert len(hits) == notes.count == 4
        similarities = [hit.similarity for hit in hits]
        assert similarities == sorted(similarities, reverse=True)
        assert notes.search("bicycle", 0) == []
        with pytest.raises(ValueError, match="negative"):
            notes.search("bicycle", -1)

    def test_similarity_is_the_cosine(self, notes: Library, embedder: SentenceTransformerEmbedder) -> None:
        hit = notes.search("bicycle", 1)[0]
        vectors = embedder.encode(["bicycle", hit.text]).astype(np.float64)
        assert hit.similarity == pytest.approx(vectors[0] @ vectors[1], abs=1e-12)

    def test_an_answer_does_not_depend_on_the_librarys_history(
        self, notes: Library, write: Write, documents: Path, embedder: SentenceTransformerEmbedder
    ) -> None:
        def seen(library: Library) -> list[tuple[str, float]]:
            return [(hit.text, hit.similarity) for hit in library.search("bicycle", 4)]

        before = seen(notes)
        extra = write("extra.txt", "The bicycle is red.")
        notes.add(documents)
        extra.unlink()
        notes.add(documents)
        assert seen(notes) == before
        with Library(notes.folder, embedder) as reopened:
            assert seen(reopened) == before

    def test_an_empty_library_finds_nothing(self, tmp_path: Path, embedder: SentenceTransformerEmbedder) -> None:
        with Library(tmp_path / "new" / "library", embedder) as library:
            assert library.search("anything", 4) == []
            assert (library.files(), library.count) == ([], 0)

    def test_similarities_become_constant_document_weights(self, notes: Library) -> None:
        hits = notes.search("bicycle", 3)
        scorer = StaticScorer(10.0)
        run = scorer.begin([1, 2], [[3]] * 3, [hit.similarity for hit in hits])
        np.testing.assert_array_equal(run.scores([]), [10.0 * hit.similarity for hit in hits])
        np.testing.assert_array_equal(run.scores([5, 6, 7]), run.scores([]))
        assert scorer.identity == "static:10.0" != StaticScorer(10.5).identity
        with pytest.raises(ValueError, match="1 documents have 2 similarities"):
            scorer.begin([], [[1]], [0.5, 0.5])
        with pytest.raises(ValueError, match="not a finite number"):
            scorer.begin([], [[1]], [float("nan")])
        with pytest.raises(ValueError, match="finite and not negative"):
            StaticScorer(float("inf"))


class TestRemove:
    @pytest.mark.parametrize(
        ("paths", "left"),
        [
            (["keys.md"], {"bike/lock.txt", "bike/repair.md", "dentist.txt"}),
            (["bike"], {"dentist.txt", "keys.md"}),
            (["bik"], {"bike/lock.txt", "bike/repair.md", "dentist.txt", "keys.md"}),
            (["./bike/lock.txt", "dentist.txt"], {"bike/repair.md", "keys.md"}),
            ("all", set()),
        ],
    )
    def test_forgets_files_and_folders(self, notes: Library, paths: list[str] | Literal["all"], left: set[str]) -> None:
        assert notes.remove(paths) == 4 - len(left)
        assert {file.relative_path for file in notes.files()} == left
        assert {hit.path for hit in notes.search("anything", 10)} == left

    def test_takes_absolute_paths(self, notes: Library, documents: Path) -> None:
        assert notes.remove([documents / "bike"]) == 2
        assert notes.remove([documents]) == 2


def test_a_list_of_documents_waits_for_no_search(library: Library, write: Write, documents: Path) -> None:
    """Nor does a search wait for one of many: a page asks for it all the time."""
    write("note.txt", "a note")
    library.add(documents)
    with ThreadPoolExecutor(1) as pool, library._lock:
        assert [file.title for file in pool.submit(library.files).result(AT_ONCE)] == ["note"]


def test_a_list_of_documents_is_made_without_taking_their_paths_apart(
    library: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand that takes a quarter of a second, in which no answer gets on."""
    taken_apart, listed = list[PurePath](), list[str]()

    def noted(path: PurePath, other: str) -> PurePath:
        taken_apart.append(path)
        return path

    for number in range(5):
        write(f"deep/{number}.txt", f"note {number}")
    library.add(documents)
    with monkeypatch.context() as patch:
        for method in ("relative_to", "is_relative_to"):
            patch.setattr(PurePath, method, noted)
        listed += [file.relative_path for file in library.files()]
    assert (taken_apart, listed) == ([], [f"deep/{number}.txt" for number in range(5)])


def test_of_one_that_nobody_opens_again_nothing_is_brought_to_the_disk(
    tmp_path: Path, write: Write, documents: Path, toy: ToyEmbedder, chunker: Chunker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer waits for it."""
    modes, transaction = list[int](), Database.transaction

    def noted(database: Database, write: bool) -> AbstractContextManager[None]:
        if write:
            modes.extend(mode for (mode,) in database.all("PRAGMA synchronous"))
        return transaction(database, write)

    monkeypatch.setattr(Database, "transaction", noted)
    write("note.txt", "a note")
    for passing in (False, True):
        modes.clear()
        with Library(tmp_path / str(passing), toy, chunker=chunker, passing=passing) as library:
            library.add(documents)
            assert [hit.text for hit in library.search("note", 1)] == ["a note"]
        assert set(modes) == ({0} if passing else {2})


def test_a_closed_library_says_so(notes: Library) -> None:
    notes.close()
    with pytest.raises(LibraryError, match="closed"):
        notes.search("x", 1)


def test_its_name_and_size_as_they_are_now_are_told_while_a_search_is_under_way(
    library: Library, write: Write, documents: Path, toy: ToyEmbedder, chunker: Chunker
) -> None:
    """A link's thread asks for them, and others' messages wait for that."""
    for number in range(3):
        write(f"{number}.txt", f"Note {number}.")

    def told() -> tuple[str, Counts, list[int]]:
        found = list[tuple[str, Counts, list[int]]]()

        def ask() -> None:
            found.append((library.identity, library.counts, [library.count_to(most) for most in (0, 2, 3, 9)]))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(AT_ONCE)
        return found[0]

    with library._lock, Library(library.folder, toy, chunker=chunker) as writer:
        writer.add(documents)
        assert told() == (writer.identity, Counts(3, 3), [0, 2, 3, 3])
        writer.remove(["1.txt"])
        assert told() == (writer.identity, Counts(2, 2), [0, 2, 2, 2])
