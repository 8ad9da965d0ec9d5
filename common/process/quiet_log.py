"""Log lines that a peer causes: some at once, then one now and then, so that nobody can fill the disk with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from common.process.accounts import TokenBucket

_LINES_PER_SECOND: Final = 0.2
_LINES_AT_ONCE: Final = 5.0


class QuietLog:
    """Passes lines on to `log`, and says with the next one how many were left out meanwhile."""

    def __init__(
        self,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        rate: float = _LINES_PER_SECOND,
        burst: float = _LINES_AT_ONCE,
    ) -> None:
        self._log = log
        self._clock = clock
        self._lines = TokenBucket(rate, burst, clock())
        self._untold = 0

    def tell(self, level: int, text: str, *arguments: object) -> bool:
        """Log a line, which ends without a full stop, at `level`; whether it was."""
        if not self._log.isEnabledFor(level):
            return False
        if not self._lines.take(self._clock()):
            self._untold += 1
            return False
        if self._untold:
            text, arguments = f"{text}; %d more were not told", (*arguments, self._untold)
            self._untold = 0
        self._log.log(level, text, *arguments)
        return True
