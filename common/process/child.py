"""`python -m common.process.child PARENT MODULE ...`: runs a module until the process PARENT ends.

A child with private data must not outlive the process that controls it, however that ended.
"""

from __future__ import annotations

import ctypes
import os
import resource
import runpy
import signal
import sys
import threading
import time
from typing import Final

_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_TURN: Final = 0.5  # seconds between checks of the parent without kernel support


def main() -> None:
    """Runs the module, as `python -m` would, until it or the parent ends."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches both; the parent decides
    end_with(parent)
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def end_with(parent: int) -> None:
    """Kills this process when its starter `parent` ends, or has ended.

    On Linux the kernel does this, even if a library blocks the interpreter, and already when the starting thread ends.
    Elsewhere a thread polls.
    """
    if not _told_by_the_kernel():
        threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()
    if not _is_there(parent):
        os._exit(1)


def limit(memory: int, file_bytes: int | None = None) -> None:
    """Limits address space to `memory` bytes and files to `file_bytes`; forbids core dumps."""
    limits = [(resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)]
    if file_bytes is not None:
        limits.append((resource.RLIMIT_FSIZE, file_bytes))
    for kind, most in limits:
        resource.setrlimit(kind, (most, most))


def allow_seconds(seconds: int) -> None:
    """Allows `seconds` more of processor time; then SIGXCPU ends this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = int(used.ru_utime + used.ru_stime) + 1 + seconds  # the system counts whole seconds
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _told_by_the_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    done: int = ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    return done == 0


def _watch(parent: int) -> None:
    while _is_there(parent):
        time.sleep(_TURN)
    os._exit(1)


def _is_there(parent: int) -> bool:
    """Whether this process is still a child of `parent`; orphans get another parent."""
    return os.getppid() == parent


if __name__ == "__main__":
    main()
