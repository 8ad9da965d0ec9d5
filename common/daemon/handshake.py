"""Compatibility of a device and a cloud, from their `Hello` messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

from common.answer.request import AnswerFailed, InternalFailure, RequestError
from common.process.log_lines import AnswerName, CodePlace
from proto.errors import ProtocolError
from proto.messages import Hello


def explain_mismatch(device: Hello, cloud: Hello) -> str | None:
    """Returns the reason why two sides can't answer together, None if they can.

    It says what to do. Models may differ. Different tokenizers would change the tokens' meaning. Scorers and
    embedding models scale the evidence that weighs the sides, so they must match.
    """
    if device.role != "device" or cloud.role != "cloud":
        return f"A {device.role} talks to a {cloud.role}: connect a device to a cloud."
    differences = []
    if (device.tokenizer, device.vocabulary) != (cloud.tokenizer, cloud.vocabulary):
        differences.append(
            f"the tokenizers differ (device: {device.model}, {device.vocabulary} tokens, {device.tokenizer[:12]}; "
            f"cloud: {cloud.model}, {cloud.vocabulary} tokens, {cloud.tokenizer[:12]})"
        )
    if device.scorer != cloud.scorer:
        differences.append(f"the scorers differ (device: {device.scorer}; cloud: {cloud.scorer})")
    if device.embedder != cloud.embedder:
        differences.append(f"the embedding models differ (device: {device.embedder}; cloud: {cloud.embedder})")
    for side in (device, cloud):
        if not proper_eos(side.eos, side.vocabulary):
            return f"The end-of-sequence ids of the {side.role}'s model must be increasing and below its vocabulary."
    if not differences:
        return None
    return f"The two sides can't answer together: {'; '.join(differences)}. Configure the same on both sides."


def proper_eos(ids: Sequence[int], vocabulary: int) -> bool:
    """Whether `ids` are increasing and below `vocabulary`."""
    return all(one < other for one, other in pairwise(ids)) and all(id_ < vocabulary for id_ in ids)


def changes(before: Hello, now: Hello) -> list[str]:
    """Returns changed fields of a returning cloud, which change running answers' distribution."""
    found = []
    if before.model != now.model:
        found.append("model")
    if before.library != now.library:
        found.append("library")
    return found


# --- failures
# Failures: a sentence for the user, a place in the code for the log, never an exception's text.

log = logging.getLogger(__name__)

ANSWER_FAILED = "The answer failed; the daemon's log says why."


def as_failure(
    error: Exception, sentence: str = ANSWER_FAILED, session: int | None = None
) -> AnswerFailed | RequestError:
    """Returns the failure that ends an answer because of `error`.

    Exceptions made for users keep their sentence. Otherwise the user gets `sentence`, and the log the type and
    place, but not the text, which may quote a prompt or document. `session` is the answer's number, if known.
    """
    if isinstance(error, AnswerFailed | RequestError):
        return error
    if isinstance(error, ProtocolError):  # of this side; a peer's are refused on arrival
        return AnswerFailed(f"A message of the answer can't be sent: {error.text}.")
    where = CodePlace.of(error)
    if session is None:
        log.error("an answer failed with %s%s", type(error).__name__, where)
    else:
        log.error("answer %s failed with %s%s", AnswerName.of(session), type(error).__name__, where)
    return InternalFailure(sentence)
