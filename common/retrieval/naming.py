"""Documents by what people call them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from common.retrieval.errors import UnknownDocument
from common.retrieval.store import FileRecord

_SHOWN: Final = 4  # names in a sentence
_LONGEST_SHOWN: Final = 120  # characters of each


def named(files: Sequence[FileRecord], name: str) -> FileRecord:
    """The one of `files` with this title or path, as it is on the disk or below the folder that was added.

    Raises `UnknownDocument`, whose text is one sentence, where there is none or more than one.
    """
    found = [file for file in files if name in (file.title, file.path, _short(file), _below(file))]
    if len(found) == 1:
        return found[0]
    if found:
        shorts = {_short(file) for file in found}
        paths = [_short(file) if len(shorts) == len(found) else file.path for file in found]
        raise UnknownDocument(f"The library has several documents {_shown(name)}: name one by its path, {_any(paths)}.")
    names = {each.casefold(): each for file in files for each in (_below(file), file.title)}
    close = [names[each] for each in get_close_matches(name.casefold(), names, _SHOWN)]
    like = f": did you mean {_any(close)}?" if close else ": `dragon library list` shows those that it has."
    raise UnknownDocument(f"The library has no document {_shown(name)}{like}")


def _below(file: FileRecord) -> str:
    """Its path below the folder that was added; its name if it was added by itself."""
    return Path(file.path).name if file.path == file.root else file.relative_path


def _short(file: FileRecord) -> str:
    """The same with the folder's own name before it, where there is one."""
    return _below(file) if file.path == file.root else f"{Path(file.root).name}/{file.relative_path}"


def _any(names: Sequence[str]) -> str:
    shown = " or ".join(map(_shown, names[:_SHOWN]))
    return f"{shown} or one of {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")
