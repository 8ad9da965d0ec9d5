"""The daemon's side of the reading process for watched folders, started on demand.

Reading in daemon threads would slow down decoding, which waits for the interpreter.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.process.machine import child_command, python_environment

Changes = dict[str, set[str]]  # folders, and changed paths in them
Embed = Callable[[list[str]], NDArray[np.float32]]

_AT_ONCE: Final = 4  # texts that a question may have to wait for

log = logging.getLogger(__name__)


class ReadingProcess:
    """Reads changed folders in another process; `embed` lends the daemon's model for few texts.

    See `add_process`. One lasting thread calls all methods: the process ends with it.
    """

    def __init__(self, settings: Mapping[str, object], embed: Embed) -> None:
        self._settings = json.dumps(settings, default=str)
        self._embed = embed
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._lock = threading.Lock()  # guards the following attributes, and writing to the process
        self._reading: Changes = {}
        self._lines = 0  # with folders, sent to the present process
        self._latest: dict[str, int] = {}  # number of the latest line, by folder
        self._failed: Changes = {}
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether a reading is in progress."""
        with self._lock:
            return bool(self._reading)

    def read(self, changes: Mapping[str, set[str]]) -> None:
        """Brings the library up to date with the folders of `changes`, changed paths first."""
        with self._lock:
            if self._closed or not changes:
                return
            if not self._reading:
                self._start()
            self._lines += 1
            for folder, paths in changes.items():
                self._reading.setdefault(folder, set()).update(paths)
                self._latest[folder] = self._lines
            self._send({"read": {folder: sorted(paths) for folder, paths in changes.items()}})

    def failed(self) -> Changes:
        """Failed changes since the last call, to be tried again."""
        with self._lock:
            failed, self._failed = self._failed, {}
            return failed

    def close(self) -> None:
        """Interrupts the reading until the next start; for any thread."""
        with self._lock:
            self._closed = True
            process, listener = self._process, self._listener
            if process is not None:
                process.terminate()
        if listener is not None:
            listener.join()

    def _start(self) -> None:
        self._lines = 0
        self._process = subprocess.Popen(
            child_command("common.library.add_process"),
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), name="reading", daemon=True)
        self._listener.start()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(f"{self._settings}\n")

    def _send(self, line: dict[str, object]) -> None:
        """The listener reports the end of the process."""
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(f"{json.dumps(line)}\n")
            self._process.stdin.flush()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # the process ended within a line
            said = json.loads(line)
            if "embed" in said:
                vectors = self._lend(said["embed"])
                with self._lock:
                    self._send({"vectors": vectors})
            else:
                self._done(said)
        code = process.wait()
        process.stdout.close()
        with self._lock:
            if process.stdin is not None:
                with suppress(OSError):  # unsent data is lost
                    process.stdin.close()
            if self._process is process and self._reading:
                self._give_up(code)

    def _lend(self, texts: list[str]) -> str | None:
        try:
            parts = [self._embed(texts[start : start + _AT_ONCE]) for start in range(0, len(texts), _AT_ONCE)]
        except Exception as error:
            log.warning("embedding changed files of watched folders failed: %s", type(error).__name__)
            return None
        return b64encode(np.concatenate(parts).tobytes()).decode()

    def _done(self, said: dict[str, Any]) -> None:
        """Ends a folder's reading, unless the folder changed after it began."""
        with self._lock:
            log.info("a watched folder was %s", "read" if said["done"] else "not read, which is tried again")
            if said["taken"] < self._latest[said["read"]]:
                return
            paths = self._reading.pop(said["read"], set())
            if not said["done"]:
                self._failed.setdefault(said["read"], set()).update(paths)
            if not self._reading:
                self._leave()

    def _leave(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _give_up(self, code: int) -> None:
        if not self._closed:
            log.warning("the process that reads watched folders ended (exit code %d); it is started again", code)
        for folder, paths in self._reading.items():
            self._failed.setdefault(folder, set()).update(paths)
        self._reading = {}
