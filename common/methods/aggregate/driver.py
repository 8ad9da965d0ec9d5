"""A session for the daemon's threads."""

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
    """A session with its lock, engine part and clock."""

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
        """`observe_acceptance` gets the commits that both sides' drafts decided.

        `waited` gets the seconds of each wait for the other side, on the scheduler thread. `tenant` pays for look-ups:
        for the other side, and because of its drafts.
        """
        super().__init__(session.role, session, [engine], send, observer, recorder, preview)
        self.session = session
        self.part = ModelSeat(self, self._work, self._drawn, lambda: session.counters.late)
        self._observe_acceptance = observe_acceptance
        self._engine = engine
        self._tenant = tenant
        self.rows = 1  # of this side's documents
        self.room = 0  # tokens of branches in them
        self._watch = Watch(waited)

    # --- events, from any thread

    def receive(self, message: Message) -> None:
        """Process a message, on the link thread. Raises `ProtocolError` if it is malformed."""
        arrived = time.monotonic_ns()
        with self.lock:
            if self.recorder is not None:
                self.recorder.message("receive", message, arrived)
            if isinstance(message, Draft):
                self.record.remote_decode(message.decode_time)
            self.apply(lambda: self.session.received(message))

    @property
    def trips(self) -> float | None:
        """Round trips per rejected draft; None if branches are useless."""
        session = self.session
        if not self._both or session.away:
            return None
        if session.config.placement == "mirrored":
            return 0.5
        return float(session.aggregator != self.role)

    def poll(self, now: float, limits: WaitLimits, ahead: SpeculationLimits) -> bool:
        """Check the clock, on the scheduler thread. Returns whether patience has ended."""
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
        self.apply(self.session.out_of_patience)

    def without_documents(self) -> None:
        self.apply(lambda: self.session.without_documents(self.role))

    def rejoined(self, changed: bool = False) -> int:
        """Rejoin the cloud (`Session.rejoined`). Returns the position."""
        with self.lock:
            position = self.session.position
            self.apply(lambda: self.session.rejoined(changed))
            return position

    # --- the engine's part, under the lock

    def _work(self) -> DraftWork | None:
        return self.session.work

    def _drawn(self, work: DraftWork, drawn: Sequence[SideDraft], seconds: float, now: float) -> list[Action]:
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
        return len(self.session.config.participants) == 2

    def act(self, action: object) -> bool:
        if isinstance(action, LookUp):
            self._engine.on_model_thread(partial(self._look_up, action), self._tenant)
            return True
        if isinstance(action, Send) and isinstance(action.message, Target):
            return self._announce(action.message)
        if isinstance(action, Commit) and action.accepted and not action.degraded and self._both:
            self._observe_acceptance(action)
        return super().act(action) or self.role == "cloud"  # the cloud stays until the device is done

    def _announce(self, message: Target) -> bool:
        """Send decided tokens up to the answer's end, perhaps at a stop string."""
        tokens = message.tokens[: max(0, len(self.record.shares) - message.position)]
        return not tokens or super().act(Send(replace(message, tokens=tokens)))

    def _look_up(self, action: LookUp) -> None:
        """Runs on the engine's thread, which owns the mixtures."""
        if self.over:
            return
        try:
            payload = self.session.sampler.supply(action.view, action.ids, action.depth)
            self.apply(lambda: self.session.looked_up(action, payload))
        except Exception as error:
            self.end(error)


# --- setup


class AnswerSampler(SessionSampler, Drafter, Protocol):
    """Drafts and aggregates for one side of an answer."""


MakeSampler = Callable[[Side, Open, int], AnswerSampler]


def open_session(
    role: Side,
    request: Open,
    decoder: Decoder,
    estimates: Callable[[], Estimates],
    participants: frozenset[Side],
    paper: MakeSampler,
    sampler: AnswerSampler | None = None,
) -> tuple[Session, AnswerSampler]:
    """Build `role`'s session and sampler; `paper` makes the paper's sampler.

    None makes the request's `sampler`.

    Raises `ValueError` for a request that can't be served.
    """
    if not proper_eos(request.eos, decoder.vocabulary):
        raise ValueError("The end-of-sequence ids of an answer must be increasing and below the vocabulary.")
    sampler = sampler or make_sampler(role, request, decoder.vocabulary, paper)
    # The paper's sampler implies the paper's placement rule.
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
    """Build `role`'s sampler. Raises `ValueError`, one sentence, for incompatible options."""
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
        # A device that keeps its distributions must not reveal them by questions.
        hide_ids=request.placement == role == "device",
        logprobs=request.likeliest if role == "device" else 0,
    )
