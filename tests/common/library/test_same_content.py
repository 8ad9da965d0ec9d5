"""Documents with the same content, under several paths or under another one than before."""

from __future__ import annotations

import os
from pathlib import Path

from common.library.library import Library
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder


def paths(library: Library) -> list[str]:
    return [file.relative_path for file in library.files()]


class TestSameContent:
    def test_is_taken_in_once(self, library: Library, documents: Path, write: Write, toy: ToyEmbedder) -> None:
        first = write("a.txt", "apple tree")
        write("b/copy.txt", "apple tree")
        report = library.add(documents)
        assert (report.added, report.duplicates, report.skipped) == (1, (("b/copy.txt", "a.txt"),), ())
        assert [hit.path for hit in library.search("x", 9)] == ["a.txt"]
        assert library.add(documents).duplicates == report.duplicates
        first.unlink()
        toy.embedded.clear()
        report = library.add(documents)
        assert (report.moved, report.removed, report.duplicates, toy.embedded) == (1, 0, (), [])
        assert [hit.path for hit in library.search("x", 9)] == ["b/copy.txt"]

    def test_of_another_folder_counts(self, library: Library, documents: Path, write: Write) -> None:
        write("one/a.txt", "apple tree")
        write("two/b.txt", "apple tree")
        assert library.add(documents / "one").added == 1
        report = library.add(documents / "two")
        assert (report.added, report.duplicates) == (0, (("b.txt", os.path.join("..", "one", "a.txt")),))

    def test_a_document_that_becomes_a_copy_is_one(self, library: Library, documents: Path, write: Write) -> None:
        write("a.txt", "apple tree")
        write("b.txt", "banana bread")
        library.add(documents)
        write("b.txt", "apple tree")
        report = library.add(documents)
        assert (report.updated, report.removed, report.duplicates) == (0, 1, (("b.txt", "a.txt"),))
        assert paths(library) == ["a.txt"]

    def test_the_one_that_changes_makes_room_for_its_copy(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        write("a.txt", "apple tree")
        write("b.txt", "apple tree")
        library.add(documents)
        write("a.txt", "another tree")
        report = library.add(documents)
        assert (report.added, report.updated, report.duplicates) == (1, 1, ())
        assert {hit.text for hit in library.search("x", 9)} == {"another tree", "apple tree"}

    def test_a_copy_is_known_where_only_times_changed(self, library: Library, documents: Path, write: Write) -> None:
        path = write("b.txt", "apple tree")
        library.add(documents)
        os.utime(path, ns=(10**18, 10**18))
        write("a.txt", "apple tree")
        report = library.add(documents)
        assert (report.added, report.unchanged, report.duplicates) == (0, 1, (("a.txt", "b.txt"),))


def test_a_copy_of_what_cannot_be_read_has_its_own_reason(library: Library, documents: Path, write: Write) -> None:
    for name in ("a.txt", "b.txt"):
        write(name, b"\0")
    report = library.add(documents)
    assert (len(report.skipped), report.duplicates) == (2, ())


class TestMoved:
    def test_documents_keep_their_chunks(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        path = write("a.txt", "apple tree")
        titled = write("c.md", "# Cherries\n\npie")
        library.add(documents)
        before = {hit.text: hit.chunk for hit in library.search("x", 9)}
        toy.embedded.clear()
        (documents / "later").mkdir()
        path.rename(documents / "later" / "z.txt")
        titled.rename(documents / "later" / "c.md")
        report = library.add(documents)
        assert (report.moved, report.added, report.removed, report.chunks) == (2, 0, 0, 0)
        assert toy.embedded == []
        assert [(file.relative_path, file.title) for file in library.files()] == [
            ("later/c.md", "Cherries"),
            ("later/z.txt", "z"),
        ]
        assert {hit.text: hit.chunk for hit in library.search("x", 9)} == before
        assert library.add(documents).unchanged == 2

    def test_and_changed_is_another_document(self, library: Library, documents: Path, write: Write) -> None:
        path = write("a.txt", "apple tree")
        library.add(documents)
        path.unlink()
        write("b.txt", "apple trees")
        report = library.add(documents)
        assert (report.moved, report.added, report.removed) == (0, 1, 1)
