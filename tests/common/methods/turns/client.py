"""One answer as the engine sees it: asks for the next distribution while it is this side's turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from common.engine.sampling import Drawn
from common.session.values import Work
from tests.common.methods.turns.rules import Rules


class TurnsClient:
    """Implements the engine's `Client`. `decided` is told of each token of this side, `ended` of the end."""

    recorder: None = None  # this method leaves no traces

    def __init__(
        self, rules: Rules, decided: Callable[[int, int], None], ended: Callable[[Exception | None], None]
    ) -> None:
        self.rules = rules
        self.over = False
        self.lock = threading.RLock()  # of `rules`
        self._decided = decided
        self._ended = ended

    def work(self) -> tuple[Work, list[int]] | None:
        with self.lock:
            position = len(self.rules.tokens)
            return (Work(0, position, 0), list(self.rules.tokens)) if self.rules.mine and not self.over else None

    @property
    def resting(self) -> bool:
        return False

    def outdated(self, work: Work) -> bool:
        return self.over or work.position < len(self.rules.tokens)

    def drawn(self, work: Work, drawn: Sequence[Drawn], seconds: float) -> None:
        with self.lock:
            if self.outdated(work) or not self.rules.mine:
                return
            (draft,) = drawn
            self.rules.tokens.append(draft.view.token)
            self._decided(work.position, draft.view.token)

    def gave_up(self, work: Work, started: int) -> None:
        pass

    def end(self, failure: Exception | None) -> None:
        with self.lock:
            if not self.over:
                self.over = True
                self._ended(failure)
