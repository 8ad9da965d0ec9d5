"""`python -m common.process.child PARENT MODULE ...`: runs a module that ends when the process PARENT does.

However that one ended: a child that works on what is private must not outlive whoever would have stopped it.
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
_TURN: Final = 0.5  # seconds between two looks at the parent, where the system does not tell of its end


def main() -> None:
    """Run the module, as `python -m` would, until it or the parent ends."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is for both: the parent has its say
    end_with(parent)
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def end_with(parent: int) -> None:
    """Have this process killed when the one of the number `parent`, which started it, has ended; at once if it has.

    On Linux the kernel does it, also while a library does not let go of the interpreter, and already when the thread
    ends that started this process. Elsewhere a thread looks.
    """
    if not _told_by_the_kernel():
        threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()
    if not _is_there(parent):
        os._exit(1)


def limit(memory: int, file_bytes: int | None = None) -> None:
    """Let this process have `memory` bytes of address space, write `file_bytes` to any file, and leave no core dump."""
    limits = [(resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)]
    if file_bytes is not None:
        limits.append((resource.RLIMIT_FSIZE, file_bytes))
    for kind, most in limits:
        resource.setrlimit(kind, (most, most))


def allow_seconds(seconds: int) -> None:
    """Let this process have `seconds` of processor time from now on; SIGXCPU ends it then."""
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
    """Whether this process is still the child of `parent`, which nobody can be of a process that has ended."""
    return os.getppid() == parent


if __name__ == "__main__":
    main()
