"""A session as the daemon's threads share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from common.answer.driver import Driver, ModelSeat, ModelThread, Observer, Preview
from common.answer.patience import WaitLimits, Watch
from common.answer.recorder import Recorder
from common.answer.values import Commit, Send, SideDraft
from common.daemon.handshake import proper_eos
from common.engine.draw import Drafter
from common.engine.model.decoder import Decoder
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import Estimates, placement_policy
from common.methods.aggregate.drafts import DraftWork
from common.methods.aggregate.session import Action, LookUp, Session, SessionConfig, SessionSampler
from common.sampling.race import RaceSampler
from proto.messages import Draft, Message, Open, Side, Target


class SessionDriver(Driver):
    """A session with its lock, its part of the engine's work, and its clock."""

    def __init__(
        self,
        session: Session,
        send: Callable[[Message], object],
        observer: Observer,
        observe_acceptance: Callable[[Commit], None],
        engine: ModelThread,
        recorder: Recorder | None = None,
        waited: Callable[[float], object] = lambda seconds: None,
        preview: Preview | None = None,
        tenant: Hashable = None,
    ) -> None:
        """`observe_acceptance` is called with the commits that were decided between both sides' drafts; `waited` is
        told what the other side was waited for, in seconds, on the scheduler thread. `tenant` is charged for values
        that are looked up: those that the other side asks for, and those that its drafts leave open on this one.
        """
        super().__init__(session.role, session, [engine], send, observer, recorder, preview)
        self.session = session
        self.part = ModelSeat(self, self._work, self._drawn, lambda: session.counters.late)
        self._observe_acceptance = observe_acceptance
        self._engine = engine
        self._tenant = tenant
        self.rows = 1  # of this side's documents
        self.room = 0  # tokens of branches that they hold
        self._watch = Watch(waited)

    # --- events, from any thread

    def receive(self, message: Message) -> None:
        """Take in a message, on the link thread. Raises `ProtocolError` when it is malformed."""
        arrived = time.monotonic_ns()
        with self.lock:
            if self.recorder is not None:
                self.recorder.message("receive", message, arrived)
            if isinstance(message, Draft):
                self.record.remote_decode(message.decode_time)
            self.apply(lambda: self.session.received(message))

    @property
    def trips(self) -> float | None:
        """Round trips that a rejection of this side's drafts waits for; None where there is nothing to branch for."""
        session = self.session
        if not self._both or session.away:
            return None
        if session.config.placement == "mirrored":
            return 0.5
        return float(session.aggregator != self.role)

    def poll(self, now: float, limits: WaitLimits, ahead: SpeculationLimits) -> bool:
        """Look at the clock, on the scheduler thread, from time to time. Returns whether patience has ended."""
        with self.lock:
            if self.over:
                return False
            session = self.session
            again, ended = self._watch.look(now, session, limits)
            actions = (session.stalled() if again else []) + (session.out_of_patience() if ended else [])
            if actions or ahead != session.ahead:
                session.ahead = ahead
                self.carry_out(actions)
            return ended

    def go_alone(self) -> None:
        """Carry on without the cloud, which is known to be away."""
        self.apply(self.session.out_of_patience)

    def without_documents(self) -> None:
        """Note that this side has retrieved no documents."""
        self.apply(lambda: self.session.without_documents(self.role))

    def rejoined(self, changed: bool = False) -> int:
        """Tell the reconnected cloud where this answer stands; see `Session.rejoined`. Returns the position."""
        with self.lock:
            position = self.session.position
            self.apply(lambda: self.session.rejoined(changed))
            return position

    # --- the engine's part, under the lock

    def _work(self) -> DraftWork | None:
        return self.session.work

    def _drawn(self, work: DraftWork, drawn: Sequence[SideDraft], seconds: float, now: float) -> list[Action]:
        """Hand the drafts of a step to the session."""
        actions: list[Action] = []
        for (position, digest), draft in zip(work.prefixes, drawn, strict=True):
            draft.position, draft.digest, draft.decode_time = position, digest, int(seconds * 1e6)
            actions += self.session.drafted(draft)
        if self.recorder is not None:
            began, ended = int((now - seconds) * 1e9), int(now * 1e9)
            for position, _ in work.prefixes[1:]:
                self.recorder.step("branched", position, work.epoch, began, ended)
        return actions

    # --- actions, under the lock

    @property
    def _both(self) -> bool:
        """Whether both sides draft: alone, one accepts whatever it drafts."""
        return len(self.session.config.participants) == 2

    def act(self, action: object) -> bool:
        if isinstance(action, LookUp):
            self._engine.on_model_thread(partial(self._look_up, action), self._tenant)
            return True
        if isinstance(action, Send) and isinstance(action.message, Target):
            return self._announce(action.message)
        if isinstance(action, Commit) and action.accepted and not action.degraded and self._both:
            self._observe_acceptance(action)
        return super().act(action) or self.role == "cloud"  # which stays until the device is done

    def _announce(self, message: Target) -> bool:
        """Send decided tokens, but for those behind the end of the answer: a stop string may be met before them."""
        tokens = message.tokens[: max(0, len(self.record.shares) - message.position)]
        return not tokens or super().act(Send(replace(message, tokens=tokens)))

    def _look_up(self, action: LookUp) -> None:
        """Compute what is asked, on the engine's thread, which owns the mixtures."""
        if self.over:
            return
        try:
            payload = self.session.sampler.supply(action.view, action.ids, action.depth)
            self.apply(lambda: self.session.looked_up(action, payload))
        except Exception as error:
            self.end(error)


# --- setup
# Construction of a session and its sampler from the message that opened it, the same on both sides.


class AnswerSampler(SessionSampler, Drafter, Protocol):
    """A sampler of one side of an answer: it drafts, and a session aggregates by it."""


MakeSampler = Callable[[Side, Open, int], AnswerSampler]


def open_session(
    role: Side,
    request: Open,
    decoder: Decoder,
    estimates: Callable[[], Estimates],
    participants: frozenset[Side],
    paper: MakeSampler,
) -> tuple[Session, AnswerSampler]:
    """Build `role`'s session of the answer that `request` describes, and its sampler; `paper` makes that of the paper.

    Raises `ValueError` for what can't be served.
    """
    if not proper_eos(request.eos, decoder.vocabulary):
        raise ValueError("The end-of-sequence ids of an answer must be increasing and below the vocabulary.")
    sampler = make_sampler(role, request, decoder.vocabulary, paper)
    # The paper's sampler comes with the paper's rule of placement.
    published = request.sampler == "paper"
    policy = placement_policy(request.placement, request.seed, estimates, role, published, request.first)
    config = SessionConfig(
        request.session,
        request.placement,
        frozenset(request.eos),
        request.max_tokens,
        decoder.vocabulary,
        participants,
    )
    return Session(role, config, sampler, policy, SpeculationLimits(request.run_ahead)), sampler


def make_sampler(role: Side, request: Open, vocabulary: int, paper: MakeSampler) -> AnswerSampler:
    """The sampler of `role` for one answer; `paper` makes that of the paper.

    Raises `ValueError`, one sentence, for options that don't go together.
    """
    if request.sampler != "race":
        return paper(role, request, vocabulary)
    if request.codec != "race":
        raise ValueError(f"the race sampler sends codec 'race', not {request.codec!r}")
    return RaceSampler(
        request.seed,
        request.temperature,
        request.entries,
        vocabulary,
        request.likeliest,
        exact=request.exact,
        # If the device keeps its distributions to itself, its questions must not reveal them either.
        hide_ids=request.placement == role == "device",
        logprobs=request.likeliest if role == "device" else 0,
    )
