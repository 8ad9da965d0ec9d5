"""Attribution of a finished answer to documents that shared a row: it is read again behind each of them by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.record import AnswerRecord
from common.answer.values import Drawn, Work
from common.engine.jobs import AnswerJob
from common.engine.sequences import Prompt

Shares = list[tuple[float, ...]]  # of each document in each token, and last of none, [tokens][docs + 1]

TOGETHER: Final = 8  # tokens of a pass: more would hold up the steps of other answers
LEAST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Said:
    """The view of a token that was decided long ago."""

    token: int

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.array([self.token])


@dataclass(frozen=True, slots=True)
class Repeating:
    """Draws the answer's own tokens. Implements `Drafter`."""

    tokens: Sequence[int]

    def race(self, position: int) -> None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: object) -> _Said:
        return _Said(self.tokens[position])


class Rereading:
    """One answer being read again. Implements `Client`; any thread may `stop` it."""

    resting = False
    recorder = None

    def __init__(self, prompt: Prompt, tokens: Sequence[int], done: Callable[[Shares | None], object]) -> None:
        """`prompt` has a row for each document and one without any; `done` is called once, with None where it can't be
        told what the documents said.
        """
        self.prompt = prompt
        self.tokens = tuple(tokens)
        self._shares: Shares = []
        self._done = done
        self._over = False
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        return self._over

    def work(self) -> Work | None:
        position = len(self._shares)
        count = min(TOGETHER, len(self.tokens) - position)
        return Work(0, self.tokens[: position + count - 1], count=count)

    def outdated(self, work: Work) -> bool:
        return self._over

    def drawn(self, work: Work, drawn: Sequence[Drawn], seconds: float) -> None:
        for token, draft in zip(self.tokens[work.position :], drawn, strict=False):
            self._shares.append(tuple(float(share) for share in draft.mixing.contributions(token)))
        if len(self._shares) == len(self.tokens):
            self._finish(self._shares)

    def gave_up(self, work: Work, started: int) -> None:
        """Do nothing: the pass is made again."""

    def end(self, failure: Exception) -> None:
        self._finish(None)

    def stop(self) -> None:
        """Do without."""
        self._finish(None)

    def _finish(self, shares: Shares | None) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        self._done(shares)


class RereadingJob(AnswerJob[Work]):
    """Its passes are a prompt's: nobody waits for one of its tokens."""

    @property
    def running(self) -> bool:
        return False


class SecondReading:
    """The second reading of one answer, if its documents share a row, and the bound on its time."""

    def __init__(self, submit: Callable[[Rereading], object]) -> None:
        """`submit` hands a reading to the engine."""
        self.going = False
        self.failed = False  # it ended without a result: too late, or behind an error
        self._submit = submit
        self._behind: tuple[Prompt, AnswerRecord] | None = None
        self._reading: Rereading | None = None
        self._until = 0.0

    def behind(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Note what is to be read behind, for `record`: documents that share a row, in rows of their own, or None."""
        record.apart = apart is None
        self._behind = None if apart is None else (apart, record)

    def begin(self, tokens: Sequence[int], answered: float, done: Callable[[], object]) -> None:
        """Read `tokens`, which took `answered` seconds, and call `done` when their shares are known, or will not be."""
        if self._behind is None or not tokens:
            done()
            return
        if self._reading is not None:
            return
        apart, record = self._behind

        def take(shares: Shares | None) -> None:
            if shares is not None:
                record.take(shares)
            self.failed = shares is None
            self.going = False
            done()

        self.going = True
        self._until = time.monotonic() + longest(answered)
        self._reading = Rereading(apart, tokens, take)
        self._submit(self._reading)

    def tick(self, now: float) -> None:
        """Look at the clock (monotonic, in seconds)."""
        if self.going and now > self._until:
            self.stop()

    def stop(self) -> None:
        """Do without."""
        if self._reading is not None:
            self._reading.stop()


def longest(answered: float) -> float:
    """Seconds that reading an answer again may take which took `answered` seconds: as long as that."""
    return max(LEAST_SECONDS, answered)
