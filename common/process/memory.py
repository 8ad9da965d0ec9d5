"""Memory that this process may have: the machine's, or less where a container or a unit of systemd has a limit.

The system kills whoever goes beyond such a limit, however much is free beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import psutil


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in all, and of these the ones that are free or would be made so."""

    total: int
    available: int


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of what the kernel tells of a control group's memory."""

    folder: str  # below /sys/fs/cgroup
    limit: str
    used: str
    cached: str  # in memory.stat: bytes of files, which go when others need the memory


_SECOND: Final = _Files("", "memory.max", "memory.current", "inactive_file")
_FIRST: Final = _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def memory(root: Path = Path("/")) -> Memory:
    """The memory for this process; control groups are looked up below `root`."""
    machine = psutil.virtual_memory()
    found = Memory(machine.total, machine.available)
    groups = root / "sys/fs/cgroup"
    for files, path in groups_of(_text(root / "proc/self/cgroup")):
        for each in (path, *path.parents):  # a group has no more than those around it
            found = _within(found, groups / files.folder / str(each).lstrip("/"), files)
    return found


def groups_of(text: str) -> Iterator[tuple[_Files, PurePosixPath]]:
    """The control groups that count this process's memory, from what /proc/self/cgroup says."""
    for line in text.splitlines():
        if line.count(":") < 2:  # none of a kernel's own
            continue
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield _SECOND, PurePosixPath(path)
        elif "memory" in controllers.split(","):
            yield _FIRST, PurePosixPath(path)


def _within(memory: Memory, group: Path, files: _Files) -> Memory:
    """The part of `memory` that the group leaves."""
    limit = _number(_text(group / files.limit))
    if limit is None:
        return memory
    pairs = (line.split() for line in _text(group / "memory.stat").splitlines())
    told = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    kept = (_number(_text(group / files.used)) or 0) - (_number(told.get(files.cached, "")) or 0)
    return Memory(min(memory.total, limit), min(memory.available, max(0, limit - kept)))


def _number(text: str) -> int | None:
    """None for `max`, and for what is not told."""
    return int(text) if text.strip().isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:  # other systems have no such file, nor has the group around all others
        return ""
