"""Aggregation of two drafts per token, on the cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from common.answer.driver import NullObserver
from common.answer.patience import Patience
from common.answer.recorder import Recorder, span_messages
from common.answer.report import contribution_messages, text_messages
from common.answer.request import read_own_options, unknown_session
from common.answer.values import Commit
from common.daemon.model_runtime import PromptRows, SecondReading, Start
from common.daemon.side import Scope
from common.engine.draw import Drafter
from common.methods.aggregate.drafts import ROOM
from common.methods.aggregate.driver import SessionDriver, SessionParts, open_session
from common.methods.aggregate.method import SpeculativeRequest
from common.methods.interface import CloudContext
from proto.framing import HEADER_LIMIT
from proto.messages import Closed, Draft, Error, Fetch, Message, Open, Ready, Resolve, Resolved, Side, Sync, Target

# --- cloud_answer
# The cloud's half of an answer that a `Session` decides, alone or with the device; several methods share it.

NEVER = float("inf")
TITLES_BYTES = HEADER_LIMIT - 2048  # for all titles of a `Ready`; the rest is for its other fields and their lengths


class CloudAnswer(NullObserver):
    """One session, from `Open` to `Closed`. Implements `CloudHalf`, and `Observer` of its answer.

    Failures are told to the device as an `Error`, which ends the session on both sides.
    """

    def __init__(self, request: Open, context: CloudContext, participants: frozenset[Side]) -> None:
        """Raises `ValueError` for a request that can't be served."""
        estimates = context.estimates
        parts = open_session("cloud", request, context.side.decoder, lambda: estimates.estimates, participants)
        self.request = request
        self.context = context
        self.slow = request.sampler == "paper"  # its drafts are whole distributions
        self.branches = 1  # prefixes of one decode step, at most
        self._drafting = self.drafter(parts)
        recorder = None
        if request.trace:
            alone = "device" not in participants
            recorder = Recorder("cloud", lambda: estimates.estimates, parts.session.aggregator, alone)
            recorder.message("receive", request)
        engine = context.side.decoding
        owner = context.owner
        self.answer = SessionDriver(parts.session, self.announce, self, self._judged, engine, recorder, owner=owner)
        self.began = self.heard = time.monotonic()  # `heard`: when the device was heard last
        self._titles: tuple[str, ...] = ()  # known after retrieval
        self._texts: tuple[str, ...] = ()  # of the documents
        self._second = SecondReading(partial(context.side.target.reread, peer=context.owner))
        self._position = 0

    def _judged(self, commit: Commit) -> None:
        self.context.estimates.observe_acceptance(commit.expected, commit.accepted)

    # --- for the methods

    @property
    def spare(self) -> int:
        """Tokens that the rows shall hold for branches."""
        return ROOM if self.branches > 1 else 0

    def drafter(self, parts: SessionParts) -> Drafter:
        """The sampler that draws this side's drafts."""
        return parts.drafting

    def retrieve(self, request: Open) -> PromptRows:
        """The rows of the answer. On the retrieval thread."""
        return self.context.side.retrieve(request, Scope(request.only))

    def announce(self, message: Message) -> None:
        """Send a message of the session."""
        self.context.send(message)

    def retrieved(self, retrieved: PromptRows) -> None:
        """Tell the device which documents this side has found. On the retrieval thread."""
        self._titles, self._texts = retrieved.titles, retrieved.texts
        self.answer.rows = len(retrieved.prompt.parts)
        self.answer.room = self.context.side.target.spare(self.request, retrieved, self.spare)
        self._second.behind(retrieved.apart, self.answer.record)
        ready = Ready(self.request.session, fitting(retrieved.titles), retrieved.tokens, retrieved.closest)
        if self.answer.recorder is not None:
            self.answer.recorder.message("send", ready)
        self.context.send(ready)

    # --- CloudHalf

    def begin(self) -> None:
        side = self.context.side
        decoded = partial(side.profiler.decoded, self.context.estimates)
        part, drafter, owner = self.answer.part, self._drafting, self.context.owner
        start = Start(part, self.request, drafter, decoded, self.retrieved, owner, self.context.waited, self.spare)
        side.begin(start, self._retrieve)

    def check(self, message: Message) -> None:
        """Refuse nothing: what can be told at once, the codec has told."""

    def receive(self, message: Message) -> None:
        """Ignore the message."""

    def tick(self, now: float, run_ahead: int) -> None:
        side, answer = self.context.side, self.answer
        drafts, row = min(self.request.run_ahead, run_ahead), answer.rows * side.decoding.row_seconds
        ahead = self.context.estimates.ahead(drafts, self.branches, answer.trips, row, answer.room, now)
        self.answer.poll(now, Patience(NEVER, NEVER), ahead)
        self._second.tick(now)

    def silent(self, now: float) -> float:
        """Seconds since the device was heard or a position was decided: answering alone needs no messages."""
        position = self.answer.session.position
        if position != self._position:
            self._position, self.heard = position, now
        return now - self.heard

    def given_up(self) -> Error:
        return unknown_session(self.request.session)

    def end(self) -> None:
        self.answer.end()
        self._second.stop()

    def finish(self, done: Callable[[], object]) -> None:
        self.answer.end()  # nothing changes any more
        tokens = self.answer.session.committed[: len(self.answer.record.shares)]
        self._second.begin(tokens, time.monotonic() - self.began, done)

    def closing(self) -> Iterator[Message]:
        session, outcome = self.answer.session, self.answer.record
        number = self.request.session
        yield from span_messages(number, self.answer.recorder)
        if outcome.apart:
            tokens = self.answer.session.committed[: len(outcome.shares)]
            shares, of_cloud = outcome.shares, outcome.cloud_shares
            yield from contribution_messages(number, len(self._titles), shares, of_cloud)
            yield from text_messages(number, self._texts, self.context.side.tokenizer.pieces(tokens), shares, of_cloud)
        yield Closed(
            number,
            session.counters.drafted,
            session.counters.accepted["cloud"],
            session.counters.rollbacks["cloud"],
            self.answer.part.preempted,
            session.counters.stale,
            session.counters.disagreements,
            session.counters.branches,
            session.counters.used,
        )

    def _retrieve(self, request: Open) -> PromptRows:
        """The rows of the answer, for which there is a place now that they are known. On the retrieval thread."""
        found = self.retrieve(request)
        self.context.reserve(self, self.context.side.target.kv_bytes(request, found, self.spare))
        return found

    # --- Observer, under the answer's lock

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self.context.failed(self, self.request.session, failure)


def fitting(titles: Sequence[str]) -> tuple[str, ...]:
    """`titles`, with long ones cut so that all fit into the header of a `Ready`."""
    longest = TITLES_BYTES // max(1, len(titles))
    return tuple(title.encode()[:longest].decode(errors="ignore") for title in titles)


# --- cloud_half


class AggregateCloud(CloudAnswer):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open):
            raise ValueError("Aggregation is opened by Open.")
        both: frozenset[Side] = frozenset({"device", "cloud"})
        super().__init__(request, context, both if request.sources == "both" else frozenset({"cloud"}))
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

    def retrieved(self, retrieved: PromptRows) -> None:
        super().retrieved(retrieved)
        if retrieved.prompt.absent and self.request.sources == "both":
            self.answer.end()  # the device decides alone, so there is nothing to read
