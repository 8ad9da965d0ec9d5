"""Admission of sessions to this cloud: whether a request is within its limits, and when there is a place for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cloud.settings import CloudSettings
from proto.messages import Fetch, Open

SHORTEST_WAIT = 0.05  # seconds
LONGEST_WAIT = 30.0
UNKNOWN = 1.0  # seconds that a session is taken to last while none has ended yet
OVERDUE = 0.1  # of the typical duration: the time that a session which has lasted longer is expected to go on


@dataclass(frozen=True, slots=True)
class Places:
    """Sessions that this cloud serves at a time."""

    sessions: int
    per_key: int  # of one device, told by its key, or by its connection when the link has no keys


def admit(places: Places, ages: Sequence[float], of_key: Sequence[float], lasted: Sequence[float]) -> float | None:
    """None when there is a place for another session, else the seconds until there may be one.

    `ages` are the seconds since each open session began, `of_key` those of the asking device's among them; `lasted`
    is how long the latest sessions took, from beginning to end.
    """
    if len(of_key) >= places.per_key:
        return _wait(of_key, lasted)
    if len(ages) >= places.sessions:
        return _wait(ages, lasted)
    return None


def _wait(ages: Sequence[float], lasted: Sequence[float]) -> float:
    """Seconds until the first of the sessions is expected to end."""
    typical = median(lasted) if lasted else UNKNOWN
    first = min(max(typical - age, OVERDUE * typical) for age in ages)
    return min(max(first, SHORTEST_WAIT), LONGEST_WAIT)


def refusal(request: Open | Fetch, settings: CloudSettings) -> str | None:
    """The reason that this cloud does not serve `request`, in a sentence; None when it does."""
    if not request.question.strip():
        return "The question is empty."
    query = request.prompt if isinstance(request, Open) else request.question
    if len(query.encode()) > settings.max_query_bytes:
        return f"The question is longer than the {settings.max_query_bytes} bytes that this cloud allows."
    limits = [("documents", request.documents, settings.max_documents)]
    if isinstance(request, Open):
        limits.append(("max_tokens", request.max_tokens, settings.max_tokens))
    for name, value, limit in limits:
        if not 1 <= value <= limit:
            return f"{name} is {value}; this cloud allows 1 to {limit}."
    return None
