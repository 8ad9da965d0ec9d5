"""Stands for `common.library.add_process`: reads folders as that does, but knows neither their documents nor a library.

Usage: child_command("tests.common.library.reading_aloud", CODE)
Its first reading goes on until another change has come, and in the second one it ends with this exit code, unless 0.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from common.library.add_process import DaemonLines, FolderReader, LentEmbedder

ALONE = 9  # exit code where the daemon lends it nothing


class Own:
    """A model of its own."""

    def encode(self, texts: list[str]) -> NoReturn:
        os._exit(ALONE)


class Reader(FolderReader):
    """Embeds a text in each reading, which is numbered."""

    number = 0

    def _read(self, folder: str) -> bool:
        self.number += 1
        self._embedder.encode([f"reading {self.number}"])
        if self.number == 1:
            with self._daemon._changed:
                self._daemon._changed.wait_for(lambda: self._daemon.waiting)
        elif code := int(sys.argv[1]):
            os._exit(code)
        return True


def main() -> None:
    sys.stdin.readline()  # the settings
    daemon = DaemonLines(sys.stdin, sys.stdout)
    own: Any = Own()
    unused: Any = None
    Reader(daemon, unused, unused, LentEmbedder(own, daemon.embed)).run()


if __name__ == "__main__":
    main()
