"""Admission of sessions: the limits of a request, and the wait for a slot."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cloud.settings import CloudSettings
from proto.messages import Fetch, Open
from proto.patterns import check_patterns

SHORTEST_WAIT = 0.05  # seconds
LONGEST_WAIT = 30.0
UNKNOWN = 1.0  # seconds of a session before any has ended
OVERDUE = 0.1  # expected rest of a session, in parts of the typical duration


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Concurrent sessions that this cloud serves, and their total KV memory."""

    sessions: int
    per_key: int  # per device: by its key, or by its connection without keys
    kv_bytes: int | None = None  # None: unlimited


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The slot of an open session."""

    age: float  # seconds since it began
    tenant: Hashable  # its device
    kv_bytes: int = 0  # expected need


@dataclass(frozen=True, slots=True)
class Admission:
    """Decision about a requested session."""

    wait: float | None  # seconds until a slot may be free; None: one is free,
    ending: tuple[int, ...] = ()  # once these open sessions, by index, have ended


def admit(
    places: SessionLimits, tenant: Hashable, kv_bytes: int, taken: Sequence[OpenSession], lasted: Sequence[float]
) -> Admission:
    """Decides about another session of `tenant` that needs `kv_bytes`.

    `lasted`: recent sessions' durations in seconds. A device may use everything that others leave. With n devices
    that have or request sessions, a device's share is one n-th.

    If everything is taken, a device within its share, this session included, need not wait: some other device
    exceeds its share. The largest device's youngest sessions end until there is room. Devices within their share
    lose none.

    A session too large even for an idle cloud is admitted, and fails on its own: waiting would not help.
    """
    own = [place for place in taken if place.tenant == tenant]
    if len(own) >= places.per_key:
        return Admission(wait([place.age for place in own], lasted))
    devices = len({tenant, *(place.tenant for place in taken)})
    left = dict(enumerate(taken))
    ending: list[int] = []
    within = (len(own) + 1) * devices <= places.sessions and _within(places, _memory(own) + kv_bytes, devices)
    while (lacking := _lacking(places, kv_bytes, list(left.values()))) is not None:
        found = _surplus(left, tenant, lacking, devices) if within else None
        if found is None:
            holding = [place.age for place in taken if lacking.of(place)]
            return Admission(wait(holding, lasted))
        ending.append(found)
        del left[found]
    return Admission(None, tuple(ending))


@dataclass(frozen=True, slots=True)
class _Resource:
    limit: int
    of: Callable[[OpenSession], int]  # a session's part


def _lacking(places: SessionLimits, kv_bytes: int, taken: Sequence[OpenSession]) -> _Resource | None:
    """Returns the short resource, None if none is short."""
    if len(taken) >= places.sessions:
        return _Resource(places.sessions, lambda place: 1)
    if places.kv_bytes is not None and places.kv_bytes - _memory(taken) < kv_bytes <= places.kv_bytes:
        return _Resource(places.kv_bytes, lambda place: place.kv_bytes)
    return None


def _surplus(left: Mapping[int, OpenSession], tenant: Hashable, lacking: _Resource, devices: int) -> int | None:
    """The youngest session of the largest device, if above its share."""
    held: dict[Hashable, int] = {}
    for place in left.values():
        if place.tenant != tenant:
            held[place.tenant] = held.get(place.tenant, 0) + lacking.of(place)
    most = max(held, key=held.__getitem__, default=None)
    if most is None or held[most] * devices <= lacking.limit:
        return None
    having = [index for index, place in left.items() if place.tenant == most and lacking.of(place)]
    return min(having, key=lambda index: left[index].age)


def _within(places: SessionLimits, kv_bytes: int, devices: int) -> bool:
    return places.kv_bytes is None or kv_bytes * devices <= places.kv_bytes


def _memory(taken: Iterable[OpenSession]) -> int:
    return sum(place.kv_bytes for place in taken)


def wait(ages: Sequence[float], lasted: Sequence[float]) -> float:
    """Returns the expected seconds until a session ends."""
    typical = median(lasted) if lasted else UNKNOWN
    first = min(max(typical - age, OVERDUE * typical) for age in ages)
    return min(max(first, SHORTEST_WAIT), LONGEST_WAIT)


def explain_refusal(request: Open | Fetch, settings: CloudSettings, vocabulary: int) -> str | None:
    """Returns a reason not to serve `request`, None if there is none."""
    if not request.question.strip():
        return "The question is empty."
    try:
        check_patterns(request.only)
    except ValueError as error:
        return f"The patterns of the cloud's documents can't be followed: {error}."
    texts = {"question is": request.question, "questions before it are": request.earlier}
    for what, text in texts.items():
        if len(text.encode()) > settings.max_query_bytes:
            return f"The {what} longer than the {settings.max_query_bytes} bytes that this cloud allows."
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
        if request.documents_at > len(request.prompt):
            return "The position of the documents is beyond the end of the prompt."
    return None
