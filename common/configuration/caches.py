"""Caches of libraries, which would lie elsewhere in the user's home: they belong to what the user's daemons keep."""

from __future__ import annotations

import os
from pathlib import Path

from common.configuration.settings import Settings, default_data_dir
from common.process.files import expanded

_PACKAGES = Path(__file__).resolve().parents[2]


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
