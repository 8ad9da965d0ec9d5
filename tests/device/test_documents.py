"""This device's documents where the library can't be changed just now."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.library.errors import LibraryBusy
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
