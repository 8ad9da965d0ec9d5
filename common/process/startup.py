"""The start of a process that takes its time: what it is at, for its log and for whoever asks meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_STEP: Final = 10.0  # seconds between two lines about the same work


class Startup:
    """Keeps what a start is at. Told on one thread, read on any."""

    def __init__(self, tell: Callable[[str], object] | None = None) -> None:
        """`tell` is told what the log is told."""
        self._tell = tell
        self._work = ""
        self._share: float | None = None
        self._told_at = 0.0

    def at(self, work: str, share: float | None = None) -> None:
        """Say that `work` is under way (`loading the language model`), of which a `share` from 0 to 1 is done."""
        again, now = work == self._work, time.monotonic()
        self._work, self._share = work, share
        if not again or now - self._told_at >= _STEP:
            self._told_at = now
            log.info("starting: %s", self)
            if self._tell is not None:
                self._tell(f"starting: {self}")

    def __str__(self) -> str:
        work = self._work or "beginning"
        return work if self._share is None else f"{work}, {100 * self._share:.0f} %"
