"""Sequence-wise aggregation, on the device, which shows either its own answer or the cloud's."""

from __future__ import annotations

import threading

from common.answer.attribution import of_both_sides
from common.answer.report import MethodReport
from common.answer.values import Commit
from common.answer.watch import Silence
from common.daemon.model_runtime import Start
from common.daemon.prompt_rows import PromptRows
from common.methods.aggregate.device_answer import DeviceAnswer
from common.methods.interface import DeviceContext
from common.methods.passages.sequence_wise.candidate import (
    RecordingDrafting,
    candidate,
    question_evidence,
    received_candidate,
)
from common.methods.passages.sequence_wise.choice import Candidate, Chosen, choose
from proto.messages import Cancel, Closed, Generated, Message, Ready

LATE = "The cloud did not take part: its answer did not come in time."


class SequenceWiseDevice:
    """Implements `DeviceHalf`, and is the observer of the device's own answer.

    Nothing is shown before both answers are known, or the cloud's is given up.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._device = DeviceAnswer(context, frozenset({"device"}), self)
        self._answer = self._device.answer
        self._recording = RecordingDrafting(self._device.drafting)
        self._evidence = 0.0  # of the device's documents, known after retrieval
        self._tokens: list[int] = []
        self._own: Candidate | None = None
        self._cloud: Candidate | None = None
        self._awaited = True  # the cloud's answer
        self._late = False  # it is waited for no longer than the device's own takes
        self._chosen = False
        self._silence = Silence()
        self._asked = 0  # times
        self._prompt_tokens = 0  # that the cloud says it reads
        self._lock = threading.Lock()  # taken under the answer's, never around it

    # --- Observer of the device's own answer, under the answer's lock

    def committed(self, commit: Commit) -> bool:
        self._tokens.append(commit.token)
        return True

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("nobody takes a token of the device's own answer back")

    def ended(self, failure: Exception | None) -> None:
        if failure is not None or self._answer.session.finished is None:
            with self._lock:
                self._awaited, self._chosen = False, True
            self._context.ended(failure)
            return
        self._own = candidate(self._tokens, self._recording.log_probabilities, self._evidence)
        self._try()

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._chosen

    @property
    def away(self) -> bool:
        return self._device.away

    @property
    def waiting(self) -> bool:
        return self._awaited

    def start(self, absence: str | None) -> None:
        context = self._context
        decoded, waited = context.cloud.decoded, context.record.waited
        start = Start(self._answer.part, context.opening, self._recording, decoded, self._retrieved, waited=waited)
        context.side.begin(start, lambda opening: context.side.retrieve(opening, context.scope))
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        if isinstance(message, Ready):
            self._prompt_tokens = message.prompt_tokens
        if not isinstance(message, Generated):
            return
        opening = self._context.opening
        vocabulary = self._context.side.decoder.vocabulary
        cloud = received_candidate(message, vocabulary, opening.max_tokens, frozenset(opening.eos))
        with self._lock:
            if not self._awaited:
                return
            self._awaited, self._cloud = False, cloud
        self._try()

    def without_cloud(self, sentence: str) -> None:
        with self._lock:
            if not self._awaited:
                return
            self._awaited = False
        self._context.note(sentence, absence=True)
        self._context.record.alone = True
        self._context.phase.leave()
        self._try()

    def reconnected(self) -> None:
        if self._awaited:
            self._ask()

    def tick(self, now: float) -> None:
        """Give the cloud's answer up when it is late and the device's own is complete."""
        most = self._context.request.max_tokens
        limits = self._context.cloud.limits(read=False, prompt_tokens=self._prompt_tokens, tokens=most)
        if self._silence.over(now, 0, self._asked, self._awaited, False, limits):
            self._late = True
        if self._late and self._own is not None and self._awaited:
            self._context.send(Cancel(self._context.opening.session))
            self.without_cloud(LATE)

    def end(self, failure: Exception | None) -> None:
        if not self._answer.over:
            self._answer.end(failure)
            return
        with self._lock:
            if self._chosen:
                return
            self._awaited, self._chosen = False, True
        self._context.ended(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        degraded = self._answer.session.counters.degraded
        return self._device.figures(closed, of_both_sides(self._context.record, self._answer.record, degraded, closed))

    # --- both answers

    def _ask(self) -> None:
        self._asked += 1
        self._context.phase.restart()
        self._context.send(self._context.opening)

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._device.retrieved(retrieved)
        self._evidence = question_evidence(self._context.side.scorer, retrieved.prompt)

    def _try(self) -> None:
        """Choose and show an answer, once the device's own is complete and the cloud's is here or given up."""
        with self._lock:
            if self._own is None or self._awaited or self._chosen:
                return
            self._chosen = True
        chosen = Chosen(self._own.tokens, 0.0) if self._cloud is None else choose(self._own, self._cloud)
        self._attribute(chosen, of_own=chosen.tokens == self._own.tokens)
        degraded = self._context.record.alone
        for position, token in enumerate(chosen.tokens):
            if not self._context.committed(Commit(position, token, degraded, chosen.cloud_share, None, {})):
                break
        self._context.ended(None)

    def _attribute(self, chosen: Chosen, of_own: bool) -> None:
        """Attribute all tokens to the cloud by its share of the answer; the device's shares hold for its own answer."""
        outcome = self._answer.record
        if not of_own:
            count = len(chosen.tokens)
            outcome.shares, outcome.accepted, outcome.expected = [()] * count, [(None, None)] * count, [None] * count
        outcome.cloud_shares = [chosen.cloud_share] * len(chosen.tokens)
