"""`python -m common.library.add_process`: reads watched folders for a daemon, which lends it its embedding model.

Lines of JSON. On stdin: the settings; then `{"read": {folder: [path, ...]}}`, folders with what has changed there, and
`{"vectors": ...}`, what was lent. On stdout: `{"embed": [text, ...]}`, and for each reading that has ended
`{"read": folder, "done": ..., "taken": ...}`, with the number of `read` lines that had been taken when it began: those
behind them may be about what it has not seen. It ends when stdin does and all is read.

A saved note is read while answers are decoded: it comes before what else there is to read, and its few texts are
embedded by the daemon, whose model is there. Loading another one takes ten seconds of a core and half a gigabyte; that
is for many texts, and for a process that everybody else goes before.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from common.process.machine import wait_passively

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from common.configuration.settings import Settings
    from common.library.embedder import Embedder
    from common.library.library import Library

NICENESS: Final = 5  # a note is to be found soon, and answers come first
MOST_NICENESS: Final = 10  # of the reading of much
PROMPT: Final = 64  # texts that are lent after a change
TURN: Final = 5.0  # seconds that a reading has, at least, before others have their turn

Folders = dict[str, list[str]]


class DaemonLines:
    """The lines to and from the process that started this one."""

    def __init__(self, lines: IO[str], answers: IO[str]) -> None:
        self._lines, self._answers = lines, answers
        self._changed = threading.Condition()
        self._folders: deque[Folders] = deque()
        self._vectors: deque[dict[str, Any]] = deque()
        self._ended = False
        self.taken = 0  # lines with folders that were given by `take`
        threading.Thread(target=self._listen, name="daemon", daemon=True).start()

    @property
    def waiting(self) -> bool:
        """Whether something has changed since the last `take`."""
        return bool(self._folders)

    def take(self, wait: bool) -> Folders:
        """Folders in which something changed since, with the paths; none at the end, or where one does not wait."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._folders or self._ended)
            taken: Folders = {}
            while self._folders:
                self.taken += 1
                for folder, paths in self._folders.popleft().items():
                    taken.setdefault(folder, []).extend(paths)
            return taken

    def tell(self, **line: object) -> None:
        """Send a line."""
        print(json.dumps(line), file=self._answers, flush=True)

    def embed(self, texts: list[str]) -> NDArray[np.float32] | None:
        """Unit vectors [texts, dimension] of the daemon's model; None where it lends it no more."""
        import numpy as np

        with self._changed:
            if self._ended:
                return None
            self.tell(embed=texts)
            self._changed.wait_for(lambda: self._vectors or self._ended)
            if not self._vectors:
                return None
            found = self._vectors.popleft()["vectors"]
        return None if found is None else np.frombuffer(b64decode(found), np.float32).reshape(len(texts), -1)

    def _listen(self) -> None:
        for line in self._lines:
            said = json.loads(line)
            with self._changed:
                if "read" in said:
                    self._folders.append(said["read"])
                else:
                    self._vectors.append(said)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class LentEmbedder:
    """The daemon's embedding model for the first texts after a change, one of this process for the others."""

    def __init__(self, own: Embedder, lend: Callable[[list[str]], NDArray[np.float32] | None]) -> None:
        self._own = own
        self._lend = lend
        self.lent = 0  # texts since the last change

    @property
    def identity(self) -> str:
        """See `Embedder`: both are of the same settings."""
        return self._own.identity

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension]."""
        self.lent += len(texts)
        vectors = self._lend(texts) if self.lent <= PROMPT else None
        if vectors is not None:
            return vectors
        step_back()
        import torch

        torch.set_num_threads(1)
        return self._own.encode(texts)

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        """See `Embedder`. This process reads folders, and searches for nothing."""
        return self._own.encode_queries(texts)


class FolderReader:
    """Reads folder after folder, those first in which something has changed last."""

    def __init__(self, daemon: DaemonLines, settings: Settings, library: Library, embedder: LentEmbedder) -> None:
        self._daemon = daemon
        self._settings = settings
        self._library = library
        self._embedder = embedder
        self._folders: Folders = {}  # to be read, the next first, with the paths that come first
        self._began = 0.0

    def run(self) -> None:
        """Read until nothing is left and the daemon has no more."""
        from common.library.ingest import Interrupted

        while self._more():
            folder = next(iter(self._folders))
            self._began = time.monotonic()
            try:
                done = self._read(folder)
            except Interrupted:
                continue
            del self._folders[folder]
            self._daemon.tell(read=folder, done=done, taken=self._daemon.taken)

    def _more(self) -> bool:
        new = self._daemon.take(wait=not self._folders)
        if new:
            self._embedder.lent = 0
            for folder, paths in self._folders.items():
                new.setdefault(folder, []).extend(paths)
            self._folders = new
        return bool(self._folders)

    def _read(self, folder: str) -> bool:
        """Whether a folder was read, or is not to be; else it has to be tried again. What was merely skipped is told by
        `status`.
        """
        from common.library.commands import bring_up_to_date
        from common.library.errors import LibraryError, NotWatched

        first = self._folders[folder]
        try:
            bring_up_to_date(self._library, self._settings, Path(folder), self._reached, first=first, again=True)
        except NotWatched:
            return True
        except LibraryError:
            return False
        return True

    def _reached(self, done: int, total: int, path: str) -> None:
        from common.library.ingest import Interrupted

        spent = time.monotonic() - self._began
        if spent > TURN:
            step_back()
            if self._daemon.waiting:
                raise Interrupted


def step_back() -> None:
    """Let everybody else go first from now on."""
    os.nice(max(0, MOST_NICENESS - os.nice(0)))


def main() -> None:
    """Read what the daemon says."""
    os.nice(NICENESS)
    wait_passively()
    from common.configuration.settings import Settings
    from common.library.commands import open_library

    settings = Settings(**json.loads(sys.stdin.readline()))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries may print
    daemon = DaemonLines(sys.stdin, answers)
    lent: list[LentEmbedder] = []

    def lend(own: Embedder) -> Embedder:
        lent.append(LentEmbedder(own, daemon.embed))
        return lent[0]

    with open_library(settings, lend) as library:
        FolderReader(daemon, settings, library, lent[0]).run()


if __name__ == "__main__":
    main()
