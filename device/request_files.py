"""Files sent with a request: a library for one answer.

They never enter the device's library: other answers can't find them, a copy there does not hide them, and nothing
needs removal.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from common.answer.request import AnswerFailed, RequestError, RequestFile
from common.library.embedder import SentenceTransformerEmbedder, chunker_for
from common.library.errors import LibraryError, PathError
from common.library.library import Library
from common.process.files import private_folder
from common.processors.trial import always
from device.settings import DeviceSettings

MOST_FILE_BYTES: Final = 2**24  # per request
_DISK_LEFT: Final = 2**28  # bytes to leave free

log = logging.getLogger(__name__)


class RequestFiles:
    """Libraries of requests' files. Methods are slow and thread-safe."""

    def __init__(
        self,
        settings: DeviceSettings,
        embedder: SentenceTransformerEmbedder,
        most_bytes: Callable[[str], int],
    ) -> None:
        """`most_bytes` returns a file's limit by name, or raises `PathError`.

        Removes a killed process's remains.
        """
        self._settings = settings
        self._embedder = embedder
        self._most_bytes = most_bytes
        self._folder = settings.request_files
        self.clear()

    def open(self, files: Sequence[RequestFile], wanted: Callable[[], bool] = always) -> Library:
        """Returns a library of `files` only, for `close`.

        Raises `RequestError`, which names no file, and `AnswerFailed` once not `wanted`.
        """
        self._check(files)
        try:
            private_folder(self._folder)
            folder = Path(tempfile.mkdtemp(dir=self._folder))
        except OSError as error:
            raise _refused(f"The files can't be read: {(error.strerror or str(error)).lower()}.") from None
        try:
            return self._filled(folder, files, wanted)
        except (OSError, LibraryError) as error:
            _remove(folder)
            log.warning("files of a request could not be read: %s", type(error).__name__)
            raise _refused("The files can't be read: the daemon's log says why.") from None
        except BaseException:
            _remove(folder)
            raise

    def close(self, library: Library) -> None:
        library.close()
        _remove(library.folder.parent)

    def clear(self) -> None:
        _remove(self._folder)

    def _filled(self, folder: Path, files: Sequence[RequestFile], wanted: Callable[[], bool]) -> Library:
        def progress(*_: object) -> None:
            if not wanted():
                raise AnswerFailed("Nobody waits for the answer any more.")

        documents = folder / "files"
        documents.mkdir()
        if shutil.disk_usage(folder).free < sum(len(file.content) for file in files) + _DISK_LEFT:
            raise _refused("The files can't be read: the disk is nearly full.")
        for file in files:
            (documents / file.name).write_bytes(file.content)
        chunker = chunker_for(self._embedder, self._settings.chunk_tokens)
        library = Library(folder / "library", self._embedder, chunker=chunker, kind=self._settings.search, passing=True)
        try:
            skipped = library.add(documents, progress=progress).skipped
            if skipped:
                number = 1 + [file.name for file in files].index(Path(skipped[0][0]).name)
                raise _refused(f"File {number} can't be read: {skipped[0][1]}.")
        except BaseException:
            library.close()
            raise
        shutil.rmtree(documents)  # the library has the texts
        return library

    def _check(self, files: Sequence[RequestFile]) -> None:
        if sum(len(file.content) for file in files) > MOST_FILE_BYTES:
            raise _refused(f"The files are larger than {MOST_FILE_BYTES} bytes together.")
        names: set[str] = set()
        for number, file in enumerate(files, 1):
            try:
                most = self._most_bytes(file.name)
            except PathError as error:
                raise _refused(f"File {number} can't be read: {error}.") from None
            if len(file.content) > most:
                raise _refused(f"File {number} is larger than {most} bytes.")
            if file.name in names:
                raise _refused(f"File {number} has the name of another one.")
            names.add(file.name)


def _refused(text: str) -> RequestError:
    return RequestError(text, "files")


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.error("%s can't be removed: it has files of requests", folder)
