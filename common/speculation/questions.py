"""What was asked of the other side for the first undecided position."""

from __future__ import annotations

from common.speculation.progress import Progress
from common.speculation.values import Action, Send, Undecided
from proto.messages import Resolve

Question = tuple[int, Undecided]  # digest of the prefix, what is lacking after it


class Questions:
    """Asks for what a certificate lacks once, until it is forgotten or something else is lacking."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0  # of different ones
        self._progress = progress
        self._latest: Question | None = None
        self._pending = False  # the answer is under way
        self._contested = -1  # the last position whose certificate failed

    def ask(self, missing: Undecided) -> list[Action]:
        """The certificate of the first undecided position fails for want of `missing`."""
        progress, position = self._progress, self._progress.position
        digest = progress.prefix.digest(position)
        if self._latest != (digest, missing):
            self.count += 1
        elif self._pending:
            return []
        if self._contested != position:
            progress.counters.certificate_failures += 1
        self._contested, self._latest, self._pending = position, (digest, missing), True
        return [Send(Resolve(progress.config.session, position, digest, missing.ids, missing.depth))]

    def forget(self) -> None:
        """The question or its answer may be lost."""
        self._pending = False
