"""Aggregation of two drafts per token, on the cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from common.answer.patience import WaitLimits
from common.answer.request import read_own_options
from common.answer.values import Commit
from common.daemon.model_runtime import PromptRows, SecondReading
from common.methods.aggregate.drafts import ROOM
from common.methods.aggregate.driver import MakeSampler, SessionDriver, open_session
from common.methods.aggregate.method import SpeculativeRequest
from common.methods.halves import CloudPart
from common.methods.interface import CloudContext
from proto.messages import Closed, Draft, Fetch, Message, Open, Resolve, Resolved, Side, Sync, Target

FOREVER: Final = WaitLimits(float("inf"), float("inf"))


class CloudAnswer(CloudPart):
    """The cloud's half of a `Session`; a base for several methods."""

    answer: SessionDriver

    def __init__(self, request: Open, context: CloudContext, participants: frozenset[Side], paper: MakeSampler) -> None:
        """Raises `ValueError` for a request that can't be served."""
        super().__init__(request, context)
        estimates, side = context.estimates, context.side
        session, self.drafter = open_session(
            "cloud", request, side.decoder, lambda: estimates.estimates, participants, paper
        )
        self.slow = request.sampler == "paper"  # the paper's drafts are whole distributions
        self.branches = 1  # most prefixes of one decode step
        recorder = self.recorder(session.aggregator, "device" not in participants)
        judged, tenant = self._judged, context.tenant
        self.answer = SessionDriver(session, self.announce, self, judged, side.decoding, recorder, tenant=tenant)
        self.part = self.answer.part
        self._second = SecondReading(partial(side.target.reread, tenant=tenant))

    def _judged(self, commit: Commit) -> None:
        self.context.estimates.observe_acceptance(commit.expected, commit.accepted)

    # --- for the methods

    @property
    def decided(self) -> Sequence[int]:
        return self.answer.session.committed

    @property
    def spare(self) -> int:
        return ROOM if self.branches > 1 else 0

    def announce(self, message: Message) -> None:
        self.context.send(message)

    def retrieved(self, rows: PromptRows) -> None:
        self.answer.rows = len(rows.prompt.parts)
        self.answer.room = self.context.side.target.spare(self.request, rows, self.spare)
        self._second.behind(rows.apart, self.answer.record)
        super().retrieved(rows)

    def closed(self) -> Closed:
        counters = self.answer.session.counters
        return Closed(
            self.request.session,
            counters.drafted,
            counters.accepted["cloud"],
            counters.rollbacks["cloud"],
            self.part.preempted,
            counters.stale,
            counters.disagreements,
            counters.branches,
            counters.used,
        )

    # --- CloudHalf

    def tick(self, now: float, run_ahead: int) -> None:
        side, answer = self.context.side, self.answer
        drafts, row = min(self.request.run_ahead, run_ahead), answer.rows * side.decoding.row_seconds
        ahead = self.context.estimates.ahead(drafts, self.branches, answer.trips, row, answer.room, now)
        answer.poll(now, FOREVER, ahead)
        if self._second.going:
            self._second.tick(now)

    def end(self) -> None:
        self.answer.end()
        self._second.stop()

    def finish(self, done: Callable[[], object]) -> None:
        self.answer.end()
        tokens = self.decided[: len(self.answer.record.shares)]
        self._second.begin(tokens, time.monotonic() - self.began, done)


class AggregateCloud(CloudAnswer):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext, paper: MakeSampler) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open):
            raise ValueError("Aggregation is opened by Open.")
        both: frozenset[Side] = frozenset({"device", "cloud"})
        super().__init__(request, context, both if request.sources == "both" else frozenset({"cloud"}), paper)
        if request.sources == "both" and request.run_ahead > 1 and request.sampler == "race":
            wanted = read_own_options(SpeculativeRequest, request).branches
            self.branches = min(context.side.settings.branches, wanted)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Draft | Target | Resolve | Resolved | Sync):
            return
        self.heard = time.monotonic()
        if isinstance(message, Draft):
            self.context.estimates.remote_decoded(message.decode_time / 1e6)
        self.answer.receive(message)

    def retrieved(self, rows: PromptRows) -> None:
        super().retrieved(rows)
        if rows.prompt.absent and self.request.sources == "both":
            self.answer.end()  # the device decides alone
