"""API keys of the HTTP interface on disk: hashes only, readable by their user only.

    <keys>/api-keys.json       {"keys": [{"name": ..., "sha256": ..., "created": "2026-11-23"}]}   by commands
    <keys>/local-api-key.json  {"key": ...}                                                        by the daemon

Every start of the daemon renews the second file's key. A reader of that file is the user, who could also make keys,
so this user's local commands need no other key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from common.transport.address import TransportError
from common.transport.keys import write_private

PREFIX: Final = "dragon-"  # marks lost keys for people and scanners
SECRET_BYTES: Final = 32
MOST_KEYS: Final = 256  # each request is compared with all of them
MOST_FILE_BYTES: Final = 2**20
_LOCK_PATIENCE: Final = 10.0  # seconds
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_OTHERS: Final = 0o077  # rights of group and others


class ApiKeyError(ValueError):
    """The keys can't be read or changed. The text is a sentence for the user, without any key."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key; `sha256` is the hexadecimal hash."""

    name: str
    sha256: str = field(repr=False)
    created: date


def new_key() -> str:
    """Returns a key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def hash_of(key: bytes) -> str:
    """Returns a key's SHA-256 in hexadecimal digits.

    A slow hash protects passwords, whose likely values can be tried. Trying 2**256 equal keys is hopeless at any
    speed, and a slow hash would help attackers who flood the daemon.
    """
    return hashlib.sha256(key).hexdigest()


class ApiKeyFiles:
    """The files in the folder `keys` of a device. Methods raise `ApiKeyError`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "api-keys.json"
        self._local = folder / "local-api-key.json"

    def all(self) -> tuple[ApiKey, ...]:
        """Returns all keys in order of creation, empty without a file. Refuses a faulty file whole."""
        stored = self._read(self.path)
        if stored is None:
            return ()
        try:
            keys = tuple(_key(each) for each in stored["keys"])
        except (KeyError, TypeError, ValueError):
            raise self._damaged() from None
        if len({key.name for key in keys}) < len(keys) or len(keys) > MOST_KEYS:
            raise self._damaged()
        return keys

    def create(self, name: str) -> str:
        """Returns a new key called `name`, which can't be shown again."""
        if not _NAME.fullmatch(name):
            raise ApiKeyError(f"{name!r} is not a valid name; use up to 64 letters, digits, dots and dashes")
        with self._changing():
            keys = self.all()
            if any(each.name == name for each in keys):
                raise ApiKeyError(f"there is a key called {name} already; revoke it first, or choose another name")
            if len(keys) >= MOST_KEYS:
                raise ApiKeyError(f"there are {MOST_KEYS} keys, and there can't be more; revoke some")
            key = new_key()
            self._write([*keys, ApiKey(name, hash_of(key.encode()), today())])
            return key

    def revoke(self, name: str) -> None:
        """Deletes a key, from the next request on."""
        with self._changing():
            keys = self.all()
            kept = [each for each in keys if each.name != name]
            if len(kept) == len(keys):
                raise ApiKeyError(f"there is no key called {name}; `dragon api-keys list` shows all keys")
            self._write(kept)

    def local(self) -> str | None:
        """Returns the latest daemon's key for this user's commands, None without one."""
        try:
            stored = self._read(self._local)
            return None if stored is None else str(stored["key"])
        except (ApiKeyError, KeyError, TypeError):
            return None

    def renew_local(self) -> str:
        key = new_key()
        self._store(self._local, {"key": key})
        return key

    def version(self) -> tuple[int, ...] | None:
        """Returns a value that changes with the file, None without a file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return ()  # `all` reports the fault
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Excludes other commands that change the keys."""
        from filelock import FileLock, Timeout

        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(folder / ".api-keys.lock", timeout=_LOCK_PATIENCE, mode=0o600):
                yield
        except Timeout:
            raise ApiKeyError(f"another command is changing {self.path}; try again when it is done") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ApiKeyError(f"keys can't be written to {folder}: {reason}") from None

    def _write(self, keys: Sequence[ApiKey]) -> None:
        listed = [{"name": key.name, "sha256": key.sha256, "created": key.created.isoformat()} for key in keys]
        self._store(self.path, {"keys": listed})

    @staticmethod
    def _store(path: Path, content: Mapping[str, object]) -> None:
        try:
            write_private(path, content)
        except TransportError as error:
            raise ApiKeyError(str(error).rstrip(".")) from None

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            with path.open("rb") as file:
                found, text = os.fstat(file.fileno()), file.read(MOST_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from None
        if found.st_mode & _OTHERS:
            raise ApiKeyError(f"others can read or change the API keys in {path}; run `chmod 600 {path}`")
        try:
            stored = json.loads(text) if len(text) <= MOST_FILE_BYTES else None
        except (ValueError, RecursionError):
            stored = None
        if not isinstance(stored, dict):
            raise self._damaged()
        return stored

    def _damaged(self) -> ApiKeyError:
        return ApiKeyError(
            f"the API keys in {self.path} are damaged: delete that file, and make new keys with"
            " `dragon api-keys create NAME`"
        )

    @staticmethod
    def _unreadable(path: Path, error: OSError) -> ApiKeyError:
        return ApiKeyError(f"{path} can't be read: {(error.strerror or str(error)).lower()}")


def today() -> date:
    """Returns the date in UTC, the same for all readers."""
    return datetime.now(UTC).date()


def _key(stored: Mapping[str, str]) -> ApiKey:
    key = ApiKey(stored["name"], stored["sha256"], date.fromisoformat(stored["created"]))
    if not _NAME.fullmatch(key.name) or not _HASH.fullmatch(key.sha256):
        raise ValueError
    return key
