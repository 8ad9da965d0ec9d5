"""Requests for the values that a certificate lacks: asked of the other side, or looked up on this one."""

from __future__ import annotations

from common.answer.values import Send
from common.methods.aggregate.machine.state import SessionState
from common.methods.aggregate.machine.values import Action, LackingLocal, LackingRemote, LookUp, SessionSampler
from proto.messages import Resolve, Resolved

Question = tuple[int, LackingRemote]  # digest of the prefix, what is lacking after it

MOST_LOOK_UPS = 4  # for the other side at a time; a question beyond is dropped, and repeated after a `Sync`


class Questions:
    """Asks once for the values that a certificate lacks; again after `forget`, or when others are lacking."""

    def __init__(self, progress: SessionState, aggregation: SessionSampler) -> None:
        self.count = 0  # different questions that the other side was asked
        self._state = progress
        self._aggregation = aggregation
        self._latest: Question | None = None
        self._pending = False  # the latest question was asked and not forgotten
        self._awaited = False  # nor answered
        self._contested = -1  # the last position whose certificate failed
        self._own: tuple[int, LackingLocal] | None = None  # digest of the prefix, what is being looked up for this side
        self._others = 0  # look-ups for the other side that are under way

    def ask(self, missing: LackingRemote | LackingLocal) -> list[Action]:
        """Ask for `missing`, which the certificate of the first undecided position lacks."""
        progress, position = self._state, self._state.position
        if self._contested != position:
            progress.counters.certificate_failures += 1
        self._contested = position
        if isinstance(missing, LackingLocal):
            return self._look_up(missing)
        digest = progress.prefix.digest(position)
        if self._latest != (digest, missing):
            self.count += 1
        elif self._pending:
            return []
        self._latest, self._pending, self._awaited = (digest, missing), True, True
        return [Send(Resolve(progress.config.session, position, digest, missing.ids, missing.depth))]

    def answered(self, answer: Resolved) -> LackingRemote | None:
        """The latest question, if a message answers it and is the first to do so since it was asked."""
        if not self._awaited or self._latest is None:
            return None
        digest, missing = self._latest
        if (answer.position, answer.digest, answer.depth) != (self._state.position, digest, missing.depth):
            return None
        self._awaited = False
        return missing

    def reply(self, question: Resolve, shared: bool) -> list[Action]:
        """Look up what the other side asks of a draft, if `shared`. Raises `ProtocolError` for a malformed question."""
        draft = self._state.local.find(question.position, question.digest)
        if draft is None or not shared or self._others >= MOST_LOOK_UPS:
            self._state.counters.stale += 1
            return []
        self._aggregation.check_resolve(question.ids, question.depth)
        self._others += 1
        return [LookUp(draft.position, draft.digest, draft.view, question.ids, question.depth, asked=True)]

    def looked_up(self, look_up: LookUp, payload: bytes) -> list[Action]:
        """Take in the result of a look-up: reply to the other side, or complete this side's own draft."""
        position, digest, depth = look_up.position, look_up.digest, look_up.depth
        if look_up.asked:
            self._others -= 1
            return [Send(Resolved(self._state.config.session, position, digest, depth, payload))]
        self._own = None
        draft = self._state.local.find(position, digest)
        if draft is not None:
            view = self._aggregation.complete(draft.known, position, look_up.ids, depth, payload)
            self._state.local.complete(position, digest, view)
        return []

    def forget(self) -> None:
        """Let the latest question be asked again: it or its answer may be lost."""
        self._pending = False

    def _look_up(self, lacking: LackingLocal) -> list[Action]:
        draft = self._state.local.first()
        if draft is None or self._own == (draft.digest, lacking):
            return []
        self._own = (draft.digest, lacking)
        return [LookUp(draft.position, draft.digest, draft.view, lacking.ids, lacking.depth, asked=False)]
