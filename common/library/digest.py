"""The SHA-256 of a file that SQLite may have open, read in another process.

Closing any descriptor of a file ends all locks that the process has on it (POSIX), those of SQLite's connections among
them; others would then write as if there were none.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

from common.library import digest_process


def digest_of(path: Path) -> str:
    """The digest in hexadecimal; empty where there is no file. Raises `OSError`.

    Every opening of a library waits for it. The process is a script that needs neither packages nor their search path,
    which would take most of its time.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-S", digest_process.__file__, str(os.getpid()), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(errno.EIO, "it can't be read to its end")
    return done.stdout.strip()
