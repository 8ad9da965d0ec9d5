"""The exception for bytes or values that violate the protocol."""

from __future__ import annotations

from typing import Literal

Refusal = Literal["version", "unknown-message", "malformed", "too-large"]


class ProtocolError(ValueError):
    """A fault of a message or a payload.

    `code` may be sent back as `Error.code`. `text` names the message, field and violated bound. It never quotes the
    message, so it may be logged and sent.
    """

    def __init__(self, code: Refusal, text: str) -> None:
        super().__init__(text)
        self.code: Refusal = code
        self.text = text


def malformed(text: str) -> ProtocolError:
    """Returns a `ProtocolError` for content that violates the format or a bound."""
    return ProtocolError("malformed", text)


def too_large(text: str) -> ProtocolError:
    """Returns a `ProtocolError` for an excessive size."""
    return ProtocolError("too-large", text)
