"""Admission of a running daemon's clients: by the keys on disk as they are now, and that of this machine's user."""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass

from common.process.threads import QuietLog
from device.access.api_keys import ApiKeyError, ApiKeyFiles, hash_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _KeyFileState:
    """The hashes of one version of the file; `broken` where they can't be read, so that none counts."""

    version: tuple[int, ...] | None
    hashes: tuple[str, ...] = ()
    broken: bool = False


class ApiKeyGate:
    """Decides whether a request has a key that counts, by the file as it is at that moment.

    Once a key was asked for it is asked for until the daemon ends: neither revoking the last one nor a damaged or
    deleted file opens a daemon that runs. Raises `ApiKeyError` from the constructor where the file can't be used.
    """

    def __init__(self, files: ApiKeyFiles) -> None:
        self._files = files
        self._quiet = QuietLog(log)
        self._local: str | None = None  # hash
        self._known = _KeyFileState(files.version(), tuple(key.sha256 for key in files.all()))
        self._wanted = bool(self._known.hashes)

    def open_locally(self) -> None:
        """Make the key with which commands of this user come in; those of earlier daemons count no more."""
        try:
            self._local = hash_of(self._files.renew_local().encode())
        except ApiKeyError as error:
            log.warning("commands on this machine need an API key of their own, too: %s", error)

    @property
    def wanted(self) -> bool:
        """Whether a request needs a key."""
        self._look()
        return self._wanted

    @property
    def broken(self) -> bool:
        """Whether the keys can't be read, so that commands of this user alone come in."""
        return self._known.broken

    def admitted(self, key: bytes) -> bool:
        """Whether `key` counts, the bytes that were sent."""
        self._look()
        digest = hash_of(key)
        # All are compared, whichever fits: how long it takes says nothing about which one did, or how much of it.
        fits = False
        for known in (*self._known.hashes, *([] if self._local is None else [self._local])):
            fits |= hmac.compare_digest(known, digest)
        return fits

    def _look(self) -> None:
        """Read the file again if it is another one."""
        version = self._files.version()
        if version == self._known.version:
            return
        try:
            self._known = _KeyFileState(version, tuple(key.sha256 for key in self._files.all()))
        except ApiKeyError as error:
            self._known = _KeyFileState(version, broken=True)
            self._quiet.tell(logging.ERROR, "no API key counts until this is mended: %s", error)
        else:
            if self._wanted and not self._known.hashes:
                self._quiet.tell(logging.WARNING, "no API keys are left: nobody is let in until there is one again")
        self._wanted = self._wanted or self._known.broken or bool(self._known.hashes)
