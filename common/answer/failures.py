"""Messages of the cloud that end a session, or say that there is none."""

from __future__ import annotations

from common.answer.errors import NoPlace, RequestError
from proto.errors import ProtocolError
from proto.messages import Busy, Error, Fetch, Open

STOPPING = "stopping"  # codes of an `Error`
STARTING = "starting"
NO_DOCUMENT_FITS = "no-document-fits"
_LONGEST_TEXT = 2048  # bytes of UTF-8 of `Error.text`
_CODES = {"long_document": "document", "cloud_documents": NO_DOCUMENT_FITS}  # by the field that can't be served


def failure_message(session: int, failure: Exception) -> Busy | Error:
    """The message that ends a running session; the text of `failure` was made for users (`as_failure`) or peers."""
    if isinstance(failure, ProtocolError):
        return Error(session, failure.code, failure.text)
    if isinstance(failure, NoPlace):
        return Busy(session, int(1e6 * failure.wait))
    if not isinstance(failure, RequestError):
        return Error(session, "failed", _cut(str(failure)))
    return Error(session, _CODES.get(failure.field, "unservable"), _cut(str(failure)))


def stopping() -> Error:
    """The message that this cloud ends, and all sessions with it; another one may come in its place."""
    return Error(0, STOPPING, "The cloud is stopping.")


def starting(doing: str) -> Error:
    """The message that this cloud can't answer yet, and what it is at; when it can, it ends the connection."""
    return Error(0, STARTING, doing)


def no_handshake(request: Open | Fetch) -> Error:
    """The message that whoever asks has not said hello."""
    return Error(request.session, "no-handshake", f"Send Hello before {type(request).__name__}.")


def unknown_session(session: int) -> Error:
    """The message that this cloud does not know a session; a device that still wants the answer opens it again."""
    return Error(session, "unknown-session", "This cloud does not know the session, or any more; open it again.")


def _cut(text: str) -> str:
    """As much of a sentence as a message may have: it may quote names of any length."""
    return text.encode(errors="replace")[:_LONGEST_TEXT].decode(errors="ignore")
