"""The one exception that proto raises for bytes or values that the protocol does not allow."""

from __future__ import annotations

from typing import Literal

Refusal = Literal["version", "unknown-message", "malformed", "too-large"]


class ProtocolError(ValueError):
    """A fault of a message or a payload.

    `code` is one of `Refusal` and may be sent back as `Error.code`. `text` names the message, the field and
    the bound that was broken; it never repeats what the message said, so it may be logged and sent.
    """

    def __init__(self, code: Refusal, text: str) -> None:
        super().__init__(text)
        self.code: Refusal = code
        self.text = text


def malformed(text: str) -> ProtocolError:
    """A `ProtocolError` for content that breaks the format or a bound."""
    return ProtocolError("malformed", text)


def too_large(text: str) -> ProtocolError:
    """A `ProtocolError` for something that is refused because of its size alone."""
    return ProtocolError("too-large", text)
