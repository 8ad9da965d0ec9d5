"""Folders within a folder that are passed over: hidden ones, and those that programs fill with what is not one's own.

A name alone decides only where no person would give it: somebody's `build` may be about a house.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from common.library.readers.formats import CONVERTIBLE, SUFFIXES

# Also what Word keeps beside a document while that is open, which has its ending and is none.
_HIDDEN: Final = (".", "~$")
# Installed packages, and compiled ones.
_NAMES: Final = frozenset({"node_modules", "__pycache__"})
# What a program puts into a folder that it fills: Python into a virtual environment, others into a cache.
_MARKS: Final = ("pyvenv.cfg", "CACHEDIR.TAG")
_PYTHON: Final = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})
_NODE: Final = frozenset({"package.json"})
_GRADLE: Final = frozenset({"build.gradle", "build.gradle.kts"})
# Where results of building lie, and what stands beside them if they do.
_BUILT: Final = {
    "build": _PYTHON | _NODE | _GRADLE | {"CMakeLists.txt", "meson.build", "pubspec.yaml"},
    "_build": frozenset({"conf.py"}),
    "dist": _PYTHON | _NODE,
    "target": frozenset({"Cargo.toml", "pom.xml", "build.sbt"}),
}


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is hidden."""
    return name.startswith(_HIDDEN)


def is_passed_over(folder: str) -> bool:
    """Whether a folder is left out unless it was named itself. Where its name is not enough, the disk is asked."""
    above, name = os.path.split(folder)
    if is_hidden(name) or name in _NAMES:
        return True
    if any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS):
        return True
    return any(os.path.lexists(os.path.join(above, beside)) for beside in _BUILT.get(name, ()))


def concerns(path: str, root: str) -> bool:
    """Whether a change of `path`, which may be gone by now, can change what is read of the folder `root` above it."""
    folder = root
    for name in Path(path).relative_to(root).parts:
        folder = os.path.join(folder, name)
        if is_passed_over(folder):
            return False
    suffix = os.path.splitext(path)[1].lower()
    return suffix in SUFFIXES or suffix in CONVERTIBLE or not os.path.isfile(path)
