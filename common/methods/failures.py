"""Messages of the cloud that end a session, or say that there is none."""

from __future__ import annotations

from common.runtime.errors import NoPlace, RequestError
from proto.messages import Busy, Error


def failure_message(session: int, failure: Exception) -> Busy | Error:
    """The message that ends a running session; the text of `failure` was made for the user (`as_failure`)."""
    if isinstance(failure, NoPlace):
        return Busy(session, int(1e6 * failure.wait))
    if not isinstance(failure, RequestError):
        return Error(session, "failed", str(failure))
    return Error(session, "document" if failure.field == "long_document" else "unservable", str(failure))


def unknown_session(session: int) -> Error:
    """The message that this cloud does not know a session; a device that still wants the answer opens it again."""
    return Error(session, "unknown-session", "This cloud does not know the session, or any more; open it again.")
