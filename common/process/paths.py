"""Paths as people write them."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """`path` with the home folder in place of `~` or `~user`; `~name` of a user who is not known is a name like others.

    As shells have it. `Path.expanduser` raises `RuntimeError` there, which nobody expects of a path.
    """
    return Path(os.path.expanduser(path))
