"""Paths as a library knows them: absolute, and where they lead when something is added."""

from __future__ import annotations

import os
from pathlib import Path

from common.process.files import expanded


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it; both absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def below(path: str, folder: str) -> str:
    """The path from `folder` on of what lies in it; both absolute."""
    return path[len(folder.rstrip(os.sep)) + 1 :]


def on_disk(path: str | Path) -> str:
    """The absolute path of what `path` leads to."""
    return os.path.realpath(expanded(path))


def as_written(path: str | Path) -> str:
    """The absolute path of `path` itself, which may lead elsewhere: a link may have taken a folder's place. Up to the
    last `..` it is followed, since that is around what a link leads to.
    """
    written = expanded(path)
    parts = written.parts
    if ".." not in parts:
        return os.path.abspath(written)
    followed = len(parts) - parts[::-1].index("..")
    return os.path.join(os.path.realpath(Path(*parts[:followed])), *parts[followed:])


def places(path: str | Path) -> tuple[str, str]:
    """The absolute paths under which the library may know what `path` names."""
    return on_disk(path), as_written(path)
