"""Documents by what people call them."""

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
_COMPARED: Final = 2000  # documents that a name is compared with: a peer may send any name


def named(files: Sequence[FileRecord], name: str) -> FileRecord:
    """The one of `files` with this title or path; of a path its last parts are enough.

    Raises `UnknownDocument`, whose text is one sentence, where there is none or more than one. It names documents that
    may be meant, and does not repeat `name`, which is somebody's request.
    """
    name = normalised(name)
    wanted = Path(name).parts
    found = [
        file for file in files if name == normalised(file.title) or (wanted and _ending(file, len(wanted)) == wanted)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        paths = [_short(file, files) for file in found]
        raise UnknownDocument(f"The library has several documents of this name: name one by its path, {_any(paths)}.")
    names = {each.casefold(): each for file in files[:_COMPARED] for each in (Path(file.path).name, file.title)}
    close = [names[each] for each in get_close_matches(name.casefold(), names, _SHOWN)]
    like = f": did you mean {_any(close)}?" if close else ": `dragon library list` shows those that it has."
    raise UnknownDocument(f"The library has no document of this name{like}")


def _ending(file: FileRecord, parts: int) -> tuple[str, ...]:
    """The last parts of a document's path, normalised."""
    return Path(normalised(file.path)).parts[-parts:]


def _short(file: FileRecord, others: Sequence[FileRecord]) -> str:
    """As much of the end of a document's path as tells it from `others`."""
    parts = 1
    while sum(_ending(other, parts) == _ending(file, parts) for other in others) > 1:
        parts += 1
    return str(Path(*_ending(file, parts)))


def _any(names: Sequence[str]) -> str:
    shown = " or ".join(map(_shown, names[:_SHOWN]))
    return f"{shown} or one of {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")
