"""Failures of an answer: a sentence for the user, a place in the code for the log, no exception's text for anyone."""

from __future__ import annotations

import logging
import traceback

from common.runtime.errors import AnswerFailed, RequestError
from common.scoring.worker import ScoringError

log = logging.getLogger(__name__)

ANSWER_FAILED = "The answer failed; the daemon's log says why."


def as_failure(error: Exception, sentence: str = ANSWER_FAILED) -> AnswerFailed | RequestError:
    """The failure that an answer ends with because of `error`.

    An exception that was made for users keeps its own sentence. For any other one the user is told `sentence`, and the
    log gets its type and the place that raised it, but not its text, which may quote a prompt or a document.
    """
    if isinstance(error, AnswerFailed | RequestError):
        return error
    if isinstance(error, ScoringError):
        return AnswerFailed(str(error))
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("an answer failed with %s\n%s", type(error).__name__, where)
    return AnswerFailed(sentence)
