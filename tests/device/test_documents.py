"""This device's documents: uploads that are refused, and such as are no documents."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.library.database import writer_lock
from common.library.errors import LibraryBusy, PathError, UnknownDocument
from common.library.library import Library
from common.library.store import FileRecord, Store
from device.documents import OwnDocuments
from device.settings import DeviceSettings
from tests.common.library.toy_embedder import ToyEmbedder

AT_ONCE = 60.0  # seconds, on a busy machine, too


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


def test_names_with_accents_of_either_form_are_one_upload(tmp_path: Path) -> None:
    settings = DeviceSettings(data=tmp_path / "data", document_store_bytes=0)
    apart, whole = (unicodedata.normalize(form, "Müller.txt") for form in ("NFD", "NFC"))
    with Library(settings.library, ToyEmbedder()) as library:
        documents = OwnDocuments(settings, library, library.search)
        assert [documents.put(name, name.encode()) for name in (apart, whole, apart)] == [False, True, True]
        library.add(settings.uploads)
        assert [Path(file.path).name for file in library.files()] == [whole]
        assert documents.discard(apart)
        assert (list(settings.uploads.iterdir()), library.files()) == ([], [])


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


@pytest.fixture
def settings(tmp_path: Path) -> DeviceSettings:
    return DeviceSettings(data=tmp_path / "data", document_store_bytes=0)


@pytest.fixture
def library(settings: DeviceSettings) -> Iterator[Library]:
    with Library(settings.library, ToyEmbedder()) as library:
        yield library


@pytest.fixture
def documents(settings: DeviceSettings, library: Library) -> OwnDocuments:
    return OwnDocuments(settings, library, library.search)


def uploaded(settings: DeviceSettings) -> list[str]:
    return sorted(path.name for path in settings.uploads.iterdir())


class TestRemoval:
    def test_an_upload_goes_while_others_change_the_library(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments
    ) -> None:
        """Its document goes with the next reading of the folder."""
        for name in ("one.txt", "two.txt", "three.txt"):
            documents.put(name, name.encode())
        library.add(settings.uploads)
        one, three, _ = library.files()
        with writer_lock(library.folder):
            assert not documents.forget(one.id)
            assert not documents.discard("two.txt")
            assert not documents.forget(one.id)  # as a client may ask that got no answer
        assert (len(library.files()), uploaded(settings)) == (3, ["three.txt"])
        library.add(settings.uploads)
        assert library.files() == [three]
        assert documents.forget(three.id)
        assert (library.files(), uploaded(settings)) == ([], [])

    def test_what_is_asked_for_again_takes_no_copy_along(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments
    ) -> None:
        for name in ("note.txt", "note (1).txt"):
            documents.put(name, b"a note")
            library.add(settings.uploads)
        (file,) = library.files()
        assert documents.forget(file.id)
        with pytest.raises(UnknownDocument):
            documents.forget(file.id)
        assert [Path(each.path).name for each in library.files()] == uploaded(settings) == ["note (1).txt"]

    def test_nor_the_next_upload(self, settings: DeviceSettings, library: Library, documents: OwnDocuments) -> None:
        documents.put("a.txt", b"one")
        library.add(settings.uploads)
        (file,) = library.files()
        assert documents.forget(file.id)
        documents.put("b.txt", b"two")
        library.add(settings.uploads)
        with pytest.raises(UnknownDocument):
            documents.forget(file.id)
        assert [Path(each.path).name for each in library.files()] == uploaded(settings) == ["b.txt"]

    def test_nor_what_took_its_place_and_is_not_read_yet(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments
    ) -> None:
        documents.put("note.txt", b"a note")
        library.add(settings.uploads)
        (file,) = library.files()
        with writer_lock(library.folder):
            assert not documents.forget(file.id)
            assert not documents.put("note.txt", b"another note")
            with pytest.raises(UnknownDocument, match="replaced"):
                documents.forget(file.id)
        assert (settings.uploads / "note.txt").read_bytes() == b"another note"

    def test_one_that_is_refused_has_done_nothing(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments, tmp_path: Path
    ) -> None:
        """Nobody would read the folder of the uploads, or one that was added once."""
        documents.put("note.txt", b"a note")
        library.add(settings.uploads)
        library.remove([settings.uploads])
        library.add(settings.uploads)
        (tmp_path / "kettle.txt").write_text("a kettle")
        library.add(tmp_path / "kettle.txt")
        with writer_lock(library.folder):
            for file in library.files():
                with pytest.raises(LibraryBusy):
                    documents.forget(file.id)
            with pytest.raises(LibraryBusy):
                documents.discard("note.txt")
        assert (len(library.files()), uploaded(settings)) == (2, ["note.txt"])

    def test_the_folder_of_the_uploads_stays(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments
    ) -> None:
        """Its files would be in no list, and come back with the next upload."""
        documents.put("secret.txt", b"a secret")
        library.add(settings.uploads)
        with pytest.raises(PathError, match="remove the documents"):
            documents.unwatch(str(settings.uploads))
        assert (library.watched(), len(library.files())) == ([str(settings.uploads)], 1)

    def test_nor_does_a_folder_around_it_take_it_along(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments, tmp_path: Path
    ) -> None:
        documents.put("secret.txt", b"a secret")
        os.utime(settings.uploads / "secret.txt", (0, 1_700_000_000))  # of a younger one the time would change later
        library.add(settings.uploads)
        secret = library.files()
        (tmp_path / "note.txt").write_text("a note")
        library.add(tmp_path, watch=True)
        documents.unwatch(str(tmp_path))
        assert (library.watched(), library.files()) == ([str(settings.uploads)], secret)
        assert [reading.root for reading in documents.listing().readings] == library.watched()

    def test_an_upload_whose_folder_is_gone_can_be_removed(
        self, settings: DeviceSettings, library: Library, documents: OwnDocuments
    ) -> None:
        documents.put("note.txt", b"a note")
        library.add(settings.uploads)
        shutil.rmtree(settings.uploads)
        (file,) = library.files()
        assert documents.forget(file.id)
        assert library.files() == []

    def test_one_that_is_being_read_is_not_forgotten_yet(self, library: Library, documents: OwnDocuments) -> None:
        """Whoever reads it may have its content already."""
        documents.put("note.txt", b"a note")
        with writer_lock(library.folder):
            assert not documents.discard("note.txt")


def test_what_a_killed_upload_has_left_goes(settings: DeviceSettings, library: Library) -> None:
    """It is in no list, and has no name by which it could be removed."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    documents = OwnDocuments(settings, library, library.search)
    documents.put("kept.txt", b"a note")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.replace", killed)
        patch.setattr("os.unlink", killed)
        documents.put("note.txt", b"another note")
    assert len(uploaded(settings)) == 2
    OwnDocuments(settings, library, library.search)
    assert uploaded(settings) == ["kept.txt"]


