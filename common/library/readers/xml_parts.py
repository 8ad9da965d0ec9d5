"""Parts of archives that are XML: nothing is fetched, and entities stay unexpanded."""

from __future__ import annotations

from typing import Any
from zipfile import ZipFile

from lxml import etree

_PARSER: Any = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


def parsed(archive: ZipFile, name: str) -> Any:
    """The root of a part. Raises `KeyError` where there is none, and lxml's errors."""
    return etree.fromstring(archive.read(name), etree.XMLParser(**_PARSER))


def title_in(archive: ZipFile, name: str) -> str:
    """The title in a part that describes the document; empty without one."""
    if name not in archive.namelist():
        return ""
    return next((element.text or "" for element in parsed(archive, name).iter("{*}title")), "").strip()
