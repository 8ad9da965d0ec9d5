"""Admits a running daemon's clients by the keys on disk and the local key."""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass

from common.process.threads import QuietLog
from device.access.api_keys import ApiKeyError, ApiKeyFiles, hash_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _KeyFileState:
    """Hashes of one version of the file. `broken`: unreadable, so no key counts."""

    version: tuple[int, ...] | None
    hashes: tuple[str, ...] = ()
    broken: bool = False


class ApiKeyGate:
    """Decides whether a request has a valid key, by the current file.

    Once required, keys are required until the daemon ends: revoking the last key, or damaging or deleting the file,
    opens nothing. The constructor raises `ApiKeyError` for an unusable file.
    """

    def __init__(self, files: ApiKeyFiles) -> None:
        self._files = files
        self._quiet = QuietLog(log)
        self._local: str | None = None  # hash
        self._known = _KeyFileState(files.version(), tuple(key.sha256 for key in files.all()))
        self._wanted = bool(self._known.hashes)

    def open_locally(self) -> None:
        """Makes the key of this user's local commands. Earlier daemons' keys expire."""
        try:
            self._local = hash_of(self._files.renew_local().encode())
        except ApiKeyError as error:
            log.warning("commands on this machine need an API key of their own, too: %s", error)

    @property
    def wanted(self) -> bool:
        self._look()
        return self._wanted

    @property
    def broken(self) -> bool:
        """Whether only this user's local commands get in, as the keys are unreadable."""
        return self._known.broken

    def admitted(self, key: bytes) -> bool:
        """Whether `key`, the bytes as sent, is valid."""
        self._look()
        digest = hash_of(key)
        # Compares with all keys, so that the time reveals nothing.
        fits = False
        for known in (*self._known.hashes, *([] if self._local is None else [self._local])):
            fits |= hmac.compare_digest(known, digest)
        return fits

    def _look(self) -> None:
        version = self._files.version()
        if version == self._known.version:
            return
        try:
            self._known = _KeyFileState(version, tuple(key.sha256 for key in self._files.all()))
        except ApiKeyError as error:
            self._known = _KeyFileState(version, broken=True)
            self._quiet.tell(logging.ERROR, "no API key is accepted until this is repaired: %s", error)
        else:
            if self._wanted and not self._known.hashes:
                self._quiet.tell(
                    logging.WARNING, "no API keys are left: the daemon refuses everybody until there is one again"
                )
        self._wanted = self._wanted or self._known.broken or bool(self._known.hashes)
