"""What certificates lack: asked of the other side, or looked up on this one."""

from __future__ import annotations

from common.speculation.progress import Progress
from common.speculation.values import Action, Aggregation, Lacking, LookUp, Send, Undecided
from proto.messages import Resolve, Resolved

Question = tuple[int, Undecided]  # digest of the prefix, what is lacking after it

MOST_LOOK_UPS = 4  # for the other side at a time; what it asks beyond is asked again after a `Sync`


class Questions:
    """Asks for what a certificate lacks once, until it is forgotten or something else is lacking."""

    def __init__(self, progress: Progress, aggregation: Aggregation) -> None:
        self.count = 0  # of different ones for the other side
        self._progress = progress
        self._aggregation = aggregation
        self._latest: Question | None = None
        self._pending = False  # the answer is under way
        self._contested = -1  # the last position whose certificate failed
        self._own: tuple[int, Lacking] | None = None  # digest of the prefix, what is being looked up for this side
        self._others = 0  # look-ups for the other side that are under way

    def ask(self, missing: Undecided | Lacking) -> list[Action]:
        """The certificate of the first undecided position fails for want of `missing`."""
        progress, position = self._progress, self._progress.position
        if self._contested != position:
            progress.counters.certificate_failures += 1
        self._contested = position
        if isinstance(missing, Lacking):
            return self._look_up(missing)
        digest = progress.prefix.digest(position)
        if self._latest != (digest, missing):
            self.count += 1
        elif self._pending:
            return []
        self._latest, self._pending = (digest, missing), True
        return [Send(Resolve(progress.config.session, position, digest, missing.ids, missing.depth))]

    def reply(self, question: Resolve, shared: bool) -> list[Action]:
        """The other side asks for more of a draft; `shared`: it may know. Raises `ProtocolError` for what can't be."""
        draft = self._progress.local.find(question.position, question.digest)
        if draft is None or not shared or self._others >= MOST_LOOK_UPS:
            self._progress.counters.stale += 1
            return []
        self._aggregation.check_resolve(question.ids, question.depth)
        self._others += 1
        return [LookUp(draft.position, draft.digest, draft.view, question.ids, question.depth, asked=True)]

    def looked_up(self, look_up: LookUp, payload: bytes) -> list[Action]:
        """It is done: a reply, or this side's draft is known better."""
        position, digest, depth = look_up.position, look_up.digest, look_up.depth
        if look_up.asked:
            self._others -= 1
            return [Send(Resolved(self._progress.config.session, position, digest, depth, payload))]
        self._own = None
        draft = self._progress.local.find(position, digest)
        if draft is not None:
            view = self._aggregation.complete(draft.known, position, depth, payload)
            self._progress.local.complete(position, digest, view)
        return []

    def forget(self) -> None:
        """The question or its answer may be lost."""
        self._pending = False

    def _look_up(self, lacking: Lacking) -> list[Action]:
        draft = self._progress.local.first()
        if draft is None or self._own == (draft.digest, lacking):
            return []
        self._own = (draft.digest, lacking)
        return [LookUp(draft.position, draft.digest, draft.view, lacking.ids, lacking.depth, asked=False)]
