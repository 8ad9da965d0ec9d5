"""Sequence-wise aggregation: the device chooses between both sides' own answers."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.patience import ProgressTimeout
from common.answer.report import MethodReport, attribute_to_both
from common.answer.values import Commit
from common.daemon.model_runtime import PromptRows
from common.engine.draw import Drafter, ListedView
from common.engine.jobs import DecodeRequest, DocumentScorer, Prompt
from common.methods.aggregate.cloud import CloudAnswer
from common.methods.aggregate.device import DeviceAnswer
from common.methods.interface import CloudContext, DeviceContext
from common.methods.paper.sampler import make_paper_sampler
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.mixture import evidence_of
from common.sampling.race import Found, Race
from proto.errors import malformed
from proto.messages import Cancel, Closed, Fetch, Generated, Message, Open, Ready

# --- choice
# Sequence-wise aggregation (DRDG/SW): the choice between two whole answers.
#
# RAG-Sequence (Lewis et al. 2020) with "fast decoding": an answer y has the mass p(y) = Σ_s η^s Π_t p^s(y_t | y_<t),
# over the sides s that generated y. η depends only on the question (Appendix A.1 before the first token).


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """One side's answer, its summed log-probability, and log h of its documents."""

    tokens: tuple[int, ...]
    log_probability: float
    evidence: float


@dataclass(frozen=True, slots=True)
class ChosenAnswer:
    """The answer with the cloud's share: 0 or 1 unless both agree."""

    tokens: tuple[int, ...]
    cloud_share: float


def choose(device: SideAnswer, cloud: SideAnswer) -> ChosenAnswer:
    """The answer with the larger log η + Σ log p; the device's in a tie.

    Identical answers' masses add up.
    """
    of_device = device.evidence + device.log_probability  # up to a common constant
    of_cloud = cloud.evidence + cloud.log_probability
    if device.tokens == cloud.tokens:
        return ChosenAnswer(device.tokens, 1.0 / (1.0 + math.exp(min(of_device - of_cloud, 700.0))))
    if of_cloud > of_device:
        return ChosenAnswer(cloud.tokens, 1.0)
    return ChosenAnswer(device.tokens, 0.0)


# --- candidate

SUM_TOLERANCE = 1e-3  # excess of a probability over 1, by rounding


class RecordingDrafting:
    """Draws like `drafter`, and records log-probabilities, for one-sided answers.

    They are from before temperature, so independent of the sampling.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.log_probabilities: list[float] = []  # by position
        self._drafter = drafter

    def race(self, position: int) -> Race | None:
        return self._drafter.race(position)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> ListedView:
        view = self._drafter.drafted(position, probabilities, found)
        self.log_probabilities.append(math.log(float(probabilities[view.token])))
        return view


def question_evidence(scorer: DocumentScorer, prompt: Prompt) -> float:
    """log h of a side's documents before the first token, as float32; `NO_EVIDENCE` without."""
    if prompt.absent:
        return NO_EVIDENCE
    return evidence_of(scorer.begin(prompt.query, prompt.documents, prompt.similarity).scores([]))


def make_side_answer(tokens: Sequence[int], log_probabilities: Sequence[float], evidence: float) -> SideAnswer:
    """This side's candidate, with float32 log-probabilities as in `generated`."""
    return SideAnswer(tuple(tokens), _sum(np.asarray(log_probabilities[: len(tokens)], dtype="<f4")), evidence)


def generated(session: int, tokens: Sequence[int], log_probabilities: Sequence[float], evidence: float) -> Generated:
    payload = np.asarray(log_probabilities[: len(tokens)], dtype="<f4").tobytes()
    return Generated(session, evidence, tuple(tokens), payload)


def read_side_answer(message: Generated, vocabulary: int, most_tokens: int, eos: frozenset[int]) -> SideAnswer:
    """Decode the other candidate. Raises `ProtocolError` for an impossible answer."""
    tokens = message.tokens
    if not 1 <= len(tokens) <= most_tokens or max(tokens) >= vocabulary:
        raise malformed(f"a generated answer must have 1 to {most_tokens} tokens of the vocabulary")
    if eos.intersection(tokens[:-1]) or (len(tokens) < most_tokens and tokens[-1] not in eos):
        raise malformed("a generated answer must end at its end-of-sequence token, or at its full length")
    if len(message.payload) != 4 * len(tokens):
        raise malformed("a generated answer must have one log-probability per token")
    values = np.frombuffer(message.payload, dtype="<f4")
    # NaN fails the comparison
    if not (np.isfinite(values) & (values <= SUM_TOLERANCE)).all():
        raise malformed("log-probabilities must be finite and not above 0")
    return SideAnswer(tokens, _sum(values), message.evidence)


def _sum(log_probabilities: NDArray[np.float32]) -> float:
    return math.fsum(log_probabilities.tolist())


# --- cloud_half


