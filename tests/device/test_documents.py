"""This device's documents: uploads that are refused, and such as are no documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.library.errors import LibraryBusy, PathError, UnknownDocument
from common.library.library import Library
from common.library.writer_lock import writer_lock
from device.documents import OwnDocuments
from device.settings import DeviceSettings
from tests.common.library.toy_embedder import ToyEmbedder


def test_an_upload_that_is_refused_is_not_kept(tmp_path: Path) -> None:
    """Nobody would read it."""
    settings = DeviceSettings(data=tmp_path / "data")
    with Library(settings.library, ToyEmbedder()) as library:
        documents = OwnDocuments(settings, library, library.search)
        with writer_lock(library.folder), pytest.raises(LibraryBusy):
            documents.put("note.txt", b"a note")
        assert list(settings.uploads.iterdir()) == []
        assert not documents.put("note.txt", b"a note")
        with writer_lock(library.folder):  # it is watched by now, which nobody has to note again
            assert documents.put("note.txt", b"another note")
        assert (settings.uploads / "note.txt").read_bytes() == b"another note"
        assert library.watched() == [str(settings.uploads)]


def test_an_upload_that_is_no_document_is_listed_and_removed_by_its_name(tmp_path: Path) -> None:
    """Of files with the same content one is a document, and the others none."""
    settings = DeviceSettings(data=tmp_path / "data", document_store_bytes=0)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "note.txt").write_text("a note")
    with Library(settings.library, ToyEmbedder()) as library:
        documents = OwnDocuments(settings, library, library.search)
        contents = {"copy.txt": b"a note", "empty.txt": b"", "read.txt": b"another note"}
        for name, content in contents.items():
            documents.put(name, content)
        for folder in (notes, settings.uploads):
            library.add(folder)

        def left_out() -> list[str]:
            listing = documents.listing()
            (reading,) = (each for each in listing.readings if each.root == listing.uploads)
            return [Path(path).name for path, _ in reading.skipped]

        assert left_out() == ["copy.txt", "empty.txt"]
        for name in contents:
            documents.discard(name)
        assert (left_out(), list(settings.uploads.iterdir())) == ([], [])
        assert [file.path for file in library.files()] == [str(notes / "note.txt")]
        with pytest.raises(UnknownDocument):
            documents.discard("copy.txt")
        with pytest.raises(PathError):
            documents.discard("../../notes/note.txt")
        assert (notes / "note.txt").exists()
