"""Files that a question comes with, on the command line."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from device.cli.failures import bad_input


def as_fields(paths: Sequence[Path]) -> dict[str, Any]:
    """The field of a body that has the files; empty without any. Raises `CommandFailed` for one that can't be read."""
    if not paths:
        return {}
    names = [path.name for path in paths]
    for path, name in zip(paths, names, strict=True):
        if names.count(name) > 1:
            raise bad_input(f"two of the files are called {name}: give one of them another name")
        if not path.is_file():
            raise bad_input(f"{path} is not a file")
    return {"files": [{"name": path.name, "content": b64encode(content_of(path)).decode()} for path in paths]}


def content_of(path: Path) -> bytes:
    """The bytes of a file. Raises `CommandFailed`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise bad_input(f"{path} can't be read: {(error.strerror or str(error)).lower()}") from None