def test_the_listing_waits_for_no_search_and_is_of_one_moment(
    settings: DeviceSettings, library: Library, documents: OwnDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks for it all the time, also while others add and remove documents."""
    documents.put("note.txt", b"a note")
    library.add(settings.uploads, tags=["own"])
    with ThreadPoolExecutor(1) as pool, library._lock:
        before = pool.submit(documents.listing).result(AT_ONCE)
    assert [Path(file.path).name for file in before.documents] == ["note.txt"]
    assert (before.watched, before.tags) == ((str(settings.uploads),), {str(settings.uploads): ("own",)})
    changing, read = [lambda: library.remove([settings.uploads])], Store.files

    def removed_meanwhile(store: Store) -> list[FileRecord]:
        found = read(store)
        if changing:
            changing.pop()()
        return found

    monkeypatch.setattr("common.library.database._PATIENCE", 0.05)  # the removal's, with this listing
    monkeypatch.setattr(Store, "files", removed_meanwhile)
    assert documents.listing() == before
    after = documents.listing()
    assert (after.documents, after.watched, after.readings, after.tags) == ((), (), (), {})


def test_a_data_folder_with_a_name_that_is_no_text_is_listed(tmp_path: Path) -> None:
    settings = DeviceSettings(data=tmp_path / os.fsdecode(b"d\xe9"), document_store_bytes=0)
    with Library(settings.library, ToyEmbedder()) as library:
        documents = OwnDocuments(settings, library, library.search)
        documents.put("note.txt", b"a note")
        library.add(settings.uploads)
        listing = documents.listing()
    assert listing.uploads == str(settings.uploads).replace("\udce9", "?")
    assert [reading.root for reading in listing.readings] == list(listing.watched) == [listing.uploads]
