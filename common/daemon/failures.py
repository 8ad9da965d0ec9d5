"""Failures of an answer: a sentence for the user, a place in the code for the log, no exception's text for anyone."""

from __future__ import annotations

import logging

from common.answer.errors import AnswerFailed, InternalFailure, NoPlace, RequestError
from common.engine.kv.errors import KvWaitError
from common.process.log_lines import AnswerName, CodePlace
from common.scoring.worker import ScoringError
from proto.errors import ProtocolError

log = logging.getLogger(__name__)

RETRY = 5.0  # seconds until there may be memory that was waited for in vain
ANSWER_FAILED = "The answer failed; the daemon's log says why."


def as_failure(
    error: Exception, sentence: str = ANSWER_FAILED, session: int | None = None
) -> AnswerFailed | RequestError:
    """The failure that an answer ends with because of `error`; `session` is its number, where it is known.

    An exception that was made for users keeps its own sentence. For any other one the user is told `sentence`, and the
    log gets its type and the place that raised it, but not its text, which may quote a prompt or a document.
    """
    if isinstance(error, AnswerFailed | RequestError):
        return error
    if isinstance(error, KvWaitError):
        return NoPlace(RETRY, f"There was no memory for the answer: {error}. Ask again later, or have kv_bytes raised.")
    if isinstance(error, ScoringError):
        return AnswerFailed(str(error))
    if isinstance(error, ProtocolError):  # of this side's own; what a peer sends is refused where it comes in
        return AnswerFailed(f"A message of the answer can't be sent: {error.text}.")
    where = CodePlace.of(error)
    if session is None:
        log.error("an answer failed with %s%s", type(error).__name__, where)
    else:
        log.error("answer %s failed with %s%s", AnswerName.of(session), type(error).__name__, where)
    return InternalFailure(sentence)
