"""Zip archives, which office documents and books are, with a limit to what they unpack to, and their parts in XML."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from lxml import etree

from common.library.readers.content import NEEDS_PASSWORD, Unreadable, is_chosen

# Around what newer office programs write, and what older ones show in its place.
COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
MOST_UNPACKED = 400_000_000  # bytes
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"  # what Office encrypts into, and what it wrote before 2007
_ENCRYPTED = 0x1
_RELATIONS = "_rels/.rels"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
# In titles that the program gives to slides, in whatever language: «Presentación de PowerPoint».
_UNCHOSEN = "PowerPoint"
_MOST_WORDS_UNCHOSEN = 3
# Nothing is fetched, and entities stay unexpanded.
_PARSER: Any = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


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


def parsed(archive: ZipFile, name: str) -> Any:
    """The root of a part. Raises `KeyError` where there is none, and lxml's errors."""
    return parsed_part(archive.read(name))


def parsed_part(content: bytes) -> Any:
    """The root of a part that has been read. Raises lxml's errors."""
    return etree.fromstring(content, etree.XMLParser(**_PARSER))


def open_office(content: bytes) -> tuple[ZipFile, bytes]:
    """The archive that a document of Office is, to be closed by the caller, and the document. Raises `Unreadable`.

    In «Strict Open XML» everything has other names: it is rewritten with those that libraries know.
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
    """Kind and part of each reference of a part within the archive, by its name there."""
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
    """The name of a part of some kind to which a part refers, or the document itself, which has no name."""
    return next((part for of, part in relations(archive, name).values() if of == kind), default)


def objects(archive: ZipFile) -> Iterator[tuple[str, bytes]]:
    """Name and content of each object that a document of Office embeds, without the numbers of charts."""
    names = archive.namelist()
    for name in names:
        if "/charts/" not in name:
            for kind, part in relations(archive, name).values():
                if kind in ("oleObject", "package") and part in names:
                    yield posixpath.basename(part), archive.read(part)


def description(archive: ZipFile) -> str:
    """The name of the part that describes a document of Office."""
    return related(archive, "", "core-properties", "docProps/core.xml")


def title_in(archive: ZipFile, name: str) -> str:
    """The title in a part that describes the document; empty without one."""
    if name not in archive.namelist():
        return ""
    return next((element.text or "" for element in parsed(archive, name).iter("{*}title")), "").strip()


def title_of_slides(archive: ZipFile, name: str, heading: str) -> str:
    """The title in a part that describes slides, if somebody chose it; else the `heading` of the first one."""
    title = title_in(archive, name)
    unchosen = _UNCHOSEN in title and len(title.split()) <= _MOST_WORDS_UNCHOSEN
    return title if is_chosen(title) and not unchosen else heading
