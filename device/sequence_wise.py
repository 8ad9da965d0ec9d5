"""Two whole answers, one of which is shown (the paper's DRDG/SW): the device's own and the cloud's."""

from __future__ import annotations

import logging
import threading
import time

from common.aggregation.sequences import Candidate, Chosen, choose
from common.runtime.reading import Retrieved
from common.runtime.recording import RecordingDrafting, candidate, question_evidence, received_candidate
from common.runtime.side import SideRuntime
from common.speculation.values import Commit
from device.active_request import ActiveRequest
from device.cloud_view import CloudView
from proto.errors import ProtocolError
from proto.messages import Cancel, Fetched, Generated

log = logging.getLogger(__name__)

LATE = "The cloud did not take part: its answer did not come in time."
MALFORMED = "The cloud did not take part: the answer that it sent can't be used."


class SequenceWise:
    """The observer of the device's own answer, and the exchange with the cloud.

    Nothing is shown before both answers are known, or the cloud's is given up.
    """

    def __init__(self, active: ActiveRequest, side: SideRuntime, cloud: CloudView) -> None:
        active.answer.show_to(self)
        self._active = active
        self._side = side
        self._view = cloud
        self._recording = RecordingDrafting(active.drafting)
        self._evidence = 0.0  # of the device's documents, known after retrieval
        self._tokens: list[int] = []
        self._own: Candidate | None = None
        self._cloud: Candidate | None = None
        self._awaited = True  # the cloud's answer
        self._chosen = False
        self._heard = time.monotonic()  # when the cloud was asked
        self._lock = threading.Lock()  # taken under the answer's, never around it

    # --- Observer of the device's own answer, under the answer's lock

    def committed(self, commit: Commit) -> bool:
        self._tokens.append(commit.token)
        return True

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("nobody takes a token of the device's own answer back")

    def ended(self, failure: Exception | None) -> None:
        if failure is not None or self._active.answer.session.finished is None:
            with self._lock:
                self._awaited, self._chosen = False, True
            self._active.ended(failure)
            return
        self._own = candidate(self._tokens, self._recording.log_probabilities, self._evidence)
        self._try()

    # --- Exchange

    def start(self, absence: str | None) -> None:
        active = self._active
        self._side.begin(active.answer, active.opening, self._recording, self._retrieved, self._view.decoded)
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Fetched | Generated, size: int) -> None:
        if not isinstance(message, Generated):
            return
        self._active.record.received_bytes += size
        opening = self._active.opening
        try:
            cloud = received_candidate(
                message, self._side.decoder.vocabulary, opening.max_tokens, frozenset(opening.eos)
            )
        except ProtocolError as error:
            log.warning("the cloud sent a malformed answer: %s", error)
            self._give_up(MALFORMED)
            return
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
        self._active.note(sentence)
        self._active.record.alone = True
        self._active.with_cloud = False
        self._try()

    def reconnected(self) -> None:
        if self._awaited:
            self._ask()

    def tick(self, now: float) -> None:
        """Only the device's own answer, once complete, waits for the cloud's."""
        if (
            self._own is not None
            and self._awaited
            and now - self._heard > self._view.silence(self._active.request.max_tokens)
        ):
            self._give_up(LATE)

    def end(self, failure: Exception | None) -> None:
        if not self._active.answer.over:
            self._active.answer.end(failure)
            return
        with self._lock:
            if self._chosen:
                return
            self._awaited, self._chosen = False, True
        self._active.ended(failure)

    # --- both answers

    def _ask(self) -> None:
        self._heard = time.monotonic()
        self._active.ready = False
        self._active.send(self._active.opening)

    def _give_up(self, sentence: str) -> None:
        self._active.send(Cancel(self._active.opening.session))
        self.without_cloud(sentence)

    def _retrieved(self, retrieved: Retrieved) -> None:
        self._active.record.device_titles = retrieved.titles
        self._active.record.prompt_tokens += retrieved.tokens
        self._evidence = question_evidence(self._side.scorer, retrieved.prompt)

    def _try(self) -> None:
        """Choose and show, once everything that will come is here."""
        with self._lock:
            if self._own is None or self._awaited or self._chosen:
                return
            self._chosen = True
        chosen = Chosen(self._own.tokens, 0.0) if self._cloud is None else choose(self._own, self._cloud)
        self._attribute(chosen, of_own=chosen.tokens == self._own.tokens)
        degraded = self._active.record.alone
        for position, token in enumerate(chosen.tokens):
            if not self._active.committed(Commit(position, token, degraded, chosen.cloud_share, None, {})):
                break
        self._active.ended(None)

    def _attribute(self, chosen: Chosen, of_own: bool) -> None:
        """The answer's tokens are the chosen side's, each with the shares that it had there."""
        outcome = self._active.answer.outcome
        if not of_own:
            outcome.shares = [()] * len(chosen.tokens)
        outcome.cloud_shares = [chosen.cloud_share] * len(chosen.tokens)
