"""Failures of an answer: the user gets a sentence, the log where it happened, nobody the text of an exception."""

from __future__ import annotations

import logging
import traceback

from common.runtime.errors import AnswerFailed, RequestError
from common.scoring.worker import ScoringError

log = logging.getLogger(__name__)

ANSWER_FAILED = "The answer failed; the daemon's log says why."


def as_failure(error: Exception, sentence: str = ANSWER_FAILED) -> AnswerFailed | RequestError:
    """The failure that an answer ends with because of `error`.

    An exception that was made for users keeps its own sentence. Of any other one the log gets its type and where it
    was raised, since its text may quote a prompt or a document, and the user is told `sentence`.
    """
    if isinstance(error, AnswerFailed | RequestError):
        return error
    if isinstance(error, ScoringError):
        return AnswerFailed(str(error))
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("an answer failed with %s\n%s", type(error).__name__, where)
    return AnswerFailed(sentence)
