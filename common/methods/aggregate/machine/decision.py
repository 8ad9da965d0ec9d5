"""The target of a position: decided from both sides' drafts, or from one side's when the other has no weight."""

from __future__ import annotations

from common.methods.aggregate.machine.state import SessionState
from common.methods.aggregate.machine.values import (
    Decided,
    LackingRemote,
    LocalDraft,
    RemoteDraft,
    SessionSampler,
    Verdict,
)
from common.sampling.certificate import has_documents
from proto.fields import OTHER, Side


class Decider:
    """Decides the first undecided position of `progress`; keeps track of sides that have no documents."""

    def __init__(self, role: Side, progress: SessionState, aggregation: SessionSampler) -> None:
        self.absent: frozenset[Side] = frozenset()  # sides that are known to have no documents for this question
        self._role: Side = role
        self._state = progress
        self._aggregation = aggregation

    @property
    def sole(self) -> Side | None:
        """The side that has all the weight (eta is 0 or 1), None while both may have some."""
        participants = self._state.config.participants
        if len(participants) == 1:
            return next(iter(participants))
        if "cloud" in self.absent:
            return "device"
        return "cloud" if "device" in self.absent else None

    def weigh(self, side: Side, evidence: float) -> None:
        """Take in a draft's evidence: a side without documents at one position has none for the whole question."""
        if not has_documents(evidence):
            self.absent |= {side}

    def decide(self, in_charge: bool, away: bool) -> tuple[Verdict | None, bool]:
        """The outcome for the position, and whether it is just the device's draft because the cloud is `away`.

        The outcome is None when a draft is missing or the other side decides. `in_charge`: this side decides, or both
        do.
        """
        mine, theirs = self._state.first_pair()
        other, sole = OTHER[self._role], self.sole
        share = float(sole == "cloud") if self.absent else None  # the cloud's share in a token of the sole side
        if sole == self._role:
            decides = in_charge or other not in self._state.config.participants
            return self._of_one(mine, share) if decides else None, False
        if theirs is None:
            return (self._of_one(mine, share), True) if away else (None, False)
        if not in_charge:
            return None, False
        if sole == other:
            return self._of_one(theirs, share), False
        if mine is None:
            return None, False
        views, evidence = (mine.known, theirs.known), (mine.evidence, theirs.evidence)
        if self._role == "cloud":
            views, evidence = views[::-1], evidence[::-1]
        position = self._state.position
        outcome = self._aggregation.aggregate(self._role, position, *views, evidence)
        if isinstance(outcome, LackingRemote) and away:
            return self._of_one(mine, share), True
        return outcome, False

    def _of_one(self, draft: LocalDraft | RemoteDraft | None, share: float | None) -> Decided | None:
        """The token of one side's draft, if it is here."""
        if draft is None:
            return None
        return Decided(draft.view.token, share, logprobs=self._aggregation.alone(draft.view))
