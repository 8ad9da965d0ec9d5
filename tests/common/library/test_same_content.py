"""Documents with the same content, under several paths or under another one than before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.library.library import Library
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder


def paths(library: Library) -> list[str]:
    return [file.relative_path for file in library.files()]


def refusing(scandir: Callable[[str], Any], folder: Path) -> Callable[[str], Any]:
    """`os.scandir` that may not read a folder."""

    def scan(path: str) -> Any:
        if path == str(folder):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    return scan


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
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        write("a.txt", "apple tree")
        write("b.txt", "apple tree")
        library.add(documents)
        write("a.txt", "another tree")
        toy.embedded.clear()
        report = library.add(documents)
        assert (report.added, report.updated, report.moved, report.duplicates) == (0, 1, 1, ())
        assert toy.embedded == ["another tree"]
        assert {hit.text for hit in library.search("x", 9)} == {"another tree", "apple tree"}

    def test_a_copy_is_known_where_only_times_changed(self, library: Library, documents: Path, write: Write) -> None:
        path = write("b.txt", "apple tree")
        library.add(documents)
        os.utime(path, ns=(10**18, 10**18))
        write("a.txt", "apple tree")
        report = library.add(documents)
        assert (report.added, report.unchanged, report.duplicates) == (0, 1, (("a.txt", "b.txt"),))

    def test_a_copy_that_is_read_first_is_one_all_the_same(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        """As of a note that was just saved, whose time is not trusted yet."""
        (documents / "k.txt").write_text("apple tree")
        library.add(documents)
        toy.embedded.clear()
        copy = write("copy.txt", "apple tree")
        report = library.add(documents, first=[str(copy)])
        assert (report.added, report.unchanged, report.duplicates) == (0, 1, (("copy.txt", "k.txt"),))
        assert (paths(library), toy.embedded) == (["k.txt"], [])


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

    def test_a_file_of_another_type_is_read_anew(self, library: Library, documents: Path, write: Write) -> None:
        """Its reader makes another text of the same bytes."""
        path = write("a.md", "<p>apple tree</p>")
        library.add(documents)
        path.rename(path.with_suffix(".html"))
        report = library.add(documents)
        assert (report.moved, report.added, report.removed) == (0, 1, 1)
        assert [hit.text for hit in library.search("x", 9)] == ["apple tree"]

    def test_between_types_that_are_read_alike_it_keeps_them(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        path = write("a.md", "apple tree")
        library.add(documents)
        toy.embedded.clear()
        path.rename(path.with_suffix(".markdown"))
        assert (library.add(documents).moved, toy.embedded) == (1, [])


class TestBetweenFolders:
    @pytest.fixture
    def folders(self, library: Library, documents: Path, write: Write) -> tuple[Path, Path]:
        """Two that were added, the first with a note."""
        write("inbox/bill.txt", "the bill of march")
        write("inbox/other.txt", "another note")
        write("archive/old.txt", "an old note")
        library.add(documents / "inbox")
        library.add(documents / "archive")
        return documents / "inbox", documents / "archive"

    @staticmethod
    def places(library: Library, query: str = "the bill of march") -> list[tuple[str, str]]:
        """Folders and names of the documents that have this text."""
        found = {hit.path for hit in library.search(query, 9) if hit.text == query}
        return [(Path(file.root).name, file.relative_path) for file in library.files() if file.relative_path in found]

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_document_that_is_moved_is_kept_whichever_is_read_first(
        self, library: Library, folders: tuple[Path, Path], first: int
    ) -> None:
        (folders[0] / "bill.txt").rename(folders[1] / "bill.txt")
        library.add(folders[first])
        library.add(folders[1 - first])
        assert self.places(library) == [("archive", "bill.txt")]

    def test_a_whole_folder_that_is_moved_keeps_its_chunks(
        self, library: Library, documents: Path, folders: tuple[Path, Path], toy: ToyEmbedder
    ) -> None:
        folders[0].rename(documents / "letters")
        toy.embedded.clear()
        report = library.add(documents / "letters")
        assert (report.moved, report.duplicates, toy.embedded) == (2, (), [])
        assert self.places(library) == [("letters", "bill.txt")]

    @pytest.mark.parametrize("how", ["deleted", "changed", "emptied", "removed", "folder removed"])
    def test_a_copy_takes_the_place_of_a_document_that_goes(
        self, library: Library, folders: tuple[Path, Path], write: Write, toy: ToyEmbedder, how: str
    ) -> None:
        bill = folders[0] / "bill.txt"
        shutil.copy(bill, folders[1] / "copy.txt")
        assert len(library.add(folders[1]).duplicates) == 1
        toy.embedded.clear()
        if how == "deleted":
            bill.unlink()
            report = library.add(folders[0])
            assert (report.moved, report.removed) == (1, 0)
        elif how in ("changed", "emptied"):
            write("inbox/bill.txt", "the bill of april" if how == "changed" else "")
            library.add(folders[0])
        else:
            assert library.remove([bill if how == "removed" else folders[0]]) == (1 if how == "removed" else 2)
        assert "the bill of march" not in toy.embedded
        assert self.places(library) == [("archive", "copy.txt")]
        assert self.places(library, "the bill of april") == ([("inbox", "bill.txt")] if how == "changed" else [])
        report = library.add(folders[1])
        assert (report.unchanged, report.added, report.removed) == (2, 0, 0)
        assert library.remove([folders[1] / "copy.txt"]) == 1
        assert self.places(library) == []

    def test_a_copy_that_is_none_any_more_takes_no_place(
        self, library: Library, folders: tuple[Path, Path], write: Write
    ) -> None:
        bill = folders[0] / "bill.txt"
        for name in ("changed", "gone", "forgotten/copy"):
            write(f"archive/{name}.txt", "the bill of march")
        library.add(folders[1])
        library.add(folders[1] / "forgotten")
        write("archive/changed.txt", "the bill of may")
        (folders[1] / "gone.txt").unlink()
        library.remove([folders[1] / "forgotten"])
        bill.unlink()
        assert library.add(folders[0]).removed == 1
        assert self.places(library) == []

    @pytest.mark.parametrize("place", ["archive/.hidden", "archive/locked"])
    def test_a_copy_that_a_reading_does_not_look_at_is_remembered(
        self,
        library: Library,
        folders: tuple[Path, Path],
        write: Write,
        monkeypatch: pytest.MonkeyPatch,
        place: str,
    ) -> None:
        """Since it was added by a name of its own, or can't be read at present."""
        copy = write(f"{place}/copy.txt", "the bill of march")
        library.add(copy.parent if ".hidden" in place else folders[1])
        with monkeypatch.context() as patch:
            if ".hidden" not in place:
                patch.setattr(os, "scandir", refusing(os.scandir, copy.parent))
            library.add(folders[1])
        (folders[0] / "bill.txt").unlink()
        assert library.add(folders[0]).moved == 1
        assert "the bill of march" in {hit.text for hit in library.search("x", 9)}

    def test_removing_a_folder_with_all_copies_removes_all(self, library: Library, folders: tuple[Path, Path]) -> None:
        shutil.copy(folders[0] / "bill.txt", folders[1] / "copy.txt")
        library.add(folders[1])
        library.remove(folders)
        assert library.files() == []
