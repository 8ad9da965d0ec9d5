"""What a device is told of a session that is not served, or not to its end."""

from __future__ import annotations

from cloud.settings import CloudSettings
from common.runtime.request import RequestError
from proto.messages import Error, Fetch, Open


def refusal(request: Open | Fetch, settings: CloudSettings) -> str | None:
    """Why this cloud does not serve `request`, in a sentence; None when it does."""
    if not request.question.strip():
        return "The question is empty."
    query = request.prompt if isinstance(request, Open) else request.question
    if len(query.encode()) > settings.max_query_bytes:
        return f"The question is longer than the {settings.max_query_bytes} bytes that this cloud allows."
    limits = [("documents", request.documents, settings.max_documents)]
    if isinstance(request, Open):
        limits.append(("max_tokens", request.max_tokens, settings.max_tokens))
        if request.sources == "both" and (request.aggregation, request.delivery) != ("output", "tokens"):
            return "Context aggregation and delivery as a sequence need sources 'cloud'."
    for name, value, limit in limits:
        if not 1 <= value <= limit:
            return f"{name} is {value}; this cloud allows 1 to {limit}."
    return None


def failure_message(session: int, failure: Exception) -> Error:
    """The end of a session that was begun; the text of `failure` was made for the user (`as_failure`)."""
    return Error(session, "unservable" if isinstance(failure, RequestError) else "failed", str(failure))


def unknown_session(session: int) -> Error:
    """What ends nothing: a device that still wants the answer opens it again."""
    return Error(session, "unknown-session", "This cloud does not know the session, or any more; open it again.")
