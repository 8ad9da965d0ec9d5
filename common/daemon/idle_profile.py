"""Measures decode steps again while a daemon is idle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.daemon.profile import ROUGH, OfflineProfile, fitted, keep, kept_line, measured_lengths
from common.engine.kv.line import KvAllocationError, KvMemoryFullError
from common.engine.loop import Worker
from common.engine.model.profile import DecodeProfile, measuring
from common.process.lifetime import LockHeld, sole_process
from common.process.machine import Neighbours
from common.process.threads import Died, vital_thread

PAUSE: Final = 5.0  # seconds until the first try, doubled after each
LONGEST_PAUSE: Final = 600.0  # seconds
LOOK: Final = 1.0  # seconds of observing the machine's load

log = logging.getLogger(__name__)


class IdleProfile:
    """Measures one model's steps until a measurement lacks no cores. Its thread then ends.

    Single passes on the model's thread. A new job ends a measurement, so answers wait for one pass at most.
    """

    def __init__(
        self,
        decoding: Worker,
        rows: int,
        folder: Path,
        turns: Path,
        died: Died | None = None,
        pause: float = PAUSE,
        look: float = LOOK,
    ) -> None:
        """`folder` stores the line of `rows` documents. Measuring processes lock `turns`."""
        self._decoding, self._rows, self._folder, self._turns = decoding, rows, folder, turns
        self._pause, self._look = pause, look
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, "idle profile", died)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and its measurement."""
        self._closing.set()
        self._thread.join()

    def join(self) -> None:
        """Waits until no measurement can be better."""
        self._thread.join()

    def _run(self) -> None:
        pause = self._pause
        while (lacked := self._lacked()) > 0.0:
            if self._closing.wait(pause):
                return
            with suppress(LockHeld, OSError):
                self._turns.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with sole_process(self._turns):
                    self._try(lacked)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _lacked(self) -> float:
        """Cores that the kept line lacked, 0 if no better one is possible."""
        kept = kept_line(self._decoding.decoder, self._rows, self._folder)
        return ROUGH if kept is None else kept.lacked

    def _try(self, lacked: float) -> None:
        """Keeps a line that lacks fewer cores than `lacked`. Raises `OSError`."""
        decoder = self._decoding.decoder
        with Neighbours() as others:
            if self._closing.wait(self._look) or not self._decoding.idle:
                return
        if others.lacked(decoder.threads) >= lacked:
            return
        with Neighbours() as others:
            measured = self._measured()
        if measured is None or (now := others.lacked(decoder.threads)) >= lacked:
            return
        keep(decoder, self._rows, measured.line, self._folder, now)
        log.info("measured: a decode step takes %.1f ms", 1e3 * measured.medians[0])

    def _measured(self) -> OfflineProfile | None:
        """Returns None for a new job or too little memory."""
        decoder = self._decoding.decoder
        turn = _Turn(self._decoding, measuring(decoder, self._rows, measured_lengths(decoder)), self._closing)
        while not turn.over:
            turn.done.clear()
            self._decoding.on_model_thread(turn.step)
            while not turn.done.wait(self._look):
                if self._closing.is_set():
                    return None
        return None if turn.result is None else fitted(self._rows, turn.result)


class _Turn:
    """A measurement that runs pass by pass on the model's thread."""

    def __init__(self, decoding: Worker, steps: Generator[None, None, DecodeProfile], closing: threading.Event) -> None:
        self._decoding, self._steps, self._closing = decoding, steps, closing
        self.over = False
        self.done = threading.Event()
        self.result: DecodeProfile | None = None

    def step(self) -> None:
        """Runs a pass, or ends for other work."""
        try:
            if self._closing.is_set() or not self._decoding.idle:
                self._steps.close()
                self.over = True
            else:
                next(self._steps)
        except StopIteration as last:
            self.result, self.over = last.value, True
        except (KvMemoryFullError, KvAllocationError):
            self.over = True
        finally:
            self.done.set()
