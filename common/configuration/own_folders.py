"""A library's folder is the library's own: one of a person's own, which a setting names by mistake, is told from it.

What lies in a library's folder is made private and written over by daemons and commands.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

# One of them is in each library's folder, from its first use on; names of others that belong to them begin alike.
_OF_A_LIBRARY: Final = ("library.sqlite", "writer.lock")
_CACHES: Final = frozenset({"index.faiss", "index.faiss.new", "snapshots"})  # others have such an index, too
_OF_A_DISK: Final = frozenset({"lost+found", "System Volume Information", "$RECYCLE.BIN", "@eaDir", "#recycle"})


def foreign(library: Path) -> str | None:
    """The reason that `library` can't be a library's folder: it is some other one. None for one that can."""
    names: set[str] = set()
    with suppress(OSError):  # it is not there yet; or whoever opens it says what is wrong with it
        names = {name for name in os.listdir(library) if not name.startswith(".")} - _OF_A_DISK
    if names <= _CACHES or any(name.startswith(_OF_A_LIBRARY) for name in names):
        return None
    return (
        "this folder holds other things and no library; name one that is empty or not there yet, and add documents"
        " with `dragon library add FOLDER`"
    )
