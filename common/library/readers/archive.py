"""Zip archives, which office documents and books are, with a limit to what they unpack to."""

from __future__ import annotations

import io
from zipfile import BadZipFile, ZipFile

from common.library.readers.content import NEEDS_PASSWORD, Unreadable

MOST_UNPACKED = 400_000_000  # bytes
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"  # what Office encrypts into, and what it wrote before 2007
_ENCRYPTED = 0x1


def open_archive(content: bytes) -> ZipFile:
    """The archive, to be closed by the caller. Raises `Unreadable`."""
    if content.startswith(_COMPOUND_FILE):
        raise Unreadable("it needs a password, or is of a format from before 2007: save it anew, without one")
    try:
        archive = ZipFile(io.BytesIO(content))
    except BadZipFile as error:
        raise Unreadable("it is damaged: it can't be unpacked") from error
    parts = archive.infolist()
    unpacked = sum(part.file_size for part in parts)
    if unpacked > MOST_UNPACKED:
        raise Unreadable(f"it is too large: it unpacks to {unpacked:,} bytes, at most {MOST_UNPACKED:,} are read")
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise Unreadable(NEEDS_PASSWORD)
    return archive
