"""Folders of this program's own: a library's, told from any other folder, and the caches of other libraries.

What lies in a library's folder is made private and written over by daemons and commands. A setting may name a folder of
a person's own by mistake.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.configuration.settings import Settings, default_data_dir
from common.process.files import expanded

_PACKAGES: Final = Path(__file__).resolve().parents[2]
# One of them is in each library's folder, from its first use on; names of others that belong to them begin alike.
_OF_A_LIBRARY: Final = ("library.sqlite", "writer.lock")
_CACHES: Final = frozenset({"index.faiss", "index.faiss.new", "snapshots"})  # others have such an index, too
_OF_A_DISK: Final = frozenset({"lost+found", "System Volume Information", "$RECYCLE.BIN", "@eaDir", "#recycle"})


def why_not_library(library: Path) -> str | None:
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


def keep_caches(settings: Settings) -> None:
    """Have this process and its children keep caches in the data folder. Before the libraries are imported.

    Numba's compiled loops lie beside the package where that may be written. The Hub's models are shared with other
    programs. Who has chosen a data folder wants all of it there, but for the login at the Hub, which is the user's.
    Variables that are set already count more.
    """
    chosen = settings.data_dir != default_data_dir()
    if chosen or not os.access(_PACKAGES, os.W_OK):
        os.environ.setdefault("NUMBA_CACHE_DIR", str(settings.caches / "numba"))
    if chosen:
        if "HF_HOME" not in os.environ:
            usual = Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"))
            os.environ.setdefault("HF_TOKEN_PATH", str(usual / "huggingface" / "token"))
        os.environ.setdefault("HF_HOME", str(settings.caches / "huggingface"))
        os.environ.setdefault("MPLCONFIGDIR", str(settings.caches / "matplotlib"))
