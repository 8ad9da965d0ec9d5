"""Checks of a request against this device's settings, before it is served."""

from __future__ import annotations

from common.answer.request import PRIVACY_LEVELS, Request, RequestError
from common.methods.catalog import METHODS
from common.methods.interface import Method, check_documents
from device.settings import DeviceSettings
from proto.messages import LONGEST_QUESTION


def check(request: Request, settings: DeviceSettings) -> Method:
    """The method that serves `request`. Raises `RequestError`, one sentence that names the field."""
    method = METHODS.get(request.method)
    if method is None:
        raise RequestError(f"There is no method {request.method!r}; there are {', '.join(METHODS)}.", "method")
    if not request.question.strip():
        raise RequestError("The question is empty.", "prompt")
    long_question = len(request.question.encode()) > LONGEST_QUESTION  # token ids may stand for the prompt
    if long_question or len(request.prompt.encode()) > LONGEST_QUESTION:
        said = "question is" if long_question else "question with all before it is"
        raise RequestError(f"The {said} longer than {LONGEST_QUESTION} bytes.", "prompt")
    if request.max_tokens > settings.max_tokens:
        raise RequestError(
            f"max_tokens is {request.max_tokens}; this device allows 1 to {settings.max_tokens}.", "max_tokens"
        )
    if PRIVACY_LEVELS.index(request.privacy) > PRIVACY_LEVELS.index(settings.privacy):
        raise RequestError(
            f"This device is set to privacy {settings.privacy!r}; a request can't loosen it to {request.privacy!r}.",
            "privacy",
        )
    if request.sources == "cloud" and request.privacy == "offline":
        raise RequestError("Privacy 'offline' keeps the question here: sources can't be 'cloud'.", "sources")
    check_documents(request)
    method.check(request)
    return method
