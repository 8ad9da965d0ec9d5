"""Changes of this device's documents while it serves: uploads, watched folders, removals.

The watcher reads them: an upload is a file in the daemon's own folder, which is watched like any other.
"""

from __future__ import annotations

import os
import shutil
import threading
import unicodedata
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.library.documents import UnusableDocument, load, most_bytes
from common.library.errors import LibraryBusy, LibraryError, PathError, UnknownDocument
from common.library.hit import Hit
from common.library.library import Library
from common.library.passed_over import is_hidden
from common.library.places import is_within
from common.library.readers.content import storable
from common.library.readers.formats import explain_unread_format, is_read
from common.library.readings import IngestRun
from common.library.states import forgetting_states
from common.library.store import StoredChunk
from common.process.files import expanded, private_folder, replacing
from device.interface import Listing
from device.settings import DeviceSettings

_LONGEST_NAME: Final = 200  # bytes; file systems allow 255
_DISK_LEFT: Final = 2**28  # bytes that uploads leave free
_UNREAD: Final = "it is read soon, or another document has the same content"
_UNFINISHED: Final = ".upload"  # file being written; hidden files are not read


class OwnDocuments:
    """Implements `Documents`. Methods are slow and thread-safe."""

    def __init__(self, settings: DeviceSettings, library: Library, search: Callable[[str, int], list[Hit]]) -> None:
        """`search` is the daemon's, in turns with questions. Removes an unfinished upload."""
        self._library = library
        self._uploads = settings.uploads
        self._states = settings.document_store
        self._writing = threading.Lock()
        self.search = search
        with suppress(OSError):
            os.unlink(self._uploads / _UNFINISHED)

    def listing(self) -> Listing:
        """Returns all documents and reading states. Uploads that are no documents count as skipped."""
        found, uploads = self._library.contents(), self._root()
        documents = {file.path for file in found.files}
        readings = tuple(
            self._reading_of_uploads(reading, documents) if reading.root == uploads else reading
            for reading in found.readings
        )
        return Listing(found.files, found.watched, readings, found.tags, uploads)

    def passage(self, chunk: int) -> StoredChunk:
        """Returns one passage. Raises `UnknownDocument`."""
        found = self._library.chunk(chunk)
        if found is None:
            raise UnknownDocument(f"the library has no passage {chunk}: its document was read again, or removed")
        return found

    def most_bytes(self, name: str) -> int:
        """Returns a file's size limit by its name. Raises `PathError` for an unusable name."""
        suffix = os.path.splitext(name)[1].lower()
        if not is_read(suffix):
            raise PathError(explain_unread_format(suffix))
        _check_name(name)
        return most_bytes(suffix)

    def put(self, name: str, content: bytes) -> bool:
        """Stores an upload, to be read soon. Returns whether it replaced one of the same name.

        Raises `LibraryError`.
        """
        if len(content) > self.most_bytes(name):
            raise PathError("the file is too large")
        path = self._uploads / _composed(name)
        with self._writing:
            try:
                private_folder(self._uploads)
                if shutil.disk_usage(self._uploads).free < len(content) + _DISK_LEFT:
                    raise PathError("the disk is nearly full")
                replaced = path.exists()
                self._library.watch(self._uploads)  # otherwise nobody would read the file
                with replacing(path, temporary=self._uploads / _UNFINISHED) as file:
                    file.write(content)
            except OSError as error:
                raise LibraryError(f"the file can't be saved: {(error.strerror or str(error)).lower()}") from None
        return replaced

    def forget(self, document: int) -> bool:
        """Removes a document, and an upload's file. Returns whether it is already forgotten; see `_withdraw`.

        Raises `LibraryError`.
        """
        found = next((file for file in self._library.files() if file.id == document), None)
        if found is None:
            raise UnknownDocument("the library no longer has this document")
        if is_within(found.path, str(self._uploads.resolve())):
            return self._withdraw(Path(found.path), found.sha256)
        self._removed(found.path)
        return True

    def discard(self, name: str) -> bool:
        """Removes an upload's file by name, whether or not it is a document.

        Returns whether it is already gone; see `_withdraw`. Raises `LibraryError`.
        """
        _check_name(name)
        folder = self._uploads.resolve()
        path = folder / (name if os.path.lexists(folder / name) else _composed(name))
        is_document = any(file.path == str(path) for file in self._library.files())
        if not is_document and not os.path.lexists(path):
            raise UnknownDocument("there is no upload with this name")
        if is_document:
            return self._withdraw(path)
        _unlink(path, self._uploads)
        return not self._library.busy  # a running reader may have its content already

    def watch(self, folder: str) -> None:
        """Reads a folder now and after changes. Raises `LibraryError`."""
        if "\0" in folder:
            raise PathError("the path of the folder has a null character, which no path has")
        path = expanded(folder)
        if not path.is_absolute():
            raise PathError("give the absolute path of the folder")
        if not os.path.isdir(path):  # `Path.is_dir` raises without permission
            raise PathError("there is no such folder, or this user may not read it")
        self._library.watch(path)

    def unwatch(self, folder: str) -> None:
        """Forgets a folder and its documents; the files stay. Raises `LibraryError`, also for the uploads."""
        if folder not in self._library.watched():
            raise UnknownDocument("no such folder is watched")
        if folder == self._root():
            raise PathError("the folder of the uploads can't be taken out of the library: remove the documents in it")
        self._removed(folder)

    def _withdraw(self, path: Path, sha256: str | None = None) -> bool:
        """Removes an upload's file and document.

        Returns False while others change the library: the next reading of the folder then removes the document. A
        retry by the caller might hit a replacement instead. Raises `UnknownDocument` if the file's content does not
        match `sha256`.
        """
        self._library.watch(self._uploads)  # otherwise nobody would notice the removal
        with self._writing:
            if sha256 is not None and _is_replaced(path, sha256):
                raise UnknownDocument("the file was replaced since it was read: it is read again soon")
            _unlink(path, self._uploads)
            try:
                self._removed(str(path))
            except LibraryBusy:
                return False
        return True

    def _removed(self, path: str) -> None:
        with forgetting_states(self._states):
            self._library.remove([path], but=[self._root()])

    def _root(self) -> str:
        """The folder of the uploads as the library knows it."""
        return storable(str(self._uploads.resolve()))

    def _reading_of_uploads(self, reading: IngestRun, documents: Collection[str]) -> IngestRun:
        """Marks uploads without a document, such as copies, as skipped, after the reading.

        Before that they can't be told from files being read.
        """
        folder = reading.root
        try:
            there = {storable(os.path.join(folder, name)) for name in os.listdir(folder)}
        except OSError:
            return reading
        skipped = {path: reason for path, reason in reading.skipped if path in there or os.path.dirname(path) != folder}
        unread = {
            path: _UNREAD
            for path in there.difference(documents)
            if not reading.running
            and is_read(os.path.splitext(path)[1].lower())
            and not is_hidden(os.path.basename(path))
            and os.path.isfile(path)
        }
        return replace(reading, skipped=tuple(sorted((unread | skipped).items())))


def _composed(name: str) -> str:
    """The usual form of a name: macOS writes an accent as a character of its own."""
    return unicodedata.normalize("NFC", name)


def _check_name(name: str) -> None:
    if Path(name).name != name or is_hidden(name) or "\\" in name:
        raise PathError("the name must be a file name without folders, and must not begin with a dot or ~$")
    if len(name.encode(errors="replace")) > _LONGEST_NAME:
        raise PathError(f"the name is longer than {_LONGEST_NAME} bytes")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise PathError("the name has control characters")


def _is_replaced(path: Path, sha256: str) -> bool:
    """Whether the file exists with other content."""
    try:
        return load(str(path)).sha256 != sha256
    except UnusableDocument:
        return False


def _unlink(path: Path, uploads: Path) -> None:
    """Removes a file in `uploads` if it exists, and keeps the folder.

    A missing folder would look like a detached disk. Raises `LibraryError`.
    """
    try:
        private_folder(uploads)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise LibraryError(f"the file can't be removed: {(error.strerror or str(error)).lower()}") from None
