"""Failures that are told to users."""

from __future__ import annotations

NO_PLACE = "There is no memory for the answer while others are under way."


class RequestError(ValueError):
    """The request can't be served as asked; the text is one sentence for the user.

    `field` names the offending part of the request ("prompt", "max_tokens", ...).
    """

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


class AnswerFailed(RuntimeError):
    """An answer that was begun can't be completed; the text is one sentence for the user."""


class InternalFailure(AnswerFailed):
    """An answer failed by a fault of this program or of what it runs on; the daemon's log says where."""


class NoPlace(AnswerFailed):
    """An answer turns out to need more memory than others leave it; there may be room `wait` seconds later."""

    def __init__(self, wait: float, text: str = NO_PLACE) -> None:
        super().__init__(text)
        self.wait = wait
