"""The SHA-256 of a file that SQLite may have open, read in another process: `python -m common.library.digest FILE`.

Closing any descriptor of a file ends all locks that the process has on it (POSIX), those of SQLite's connections among
them; others would then write as if there were none.
"""

from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
from pathlib import Path

from common.process.python import child_command, python_environment


def digest_of(path: Path) -> str:
    """The digest in hexadecimal; empty where there is no file. Raises `OSError`."""
    done = subprocess.run(
        child_command("common.library.digest", str(path)),
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(errno.EIO, "it can't be read to its end")
    return done.stdout.strip()


def main() -> None:
    """Print the digest of the file that the argument names."""
    try:
        with Path(sys.argv[1]).open("rb") as file:
            print(hashlib.file_digest(file, "sha256").hexdigest())
    except FileNotFoundError:
        pass


if __name__ == "__main__":
    main()
