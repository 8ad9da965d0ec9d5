"""Folders and documents that were moved elsewhere, where a link has taken their place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from common.library.errors import PathError
from common.library.ingest import Interrupted
from common.library.library import Library
from tests.common.library.conftest import Write
from tests.common.library.test_same_content import refusing
from tests.common.library.toy_embedder import ToyEmbedder


@pytest.fixture
def big(library: Library, documents: Path, write: Write, tmp_path: Path) -> Path:
    """Another disk's folder, to which a watched one was moved; a link is in its place."""
    for name in ("apple", "banana", "cherry"):
        write(f"sub/{name}.txt", name)
    library.add(documents, watch=True, tags=["fruit"])
    documents.rename(tmp_path / "big")
    documents.symlink_to(tmp_path / "big")
    return tmp_path / "big"


def test_a_folder_goes_on_where_it_leads(library: Library, documents: Path, big: Path, toy: ToyEmbedder) -> None:
    (big / "sub" / "apple.txt").write_text("apricot")
    (big / "sub" / "banana.txt").unlink()
    toy.embedded.clear()
    report = library.add(documents, again=True)
    assert (report.unchanged, report.updated, report.removed, report.duplicates) == (1, 1, 1, ())
    assert toy.embedded == ["apricot"]
    assert sorted(hit.text for hit in library.search("x", 9, only=["tag:fruit"])) == ["apricot", "cherry"]
    assert {file.root for file in library.files()} == {str(big)}
    assert (library.watched(), library.tags()) == ([str(big)], {str(big): ("fruit",)})
    assert [reading.root for reading in library.readings()] == [str(big)]
    assert library.add(big).unchanged == 2
    assert library.remove([documents]) == 2


def test_an_interrupted_reading_goes_on(library: Library, documents: Path, big: Path) -> None:
    def interrupt(done: int, total: int, path: str, place: str) -> None:
        raise Interrupted

    (big / "sub" / "banana.txt").unlink()
    (big / "sub" / "cherry.txt").write_text("cranberry")
    with pytest.raises(Interrupted):
        library.add(documents, interrupt)
    report = library.add(documents)
    assert (report.unchanged, report.updated, report.removed) == (1, 1, 1)
    assert {file.root for file in library.files()} == {str(big)}
    assert (library.watched(), [reading.root for reading in library.readings()]) == ([str(big)], [str(big)])


def test_so_does_what_was_added_in_it_by_itself(
    library: Library, documents: Path, write: Write, tmp_path: Path
) -> None:
    """Also what is passed over unless it is named, and the copies there."""
    write("work/a.txt", "apple")
    write("work/bad.pdf", "no page")
    write(".private/c.txt", "cherry")
    write(".private/copy.txt", "date")
    first = write("../other/first.txt", "date")
    library.add(tmp_path / "other")
    library.add(documents)
    library.add(documents / "work", watch=True, tags=["work"])
    library.add(documents / ".private", tags=["own"])
    big = documents.rename(tmp_path / "big")
    documents.symlink_to(big)
    report = library.add(documents)
    assert (report.unchanged, report.removed, report.added) == (1, 0, 0)
    assert (library.watched(), len(library.files())) == ([str(big / "work")], 3)
    assert library.tags() == {str(big / "work"): ("work",), str(big / ".private"): ("own",)}
    assert [hit.text for hit in library.search("x", 9, only=["tag:work"])] == ["apple"]
    assert [hit.text for hit in library.search("x", 9, only=["tag:own"])] == ["cherry"]
    readings = library.readings()
    roots = [big, big / ".private", big / "work", tmp_path / "other"]
    assert [reading.root for reading in readings] == [str(root) for root in roots]
    assert {path for reading in readings for path, _ in reading.skipped} == {str(big / "work" / "bad.pdf")}
    first.unlink()
    assert library.add(tmp_path / "other").moved == 1
    assert str(big / ".private" / "copy.txt") in {file.path for file in library.files()}


def test_what_can_not_be_looked_at_there_stays(
    library: Library, documents: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, big / "sub"))
    assert library.add(documents).removed == 0
    assert len(library.search("x", 9, only=["tag:fruit"])) == 3


@pytest.mark.parametrize("copied", [True, False])
def test_a_document_that_is_known_where_it_leads_takes_the_place(
    library: Library, documents: Path, write: Write, tmp_path: Path, copied: bool
) -> None:
    """The folder there was added before. What the former one had under the same name goes on in a copy."""
    write("a.txt", "apple")
    write("b.txt", "banana")
    write("../big/a.txt", "apricot")
    write("../big/b.txt", "apple")
    if copied:
        write("../other/copy.txt", "apple")
    (tmp_path / "other").mkdir(exist_ok=True)
    for folder in (documents, tmp_path / "big", tmp_path / "other"):
        library.add(folder)
    shutil.rmtree(documents)
    documents.symlink_to(tmp_path / "big")
    report = library.add(documents)
    assert (report.moved, report.removed, report.updated) == (1, 1, 0)
    assert [file.path for file in library.files()] == [str(tmp_path / "big" / name) for name in ("a.txt", "b.txt")]
    assert sorted(hit.text for hit in library.search("x", 9)) == ["apple", "apricot"]


def test_a_document_goes_on_under_its_new_name(library: Library, documents: Path, write: Write) -> None:
    """Read anew where another name has it read otherwise."""
    note, table = write("note.txt", "# One\n\n# Two"), write("list.txt", "a pear")
    for path, place in ((note, "new.md"), (table, "new.txt")):
        library.add(path, tags=["own"])
        path.symlink_to(path.rename(documents / place))
    report = library.add(note)
    assert (report.added, report.removed) == (1, 1)
    report = library.add(table)
    assert (report.unchanged, report.removed) == (1, 0)
    assert [(file.relative_path, file.title) for file in library.files()] == [("new.md", "One"), ("new.txt", "new")]
    assert library.tags() == {str(documents / name): ("own",) for name in ("new.md", "new.txt")}


def test_what_is_read_by_its_new_name_is_no_copy(library: Library, big: Path) -> None:
    report = library.add(big)
    assert (report.moved, report.duplicates) == (3, ())


@pytest.mark.parametrize("name", ["documents-archive", "archive"])
def test_a_copy_that_leaves_a_folder_is_no_part_of_it_any_more(
    library: Library, documents: Path, write: Write, tmp_path: Path, name: str
) -> None:
    """Also where its new place is called as the folder is and more, and the reading there was interrupted."""

    def interrupt(done: int, total: int, path: str, place: str) -> None:
        raise Interrupted

    first, _ = write("first.txt", "apple"), write("within/copy.txt", "apple")
    for folder in (documents, documents / "within", documents):
        library.add(folder)
    write(f"../{name}/within/new.txt", "banana")
    (documents / "within" / "copy.txt").rename(tmp_path / name / "within" / "copy.txt")
    (documents / "within").rmdir()
    (documents / "within").symlink_to(tmp_path / name / "within")
    with pytest.raises(Interrupted):
        library.add(documents / "within", interrupt)
    first.write_text("cherry")
    library.add(documents)
    library.add(documents / "within")
    assert [file.relative_path for file in library.files()] == ["copy.txt", "new.txt", "first.txt"]


def test_nothing_is_forgotten_while_it_leads_nowhere(library: Library, documents: Path, big: Path) -> None:
    big.rename(big.with_name("away"))
    with pytest.raises(PathError):
        library.add(documents)
    assert len(library.files()) == 3
