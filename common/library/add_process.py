"""`python -m common.library.add_process`: reads watched folders for a daemon with the daemon's embedding model.

The process exchanges lines of JSON. It ends after stdin, when everything is read.

* stdin: the settings, then `{"read": {folder: [path, ...]}}` for changes and `{"vectors": ...}` for lent vectors.
* stdout: `{"embed": [text, ...]}`, and after each reading `{"read": folder, "done": ..., "taken": ...}`. `taken` counts
  the `read` lines at its beginning; later ones may be about unseen changes.

A saved note is read first, during answers, and the daemon embeds its few texts. Loading a model here takes ten seconds
of a core and half a gigabyte: only for many texts, at low priority.
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

NICENESS: Final = 5  # a note should be found soon, and answers come first
MOST_NICENESS: Final = 10  # for long readings
PROMPT: Final = 64  # texts lent after a change
TURN: Final = 5.0  # least seconds of a reading before other folders get their turn

Folders = dict[str, list[str]]


class DaemonLines:
    """The lines to and from the parent process."""

    def __init__(self, lines: IO[str], answers: IO[str]) -> None:
        self._lines, self._answers = lines, answers
        self._changed = threading.Condition()
        self._folders: deque[Folders] = deque()
        self._vectors: deque[dict[str, Any]] = deque()
        self._ended = False
        self.taken = 0
        threading.Thread(target=self._listen, name="daemon", daemon=True).start()

    @property
    def waiting(self) -> bool:
        """Whether something has changed since the last `take`."""
        return bool(self._folders)

    def take(self, wait: bool) -> Folders:
        """Folders changed since the last call, with their paths; empty without any.

        With `wait`, it is empty only at the end.
        """
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
        print(json.dumps(line), file=self._answers, flush=True)

    def embed(self, texts: list[str]) -> NDArray[np.float32] | None:
        """Unit vectors [texts, dimension] from the daemon; None when it no longer lends."""
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
    """Encodes the first texts after a change in the daemon, further ones here."""

    def __init__(self, own: Embedder, lend: Callable[[list[str]], NDArray[np.float32] | None]) -> None:
        self._own = own
        self._lend = lend
        self.lent = 0  # texts since the last change

    @property
    def identity(self) -> str:
        """Identity of both models: they have the same settings."""
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
        """Encodes with this process's model; this process never searches."""
        return self._own.encode_queries(texts)


class FolderReader:
    """Reads folders one by one, the most recently changed first."""

    def __init__(self, daemon: DaemonLines, settings: Settings, library: Library, embedder: LentEmbedder) -> None:
        self._daemon = daemon
        self._settings = settings
        self._library = library
        self._embedder = embedder
        self._folders: Folders = {}  # to read, next first, each with the paths to read first
        self._began = 0.0

    def run(self) -> None:
        """Reads until nothing is left and the daemon has ended."""
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
        """Returns False if the folder must be tried again. `status` reports skipped documents."""
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

    def _reached(self, done: int, total: int, path: str, place: str) -> None:
        from common.library.ingest import Interrupted

        spent = time.monotonic() - self._began
        if spent > TURN:
            step_back()
            if self._daemon.waiting:
                raise Interrupted


def step_back() -> None:
    """Lowers the priority of this process for good."""
    os.nice(max(0, MOST_NICENESS - os.nice(0)))


def main() -> None:
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
