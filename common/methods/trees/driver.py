"""The state machine of an answer by trees as the threads of two models share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.answer.driver import Driver, Engine, Observer, Part, Preview
from common.answer.recorder import Recorder
from common.answer.values import Commit, Drawn, TreeWork
from common.methods.trees.history import TreeHistory
from common.methods.trees.machine.rounds import TreeRounds
from proto.messages import Message


class TreeDriver(Driver):
    """Both models' parts in one answer: `drafter` and `verifier` are the clients of the threads that run them."""

    def __init__(
        self,
        rounds: TreeRounds,
        history: TreeHistory,
        drafting: Engine | None,
        verifying: Engine,
        observer: Observer,
        recorder: Recorder | None = None,
        preview: Preview | None = None,
    ) -> None:
        """Without `drafting` nothing is drafted."""
        engines = [verifying] if drafting is None else [verifying, drafting]
        super().__init__("device", rounds, engines, _nowhere, observer, recorder, preview)
        self.rounds = rounds
        self.history = history
        self.drafter = Part(self, rounds.draft, self._drafted)
        self.verifier = Part(self, self._verify, self._verified)
        self._asked: int | None = None  # epoch of the verification that was asked for last

    # --- under the lock

    def _drafted(self, work: TreeWork, drawn: Sequence[Drawn], seconds: float, now: float) -> None:
        if work.path or work.tokens:  # else it has read the question, too
            self.history.times.drafted(seconds)
        view: Any = drawn[0].view
        self.rounds.drafted(work, view.candidates)
        if self._preview is not None:
            self._preview.show()
        if self.rounds.draft() is None:
            self.wake()

    def _verify(self) -> TreeWork | None:
        found = self.rounds.verify()
        if found is not None and found.epoch != self._asked:
            self._asked = found.epoch
            self.wake()  # drafting may go on
        return found

    def _verified(self, work: TreeWork, drawn: Sequence[Drawn], seconds: float, now: float) -> Sequence[object]:
        if work.path:  # else it has read the question, too
            self.history.times.verified(len(work.tokens), seconds)
        outcome = self.rounds.verified(work, [draft.view.token for draft in drawn])
        decided = [action for action in outcome.actions if isinstance(action, Commit)]
        for commit, place in zip(decided, outcome.places, strict=False):
            self.record.drafted(commit.position, [drawn[place].mixing])
        return outcome.actions


def _nowhere(message: Message) -> None:
    """Send nothing: the answer is one device's."""
