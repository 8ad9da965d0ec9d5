"""The process that keeps the library of a cloud on several machines: started, and started again when it ends."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from cloud.gateway.processes import started
from common.process.python import child_command

log = logging.getLogger(__name__)

_PAUSE: Final = 10.0  # seconds until it is started again
_ENDING: Final = 0.3  # seconds that it has for its end


class Librarian:
    """Keeps it running, until closed. Answers go on without it, from the latest snapshot."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = json.dumps(dict(settings), default=str).encode()
        self._closing = threading.Event()
        self._lock = threading.Lock()  # of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="librarian", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it, in order where that takes no longer than a moment."""
        with self._lock:
            self._closing.set()
            process = self._process
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING)
            process.kill()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                process = self._started()
            except OSError as error:  # there is no process to be had
                log.warning("the process that keeps the library can't be started (%s); it is tried again", error)
                self._closing.wait(_PAUSE)
                continue
            if process is None:
                return
            code = process.wait()
            if not self._closing.is_set():
                log.warning("the process that keeps the library ended (exit code %d); it is started again", code)
                self._closing.wait(_PAUSE)

    def _started(self) -> subprocess.Popen[bytes] | None:
        command = child_command("cloud.gateway.librarian_process")
        with self._lock:
            if self._closing.is_set():
                return None
            self._process = process = started(command, self._settings)
        return process
