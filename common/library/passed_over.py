"""Rules for passing over folders: hidden ones, and ones filled by programs.

A name alone decides only if no person would choose it: `build` may be about a house.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from common.library.readers.formats import is_named, is_read

# Also Word's lock file beside an open document, which has a document's suffix.
_HIDDEN: Final = (".", "~$")
_NAMES: Final = frozenset({"node_modules", "__pycache__"})
# Marker files of virtual environments (Python) and caches.
_MARKS: Final = ("pyvenv.cfg", "CACHEDIR.TAG")
_PYTHON: Final = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})
_NODE: Final = frozenset({"package.json"})
_GRADLE: Final = frozenset({"build.gradle", "build.gradle.kts"})
# Folders of build results, with files beside them that prove it.
_BUILT: Final = {
    "build": _PYTHON | _NODE | _GRADLE | {"CMakeLists.txt", "meson.build", "pubspec.yaml"},
    "_build": frozenset({"conf.py"}),
    "dist": _PYTHON | _NODE,
    "target": frozenset({"Cargo.toml", "pom.xml", "build.sbt"}),
}


def is_hidden(name: str) -> bool:
    """Whether this name hides a file or folder."""
    return name.startswith(_HIDDEN)


def is_passed_over(folder: str) -> bool:
    """Whether a folder is left out unless named itself; may look at the disk."""
    above, name = os.path.split(folder)
    if is_hidden(name) or name in _NAMES:
        return True
    if any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS):
        return True
    return any(os.path.lexists(os.path.join(above, beside)) for beside in _BUILT.get(name, ()))


def concerns(path: str, root: str) -> bool:
    """Whether a change of `path`, even a deletion, may affect the reading of `root`."""
    folder = root
    for name in Path(path).relative_to(root).parts:
        folder = os.path.join(folder, name)
        if is_passed_over(folder):
            return False
    suffix = os.path.splitext(path)[1].lower()
    return is_read(suffix) or is_named(suffix) or not os.path.isfile(path)
