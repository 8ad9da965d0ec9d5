"""Removal of documents and folders, which is refused where they would come back."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from common.library.errors import PathError
from common.library.library import Library
from tests.common.library.conftest import Write


def paths(library: Library) -> list[str]:
    return [file.relative_path for file in library.files()]


@pytest.fixture
def watched(library: Library, documents: Path, write: Write) -> Path:
    write("a.txt", "apple")
    write("sub/b.txt", "banana")
    library.add(documents, watch=True)
    return documents


@pytest.mark.parametrize("named", ["a.txt", "sub", "sub/b.txt"])
def test_what_lies_in_a_watched_folder_is_refused(library: Library, watched: Path, named: str) -> None:
    for path in (named, watched / named):
        with pytest.raises(PathError, match=f"{watched} is watched: remove the file there, or stop watching"):
            library.remove([path])
    assert paths(library) == ["a.txt", "sub/b.txt"]


def test_what_is_gone_there_is_forgotten(library: Library, watched: Path) -> None:
    (watched / "a.txt").unlink()
    assert library.remove(["a.txt"]) == 1
    assert (paths(library), library.watched()) == (["sub/b.txt"], [str(watched)])


def test_what_lies_on_a_disk_that_is_away_is_refused(library: Library, watched: Path) -> None:
    """It is watched again when the disk is back."""
    watched.rename(watched.with_name("away"))
    with pytest.raises(PathError, match="is watched"):
        library.remove(["a.txt"])


@pytest.mark.parametrize("read", [True, False])
def test_a_watched_folder_is_forgotten_as_a_whole(library: Library, watched: Path, tmp_path: Path, read: bool) -> None:
    """Before it was read for the first time, too."""
    other = tmp_path / "other"
    other.mkdir()
    library.watch(other)
    assert library.remove([watched if read else other]) == (2 if read else 0)
    assert library.watched() == [str(other if read else watched)]


def test_a_folder_in_a_watched_one_is_no_longer_one_of_its_own(library: Library, watched: Path) -> None:
    library.add(watched / "sub", watch=True, tags=["fruit"])
    assert library.remove([watched / "sub"]) == 0
    assert (paths(library), library.watched(), library.tags()) == (["a.txt", "sub/b.txt"], [str(watched)], {})


def test_an_empty_path_is_none(
    library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a variable that is not set: it is not the folder in which one happens to be."""
    write("a.txt", "apple")
    library.add(documents)
    monkeypatch.chdir(documents)
    with pytest.raises(PathError, match="the path is empty"):
        library.remove([""])
    assert library.count == 1


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_may_be_written_either_way(library: Library, documents: Path, write: Write, form: str) -> None:
    other = "NFD" if form == "NFC" else "NFC"
    write(unicodedata.normalize(form, "Müller/Bär.md"), "a bear")  # type: ignore[arg-type]
    library.add(documents)
    named = unicodedata.normalize(other, "Müller/Bär.md")  # type: ignore[arg-type]
    assert [hit.text for hit in library.passages(named, "x")] == ["a bear"]
    assert [hit.text for hit in library.passages(unicodedata.normalize("NFC", "Bär"), "x")] == ["a bear"]
    assert library.remove([named]) == 1


def test_of_two_names_that_differ_in_how_an_accent_is_written_one_is_removed(
    library: Library, documents: Path, write: Write
) -> None:
    composed, apart = (unicodedata.normalize(form, "café.txt") for form in ("NFC", "NFD"))
    write(composed, "apple")
    write(apart, "banana")
    library.add(documents)
    assert library.remove([documents / composed]) == 1
    assert paths(library) == [apart]


def test_what_was_removed_takes_nobodys_place(library: Library, documents: Path, write: Write) -> None:
    write("a/first.txt", "apple")
    write("b/sub/copy.txt", "apple")
    library.add(documents / "a")
    library.add(documents / "b")
    library.remove([documents / "b" / "sub"])
    library.remove([documents / "a"])
    assert paths(library) == []


def test_a_copy_in_a_folder_that_stays_takes_the_place_of_what_goes(
    library: Library, documents: Path, write: Write
) -> None:
    within = documents / "uploads"
    write("a.txt", "apple")
    write("b.txt", "banana")
    write("uploads/c.txt", "apple")
    library.add(documents)
    library.add(within)
    library.watch(within)
    assert [file.path for file in library.files()] == [str(documents / "a.txt"), str(documents / "b.txt")]
    assert library.remove([documents], but=[str(within)]) == 2
    assert [file.path for file in library.files()] == [str(within / "c.txt")]


def test_a_watched_folder_that_became_a_link_is_forgotten(library: Library, watched: Path, tmp_path: Path) -> None:
    """It was moved to another disk, and has not been read since."""
    watched.rename(tmp_path / "big")
    watched.symlink_to(tmp_path / "big")
    assert library.remove([watched]) == 2
    assert (library.files(), library.watched(), library.readings()) == ([], [], [])


def test_a_path_leads_up_from_where_a_link_leads(library: Library, documents: Path, write: Write) -> None:
    """As for every other program: `link/..` is the folder around the one to which the link leads."""
    write("a/notes/x.txt", "apple")
    write("b/notes/y.txt", "banana")
    write("b/deep/z.txt", "cherry")
    (documents / "a" / "link").symlink_to(documents / "b" / "deep")
    library.add(documents / "a" / "notes", watch=True)
    named = documents / "a" / "link" / ".." / "notes"
    report = library.add(named)
    assert (report.added, report.removed) == (1, 0)
    assert library.watched() == [str(documents / "a" / "notes")]
    assert library.remove([named]) == 1
    assert [file.relative_path for file in library.files()] == ["x.txt"]
