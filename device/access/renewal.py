"""TLS of a server whose certificate is renewed while it runs."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from device.access.tls import TlsError, checked, server_context
from device.settings import TlsFiles

log = logging.getLogger(__name__)

PATIENCE: Final = 1.0  # seconds between two looks at the files, at least

Version = tuple[tuple[int, int, int], ...]  # of the files: another one when they are written or replaced


class RenewedTls:
    """The TLS of a server, made anew when its files change: a handshake has a look at them, and they are read if so.

    Files that can't be used leave what is served as it is. For one thread.
    """

    def __init__(self, files: TlsFiles, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `TlsError` where the files can't be used."""
        self._files = files
        self._clock = clock
        self._looked = clock()
        self._known = _version(files)
        self._doubtful: Version | None = None
        self._served = server_context(files)
        self.context = server_context(files)  # hands every handshake over to the one that is served
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called at the beginning of every handshake, also of a client that names no server."""
        now = self._clock()
        if now - self._looked >= PATIENCE:
            self._looked = now
            self._look()
        connection.context = self._served

    def _look(self) -> None:
        version = _version(self._files)
        if version == self._known:
            return
        try:
            certificate = checked(self._files)
            self._served = server_context(self._files)
        except TlsError as error:
            if version != self._doubtful:  # one of two files that are replaced one after the other, perhaps
                self._doubtful = version
                return
            log.warning("the certificate of before is still served, the new one can't be used: %s", error)
        else:
            log.info("a renewed certificate is served, which ends on %s", f"{certificate.ends:%Y-%m-%d}")
        self._known = version


def _version(files: TlsFiles) -> Version:
    return _of_file(files.certificate), _of_file(files.key)


def _of_file(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
