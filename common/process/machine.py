"""The machine: memory, neighbours, streams, the interpreter.

A process's memory is the machine's, or a container's or systemd unit's limit. The system kills a process beyond it,
even with free memory elsewhere.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Final

import psutil


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in total, and bytes free or easily freed."""

    total: int
    available: int


@dataclass(frozen=True, slots=True)
class _Files:
    folder: str  # below /sys/fs/cgroup
    limit: str
    used: str
    cached: str  # in memory.stat: bytes of file cache, freed on demand


_SECOND: Final = _Files("", "memory.max", "memory.current", "inactive_file")
_FIRST: Final = _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def memory(root: Path = Path("/")) -> Memory:
    """Memory for this process; control groups are read below `root`."""
    machine = psutil.virtual_memory()
    found = Memory(machine.total, machine.available)
    groups = root / "sys/fs/cgroup"
    for files, path in groups_of(_text(root / "proc/self/cgroup")):
        for each in (path, *path.parents):  # parent groups limit it too
            found = _within(found, groups / files.folder / str(each).lstrip("/"), files)
    return found


def groups_of(text: str) -> Iterator[tuple[_Files, PurePosixPath]]:
    """Memory control groups of this process, from the text of /proc/self/cgroup."""
    for line in text.splitlines():
        if line.count(":") < 2:  # not a kernel's line
            continue
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield _SECOND, PurePosixPath(path)
        elif "memory" in controllers.split(","):
            yield _FIRST, PurePosixPath(path)


def _within(memory: Memory, group: Path, files: _Files) -> Memory:
    limit = _number(_text(group / files.limit))
    if limit is None:
        return memory
    pairs = (line.split() for line in _text(group / "memory.stat").splitlines())
    told = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    kept = (_number(_text(group / files.used)) or 0) - (_number(told.get(files.cached, "")) or 0)
    return Memory(min(memory.total, limit), min(memory.available, max(0, limit - kept)))


def _number(text: str) -> int | None:
    """None for `max`, or an absent value."""
    return int(text) if text.strip().isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:  # absent on other systems and in the root group
        return ""


# --- neighbours

_SLACK: Final = 0.25  # cores of an idle desktop


class Neighbours:
    """Measures other processes' load during a `with` block."""

    def __init__(self) -> None:
        self.cores = 0.0  # average cores used by other processes

    def __enter__(self) -> Neighbours:
        self._began, self._others = time.monotonic(), _others()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._began
        self.cores = max(0.0, _others() - self._others) / seconds if seconds > 0 else 0.0

    def lacked(self, threads: int) -> float:
        """Cores lacked by `threads` threads of this process; 0 if each had one."""
        return max(0.0, self.cores + threads - usable_cores() - _SLACK)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_each(processes: int, shares_machine: bool) -> int:
    """Cores per process of one daemon, leaving half if another daemon `shares_machine`."""
    return max(1, usable_cores() // (2 if shares_machine else 1) // processes)


def _others() -> float:
    """Processor seconds of all other processes, from an arbitrary start."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Guest time is already part of user and nice.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests) - time.process_time()


# --- garbage


@contextmanager
def importing() -> Iterator[None]:
    """Pauses garbage collection during large imports.

    Repeated collections take a fifth of the import time of torch and transformers.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def give_back_memory() -> None:
    """Returns free heap memory to the system: loading a model leaves twice its size."""
    with suppress(AttributeError, OSError):  # only in the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


def keep_loaded() -> None:
    """Exempts all present objects from collection: half a million of the libraries.

    A full collection would stop decoding for 0.2 s, or a second on a busy machine.
    """
    gc.collect()
    gc.freeze()


# --- streams
# Standard streams, some of which the starter may have closed (`>&-`).


def open_closed_streams() -> None:
    """Opens closed standard streams to nowhere, for this process and its children.

    Otherwise the next opened file, e.g. a database, takes the stream's number and receives output. Call this before
    opening anything.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is the stream's
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))


# --- python

ROOT = Path(__file__).resolve().parents[2]


def python_environment() -> dict[str, str]:
    """Environment for another `python -P` with this process's packages.

    With -P a folder `cloud` in the working directory is not taken for the package.
    """
    inherited = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), inherited] if inherited else [str(ROOT)])}


def child_command(module: str, *arguments: str, writes: bool = False) -> list[str]:
    """Command of a child for `module`; the child ends with this process.

    For `python_environment`. Unless it `writes`, it writes no bytecode either.
    """
    manners = ["-P"] if writes else ["-P", "-B"]
    return [sys.executable, *manners, "-m", "common.process.child", str(os.getpid()), module, *arguments]


def wait_passively() -> None:
    """Lets this process's OpenMP threads sleep while waiting, unless configured otherwise.

    By default they spin, even on a core that another of them needs: embedding on two busy cores is 20 times slower.
    Effective only before torch and faiss are imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
