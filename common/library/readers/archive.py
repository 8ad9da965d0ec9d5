"""Zip archives of office documents and books, limited in size, and their XML parts."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from lxml import etree

from common.library.readers.content import NEEDS_PASSWORD, Unreadable, is_chosen

# Wraps new content and its fallback for older programs.
COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
MOST_UNPACKED = 400_000_000  # bytes
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"  # Office's encrypted format, and its format before 2007
_ENCRYPTED = 0x1
_RELATIONS = "_rels/.rels"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
# In slide titles set by the program, in any language: «Presentación de PowerPoint».
_UNCHOSEN = "PowerPoint"
_MOST_WORDS_UNCHOSEN = 3
# Disables network and entities.
_PARSER: Any = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


def open_archive(content: bytes) -> ZipFile:
    """Opens an archive for the caller to close. Raises `Unreadable`."""
    if content.startswith(_COMPOUND_FILE):
        raise Unreadable(
            "it needs a password, or its format is from before 2007: save it again in a current format, without "
            "a password"
        )
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


def parsed(archive: ZipFile, name: str) -> Any:
    """Root of a part. Raises `KeyError` for a missing part, and lxml's errors."""
    return parsed_part(archive.read(name))


def parsed_part(content: bytes) -> Any:
    """Root of a part's content. Raises lxml's errors."""
    return etree.fromstring(content, etree.XMLParser(**_PARSER))


def open_office(content: bytes) -> tuple[ZipFile, bytes]:
    """Opens an Office document as archive, for the caller to close, and content.

    Raises `Unreadable`. «Strict Open XML» uses other namespaces: they are rewritten to the common ones.
    """
    archive = open_archive(content)
    if _RELATIONS not in archive.namelist() or _STRICT.search(archive.read(_RELATIONS)) is None:
        return archive, content
    rewritten = io.BytesIO()
    with archive, ZipFile(rewritten, "w", ZIP_STORED) as written:
        for name in archive.namelist():
            part = archive.read(name)
            written.writestr(name, _STRICT.sub(_TRANSITIONAL, part) if name.endswith((".xml", ".rels")) else part)
    return ZipFile(rewritten), rewritten.getvalue()


def relations(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Kind and target part of each internal reference of a part, by its id."""
    folder, last = posixpath.split(name)
    references = posixpath.join(folder, "_rels", last + ".rels")
    if references not in archive.NameToInfo:
        return {}
    return {
        each.get("Id", ""): (
            posixpath.basename(each.get("Type", "")),
            posixpath.normpath(posixpath.join("/", folder, each.get("Target", ""))).lstrip("/"),
        )
        for each in parsed(archive, references).iter("{*}Relationship")
        if each.get("TargetMode") != "External"
    }


def related(archive: ZipFile, name: str, kind: str, default: str) -> str:
    """Name of the first part of a kind referred to by `name`, else `default`.

    An empty `name` is the document itself.
    """
    return next((part for of, part in relations(archive, name).values() if of == kind), default)


def objects(archive: ZipFile) -> Iterator[tuple[str, bytes]]:
    """Name and content of each embedded object, without the data of charts."""
    names = archive.namelist()
    for name in names:
        if "/charts/" not in name:
            for kind, part in relations(archive, name).values():
                if kind in ("oleObject", "package") and part in names:
                    yield posixpath.basename(part), archive.read(part)


def description(archive: ZipFile) -> str:
    """Name of an Office document's descriptive part."""
    return related(archive, "", "core-properties", "docProps/core.xml")


def title_in(archive: ZipFile, name: str) -> str:
    """Title in a descriptive part; empty without one."""
    if name not in archive.namelist():
        return ""
    return next((element.text or "" for element in parsed(archive, name).iter("{*}title")), "").strip()


def title_of_slides(archive: ZipFile, name: str, heading: str) -> str:
    """Title of slides if a person chose it, else the first slide's `heading`."""
    title = title_in(archive, name)
    unchosen = _UNCHOSEN in title and len(title.split()) <= _MOST_WORDS_UNCHOSEN
    return title if is_chosen(title) and not unchosen else heading
