"""What was asked of the other side for the first undecided position."""

from __future__ import annotations

from common.speculation.progress import Progress
from common.speculation.values import Action, Send, Undecided
from proto.messages import Resolve


class Questions:
    """Asks for what a certificate lacks once, until it is forgotten or something else is lacking."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._asked: Undecided | None = None
        self._contested = -1  # the last position whose certificate failed

    def ask(self, missing: Undecided) -> list[Action]:
        """The certificate of the first undecided position fails for want of `missing`."""
        progress, position = self._progress, self._progress.position
        if self._asked == missing:
            return []
        if self._contested != position:
            progress.counters.certificate_failures += 1
        self._asked, self._contested = missing, position
        digest = progress.prefix.digest(position)
        return [Send(Resolve(progress.config.session, position, digest, missing.ids, missing.depth))]

    def forget(self) -> None:
        """The question or its answer may be lost, or it no longer matters."""
        self._asked = None
