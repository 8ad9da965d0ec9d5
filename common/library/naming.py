"""Finds documents by title or path."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from common.library.errors import UnknownDocument
from common.library.store import FileRecord
from proto.patterns import normalised

_SHOWN: Final = 4  # names in a sentence
_LONGEST_SHOWN: Final = 120  # characters of each
_COMPARED: Final = 2000  # documents compared with a name: a peer may send any name


def document_named(files: Sequence[FileRecord], name: str) -> FileRecord:
    """The one of `files` with this title, path or last parts of a path.

    Raises `UnknownDocument` for none or several. Its sentence suggests documents and never repeats `name`, which comes
    from a request.
    """
    written, name = Path(name).parts, normalised(name)
    wanted = Path(name).parts
    found = [
        file
        for file in files
        if name == normalised(file.title) or (wanted and Path(normalised(file.path)).parts[-len(wanted) :] == wanted)
    ]
    if len(found) > 1:  # one may match exactly, others only after normalisation
        found = [file for file in found if Path(file.path).parts[-len(written) :] == written] or found
    if len(found) == 1:
        return found[0]
    if found:
        paths = [Path(file.path).parts for file in files]
        short = [_short(Path(file.path).parts, paths) for file in found[:_SHOWN]]
        several = "The library has several documents with this name: give the path of one"
        raise UnknownDocument(f"{several}, {_any(short, len(found))}.")
    names = {each.casefold(): each for file in files[:_COMPARED] for each in (Path(file.path).name, file.title)}
    close = [names[each] for each in get_close_matches(name.casefold(), names, _SHOWN)]
    if close:
        raise UnknownDocument(f"The library has no document of this name: did you mean {_any(close, len(close))}?")
    listed = "`dragon library list` shows a device's documents, and with `--role cloud` a cloud's on its machine"
    raise UnknownDocument(f"The library has no document of this name: {listed}.")


def _short(path: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> str:
    """Shortest end of a document's path unique among `paths`."""
    parts, alike = 0, paths
    while len(alike) > 1 and parts < len(path):
        parts += 1
        alike = [other for other in alike if other[-parts:] == path[-parts:]]
    return str(Path(*path[-parts:]))


def _any(names: Sequence[str], count: int) -> str:
    shown = " or ".join(map(_shown, names))
    return f"{shown} or one of {count - len(names)} more" if count > len(names) else shown


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")
