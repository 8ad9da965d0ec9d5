"""The machine below this process: memory, neighbours, streams, the interpreter.

The memory that a process may have is the machine's, or less where a container or a unit of systemd has a limit. The
system kills whoever goes beyond such a limit, however much is free beside it.
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


# --- neighbours
# Processor time that other processes take while this one measures.

_SLACK: Final = 0.25  # cores; what an idle desktop takes


class Neighbours:
    """Watches the machine for the time of a `with` block."""

    def __init__(self) -> None:
        self.cores = 0.0  # that other processes had, on average over the block

    def __enter__(self) -> Neighbours:
        self._began, self._others = time.monotonic(), _others()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._began
        self.cores = max(0.0, _others() - self._others) / seconds if seconds > 0 else 0.0

    def lacked(self, threads: int) -> float:
        """Cores that `threads` threads of this process had to wait for; 0 where each had one."""
        return max(0.0, self.cores + threads - usable_cores() - _SLACK)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_each(processes: int, shares_machine: bool) -> int:
    """Cores for each of `processes` of one daemon, which leaves half of them to another one that `shares_machine`."""
    return max(1, usable_cores() // (2 if shares_machine else 1) // processes)


def _others() -> float:
    """Seconds of processor time since some moment, of all processes but this one."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is part of user's and nice's.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests) - time.process_time()


# --- garbage
# Spares the collector of garbage what stays: modules, and what libraries keep.


@contextmanager
def importing() -> Iterator[None]:
    """Import inside what has many modules. The collector would go through all of them again and again as they become
    more: a fifth of the seconds that torch and transformers take.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def give_back_memory() -> None:
    """Give the system back what is free in the heap. Loading a model leaves twice its size there."""
    with suppress(AttributeError, OSError):  # only the GNU library has it
        ctypes.CDLL(None).malloc_trim(0)


def keep_loaded() -> None:
    """Have nothing looked at again that there is now: half a million objects of libraries.

    Each of the collector's full turns looks at all others, and no thread decodes meanwhile: 0.2 s, a second on a busy
    machine.
    """
    gc.collect()
    gc.freeze()


# --- streams
# The standard streams of a process, of which whoever started it may have closed some (`>&-`).


def open_closed_streams() -> None:
    """Have those that are closed lead nowhere, for this process and its children.

    Else the next file that is opened, a database for example, gets the number of the closed one, and with it what a
    library prints. Before anything else is opened.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is the stream's
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))


# --- python
# Python processes of this installation: how others are started, and the manners of this one.

ROOT = Path(__file__).resolve().parents[2]


def python_environment() -> dict[str, str]:
    """The environment in which another `python -P` finds the packages that this process runs from.

    With -P: a folder named `cloud` in the working directory must not be taken for the package.
    """
    inherited = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), inherited] if inherited else [str(ROOT)])}


def child_command(module: str, *arguments: str, writes: bool = False) -> list[str]:
    """The command of a child process that runs `module`, for `python_environment`; it ends with this process.

    Unless it `writes` anyway, it writes no bytecode either.
    """
    manners = ["-P"] if writes else ["-P", "-B"]
    return [sys.executable, *manners, "-m", "common.process.child", str(os.getpid()), module, *arguments]


def wait_passively() -> None:
    """Let this process's OpenMP threads sleep when they wait for each other, unless its environment says otherwise.

    They spin by default, also while another program has the core that the last of them needs: two threads on two cores
    with other work embed a twentieth of what they could. Has an effect only before torch and faiss are imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
