"""The start of a process that takes its time: what it does now, and where the time of the last start went."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from common.process.durable_files import replacing
from common.process.private_files import private_folder

log = logging.getLogger(__name__)

_STEP: Final = 10.0  # seconds between two lines about the same work
_BEGINNING: Final = "beginning"
_MOST_BYTES: Final = 2**16  # of a file with stages
_LONGEST_STAGE: Final = 100  # characters that are shown


class Startup:
    """Keeps what a start is at, and how long its stages took. Told on one thread, read on any."""

    def __init__(
        self, tell: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`tell` is told what the log is told. The first stage began with the process."""
        self._tell, self._clock = tell, clock
        self._work = _BEGINNING
        self._share: float | None = None
        self._told_at = 0.0
        self._began = clock() - max(0.0, time.time() - psutil.Process().create_time())
        self._stages: list[tuple[str, float]] = []

    def at(self, work: str, share: float | None = None) -> None:
        """Say that `work` is under way (`loading the language model`), of which a `share` from 0 to 1 is done."""
        again, now = work == self._work, self._clock()
        if not again:
            self._end_stage(now)
        self._work, self._share = work, share
        if not again or now - self._told_at >= _STEP:
            self._told_at = now
            log.info("starting: %s", self)
            if self._tell is not None:
                self._tell(f"starting: {self}")

    def over(self, file: Path) -> None:
        """Write to `file` where the time went: the process serves."""
        self._end_stage(self._clock())
        try:
            private_folder(file.parent)
            with replacing(file) as written:
                written.write(json.dumps({"stages": self._stages}, indent=1).encode())
        except OSError as error:
            log.warning("%s can't be written: %s", file, error.strerror)

    def _end_stage(self, now: float) -> None:
        self._stages.append((self._work, round(now - self._began, 2)))
        self._began = now

    def __str__(self) -> str:
        return self._work if self._share is None else f"{self._work}, {100 * self._share:.0f} %"


def last_start(file: Path) -> list[tuple[str, float]]:
    """Stages and seconds of the last start that wrote `file`; empty without one that can be read."""
    try:
        with file.open("rb") as opened:
            stages = json.loads(opened.read(_MOST_BYTES))["stages"]
        return [(str(work)[:_LONGEST_STAGE], float(seconds)) for work, seconds in stages]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
