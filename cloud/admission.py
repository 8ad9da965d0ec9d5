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
    """Sessions that this cloud serves at a time, and the KV memory for all of them."""

    sessions: int
    per_key: int  # of one device, told by its key, or by its connection when the link has no keys
    kv_bytes: int | None = None  # none: unlimited


@dataclass(frozen=True, slots=True)
class Taken:
    """The place of an open session."""

    age: float  # seconds since it began
    own: bool  # of the device that asks for another one
    kv_bytes: int = 0  # that it is expected to need


def admit(places: Places, kv_bytes: int, taken: Sequence[Taken], lasted: Sequence[float]) -> float | None:
    """None when there is a place for another session that needs `kv_bytes`, else the seconds until there may be one.

    `lasted` are the seconds that the latest sessions took, from beginning to end. One that would not even fit alone
    is admitted: its failure is its own, and no matter of waiting.
    """
    own = [place.age for place in taken if place.own]
    if len(own) >= places.per_key:
        return _wait(own, lasted)
    if len(taken) >= places.sessions:
        return _wait([place.age for place in taken], lasted)
    holding = [place for place in taken if place.kv_bytes]
    reserved = sum(place.kv_bytes for place in holding)
    if places.kv_bytes is not None and places.kv_bytes - reserved < kv_bytes <= places.kv_bytes:
        return _wait([place.age for place in holding], lasted)
    return None


def _wait(ages: Sequence[float], lasted: Sequence[float]) -> float:
    """Seconds until the first of the sessions is expected to end."""
    typical = median(lasted) if lasted else UNKNOWN
    first = min(max(typical - age, OVERDUE * typical) for age in ages)
    return min(max(first, SHORTEST_WAIT), LONGEST_WAIT)


def refusal(request: Open | Fetch, settings: CloudSettings, vocabulary: int) -> str | None:
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
        if value > limit:
            return f"{name} is {value}; this cloud allows up to {limit}."
    if isinstance(request, Open):
        places = [0, *(control.place for control in request.controls), len(request.prompt)]
        if places != sorted(places) or max((control.token for control in request.controls), default=0) >= vocabulary:
            return "The prompt's control tokens are out of order, beyond its end, or not of the vocabulary."
    return None
