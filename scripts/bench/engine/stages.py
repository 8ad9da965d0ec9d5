"""A stop-watch for nested stages."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager


class Stages:
    """Exclusive processor time per stage: what an inner stage takes is not counted to the outer one.

    Processor time of this thread, because other programs' work is not the engine's; on an idle machine it is the
    time that passes. Used as `with stages("session"): ...`; `lap` ends a token. One thread.
    """

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []  # microseconds by stage, one per token
        self._lap: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    def __call__(self, name: str) -> AbstractContextManager[None]:
        return _Stage(self, name)

    def enter(self, name: str) -> None:
        now = time.thread_time()
        if self._open:
            self._add(self._open[-1], now)
        self._open.append(name)
        self._since = time.thread_time()

    def leave(self) -> None:
        now = time.thread_time()
        self._add(self._open.pop(), now)
        self._since = time.thread_time()

    def lap(self) -> None:
        self.laps.append(self._lap)
        self._lap = {}

    def _add(self, name: str, now: float) -> None:
        self._lap[name] = self._lap.get(name, 0.0) + 1e6 * (now - self._since)


class _Stage(AbstractContextManager[None]):
    __slots__ = ("_name", "_stages")

    def __init__(self, stages: Stages, name: str) -> None:
        self._stages = stages
        self._name = name

    def __enter__(self) -> None:
        self._stages.enter(self._name)

    def __exit__(self, *error: object) -> None:
        self._stages.leave()
