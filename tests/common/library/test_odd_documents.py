"""Folders with what is no document among the documents: named and left out, and the rest goes on."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from common.library import documents as documents_module
from common.library.documents import MOST_TEXT_BYTES, File, UnusableDocument, load, read_content
from common.library.library import Library
from common.library.readers.isolated import IsolatedReader
from tests.common.library.conftest import Write

CONTROLS = "a\x1b[2J\x07\x9b31m\nb\u202e.md"


@pytest.fixture
def odd(documents: Path, write: Write, tmp_path: Path) -> Iterator[Path]:
    """A folder with one good document."""
    write("good.md", "My rabbit is called Yarszis.")
    os.mkfifo(documents / "pipe.md")
    (documents / "device.md").symlink_to("/dev/zero")
    (documents / "loop.md").symlink_to("loop.md")
    (tmp_path / "secret.md").write_text("secret words")
    (documents / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "more.md").write_text("more secret words")
    (documents / "linked").symlink_to(tmp_path / "secrets")
    (documents / "round").symlink_to(documents)
    write("nul.md", b"a\0b")
    write("picture.md", b"\xff\xd8\xff\x01")
    with (documents / "sparse.md").open("wb") as file:
        file.truncate(2**40)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        here = Path.cwd()
        os.chdir(documents)  # a socket's path must be short
        try:
            listener.bind("socket.md")
        finally:
            os.chdir(here)
        yield documents


def test_each_is_named_and_the_rest_is_taken_in(library: Library, odd: Path) -> None:
    report = library.add(odd)
    assert (report.added, library.counts.documents) == (1, 1)
    reasons = dict(report.skipped)
    # `loop.md` and `round` lead nowhere, so neither out of the folder.
    named = ("pipe.md", "socket.md", "device.md", "link.md", "nul.md", "picture.md", "sparse.md", "linked")
    assert reasons.keys() == set(named)
    assert reasons["pipe.md"] == reasons["socket.md"] == "it is not an ordinary file"
    assert (
        reasons["device.md"] == reasons["link.md"] == reasons["linked"] == "it is a link that leads out of the folder"
    )
    assert reasons["sparse.md"].startswith("it is too large")
    assert not [hit for hit in library.search("secret words", 10) if "secret" in hit.text]


@pytest.mark.parametrize("name", [CONTROLS, "n" * 250 + ".md", " .md", "-rf.md", "\u202e.md"])
def test_names_are_text(library: Library, write: Write, documents: Path, name: str) -> None:
    write(name, "My rabbit is called Yarszis.")
    assert library.add(documents).added == 1
    assert library.files()[0].relative_path == name
    assert library.search("rabbit", 1)[0].path == name


def test_a_name_that_is_no_utf8(library: Library, write: Write, documents: Path) -> None:
    write("good.md", "My rabbit is called Yarszis.")
    Path(os.fsdecode(os.fsencode(documents) + b"/\xff\xfe.md")).write_text("words")
    report = library.add(documents)
    assert (report.added, [reason for _, reason in report.skipped]) == (1, ["its name is not valid UTF-8"])


def test_a_tree_deeper_than_paths_can_be(library: Library, write: Write, documents: Path) -> None:
    write("good.md", "My rabbit is called Yarszis.")
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(documents)
        for _ in range(40):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        Path("deep.md").write_text("words")
    finally:
        os.fchdir(here)
        os.close(here)
    report = library.add(documents)
    assert report.added == 1
    assert [reason for _, reason in report.skipped] == ["it can't be read: file name too long"]


def test_a_file_that_grows_while_it_is_read(
    library: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("log.md", "the first words")

    def growing(name: str) -> File:
        loaded = load(name)
        with path.open("a") as file:
            file.write(" and more words")
        return loaded

    with monkeypatch.context() as patch:
        patch.setattr("common.library.ingest.load", growing)
        assert library.add(documents).added == 1
    assert library.add(documents).updated == 1
    assert library.search("words", 1)[0].text == "the first words and more words"


def test_a_file_that_grew_beyond_the_limit_after_the_scan(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("log.md", b"x" * 100)
    monkeypatch.setattr(documents_module, "MOST_TEXT_BYTES", 99)
    assert MOST_TEXT_BYTES > 100
    with pytest.raises(UnusableDocument, match="it is too large"):
        load(str(path))


def test_a_letter_with_a_hundred_thousand_accents() -> None:
    """Half of them above, half below, and what nobody sees between: Python took minutes to put them in order."""
    marks = "\u0301\u00ad" * 50_000 + "\u0323\u200b" * 50_000
    began = time.process_time()
    (section,) = read_content(File(".txt", f"tea e{marks} tea".encode(), "", 0, 0), IsolatedReader()).sections
    assert time.process_time() - began < 5
    assert section.text == "tea \u00e9" + "\u0301" * 29 + " tea"