class SequenceWiseCloud(CloudAnswer):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError("Sequence-wise aggregation is opened with sources 'cloud': each side answers by itself.")
        super().__init__(request, context, frozenset({"cloud"}), make_paper_sampler)
        self.drafter = self._recording = RecordingDrafting(self.drafter)
        self._evidence = NO_EVIDENCE  # known after retrieval
        self._tokens: list[int] = []

    def announce(self, message: Message) -> None:
        """Send nothing: the whole answer is sent at its end."""

    def retrieved(self, rows: PromptRows) -> None:
        self._evidence = question_evidence(self.context.side.scorer, rows.prompt)
        super().retrieved(rows)

    def committed(self, commit: Commit) -> bool:
        self._tokens.append(commit.token)
        if commit.token in self.request.eos or len(self._tokens) == self.request.max_tokens:
            noted = self._recording.log_probabilities
            self.context.send(generated(self.request.session, self._tokens, noted, self._evidence))
        return True


# --- device_half

LATE = "The cloud did not take part: its answer did not come in time."


class SequenceWiseDevice(DeviceAnswer):
    """Implements `DeviceHalf`, and observes the device's own answer.

    It shows nothing before both answers are known, or the cloud's is given up.
    """

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context, frozenset({"device"}), make_paper_sampler, self)
        self._recording = RecordingDrafting(self.drafter)
        self._evidence = 0.0  # known after retrieval
        self._tokens: list[int] = []
        self._own: SideAnswer | None = None
        self._cloud: SideAnswer | None = None
        self._awaited = True  # the cloud's answer
        self._late = False  # wait no longer than for the own answer
        self._chosen = False
        self._silence = ProgressTimeout()
        self._asked = 0  # times
        self._lock = threading.Lock()  # taken under the answer's, never around it

    # --- Observer of the device's own answer, under the answer's lock

    def committed(self, commit: Commit) -> bool:
        self._tokens.append(commit.token)
        return True

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("nobody takes a token of the device's own answer back")

    def ended(self, failure: Exception | None) -> None:
        if failure is not None or self.answer.session.finished is None:
            with self._lock:
                self._awaited, self._chosen = False, True
            self.context.ended(failure)
            return
        self._own = make_side_answer(self._tokens, self._recording.log_probabilities, self._evidence)
        self._try()

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._chosen

    @property
    def waiting(self) -> bool:
        return self._awaited

    def start(self, absence: str | None) -> None:
        context, part = self.context, self.answer.part
        request = DecodeRequest(part, self._recording, context.cloud.decoded, asker=context.record.asker)
        context.side.begin(request, context.opening, self.find, self.retrieved)
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        if isinstance(message, Ready):
            self.ready(message)
        if not isinstance(message, Generated):
            return
        opening = self.context.opening
        vocabulary = self.context.side.decoder.vocabulary
        cloud = read_side_answer(message, vocabulary, opening.max_tokens, frozenset(opening.eos))
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
        self.context.note(sentence, absence=True)
        self.context.record.alone = True
        self.context.phase.leave()
        self._try()

    def reconnected(self) -> None:
        if self._awaited:
            self._ask()

    def tick(self, now: float) -> None:
        """Give up on a late cloud once the own answer is complete."""
        most = self.context.request.max_tokens
        limits = self.context.cloud.limits(read=False, prompt_tokens=self.prompt_tokens or 0, tokens=most)
        if self._silence.over(now, 0, self._asked, self._awaited, False, limits):
            self._late = True
        if self._late and self._own is not None and self._awaited:
            self.context.send(Cancel(self.context.opening.session))
            self.without_cloud(LATE)

    def end(self, failure: Exception | None) -> None:
        if not self.answer.over:
            self.answer.end(failure)
            return
        with self._lock:
            if self._chosen:
                return
            self._awaited, self._chosen = False, True
        self.context.ended(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        degraded = self.answer.session.counters.degraded
        return self.figures(closed, attribute_to_both(self.context.record, self.answer.record, degraded, closed))

    # --- both answers

    def _ask(self) -> None:
        self._asked += 1
        self.context.phase.restart()
        self.open()

    def retrieved(self, rows: PromptRows) -> None:
        super().retrieved(rows)
        self._evidence = question_evidence(self.context.side.scorer, rows.prompt)

    def _try(self) -> None:
        with self._lock:
            if self._own is None or self._awaited or self._chosen:
                return
            self._chosen = True
        chosen = ChosenAnswer(self._own.tokens, 0.0) if self._cloud is None else choose(self._own, self._cloud)
        self._attribute(chosen, of_own=chosen.tokens == self._own.tokens)
        degraded = self.context.record.alone
        for position, token in enumerate(chosen.tokens):
            if not self.context.committed(Commit(position, token, degraded, chosen.cloud_share, None, {})):
                break
        self.context.ended(None)

    def _attribute(self, chosen: ChosenAnswer, of_own: bool) -> None:
        """Shares of the device's documents apply to its own answer only."""
        outcome = self.answer.record
        if not of_own:
            count = len(chosen.tokens)
            outcome.shares, outcome.accepted, outcome.expected = [()] * count, [(None, None)] * count, [None] * count
        outcome.cloud_shares = [chosen.cloud_share] * len(chosen.tokens)
