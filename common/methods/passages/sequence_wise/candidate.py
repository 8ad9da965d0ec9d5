"""One side's own answer as a candidate for sequence-wise aggregation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from common.engine.sampling import Drafter, ListedView
from common.engine.scorer import DocumentScorer
from common.engine.sequences import Prompt
from common.methods.passages.sequence_wise.choice import Candidate
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.drafting import Race
from common.sampling.fastest import Found
from common.sampling.mixture import evidence_of
from proto.errors import malformed
from proto.messages import Generated

SUM_TOLERANCE = 1e-3  # a probability may exceed 1 by the rounding of a sum


class RecordingDrafting:
    """Draws as `drafter` does, and notes the log-probability of every token. For answers that one side decides alone.

    The probability is taken from the mixture before temperature, so it does not depend on how tokens are sampled.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.log_probabilities: list[float] = []  # by position
        self._drafter = drafter

    def race(self, position: int) -> Race | None:
        """The race of `drafter` at `position`."""
        return self._drafter.race(position)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> ListedView:
        view = self._drafter.drafted(position, probabilities, found)
        self.log_probabilities.append(math.log(float(probabilities[view.token])))
        return view


def question_evidence(scorer: DocumentScorer, prompt: Prompt) -> float:
    """log h of a side's documents before the first token, rounded to float32; `NO_EVIDENCE` without documents."""
    if prompt.absent:
        return NO_EVIDENCE
    return evidence_of(scorer.begin(prompt.query, prompt.documents, prompt.similarity).scores([]))


def candidate(tokens: Sequence[int], log_probabilities: Sequence[float], evidence: float) -> Candidate:
    """This side's own answer as a candidate; its log-probabilities are rounded to float32 as in `generated`."""
    return Candidate(tuple(tokens), _sum(np.asarray(log_probabilities[: len(tokens)], dtype="<f4")), evidence)


def generated(session: int, tokens: Sequence[int], log_probabilities: Sequence[float], evidence: float) -> Generated:
    """The message that carries a whole answer."""
    payload = np.asarray(log_probabilities[: len(tokens)], dtype="<f4").tobytes()
    return Generated(session, evidence, tuple(tokens), payload)


def received_candidate(message: Generated, vocabulary: int, most_tokens: int, eos: frozenset[int]) -> Candidate:
    """The other side's answer as a candidate. Raises `ProtocolError` for an answer that no side generates."""
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
    return Candidate(tokens, _sum(values), message.evidence)


def _sum(log_probabilities: NDArray[np.float32]) -> float:
    return math.fsum(log_probabilities.tolist())
