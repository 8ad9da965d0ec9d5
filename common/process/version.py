"""The release of this package, for `pyproject.toml`, the `server` header and `dragon --version`."""

from __future__ import annotations

import subprocess
from typing import Final

from common.process.machine import ROOT

VERSION = "0.1.0"

COMMIT: Final = "commit.txt"  # `setup.py` writes a wheel's commit here


def describe_version() -> str:
    """`VERSION`, with the commit if known: `0.1.0 (024502a8c1d2)`."""
    known = commit()
    return f"{VERSION} ({known})" if known else VERSION


def commit() -> str | None:
    """The commit of the checkout, `-dirty` with changes, or of the wheel.

    None if unknown: without git, or built from an archive.
    """
    if (ROOT / ".git").exists():
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    written = ROOT / COMMIT
    return written.read_text("utf-8") if written.exists() else None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
