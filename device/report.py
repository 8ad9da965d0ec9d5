"""What a request reports when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from common.runtime.answer import Answer
from common.runtime.request import Report, Request, SideReport, Source
from device.contributions import ContributionRows
from device.exchange import FETCHES, decides_alone
from proto.messages import WHOLE_SHARE, Closed


@dataclass(slots=True)
class Record:
    """Collected while a request is served. Times are seconds of one monotonic clock."""

    started: float
    seed: int
    token_times: list[float] = field(default_factory=list)
    device_titles: tuple[str, ...] = ()
    cloud_titles: tuple[str, ...] = ()
    prompt_tokens: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    fetched_bytes: int = 0
    alone: bool = False  # a method of whole documents or answers did without the cloud's
    contributions: ContributionRows = field(default_factory=ContributionRows)  # of the cloud's documents
    notes: list[str] = field(default_factory=list)


def build_report(
    request: Request, record: Record, answer: Answer, closed: Closed | None, rtt: float | None, ended: float
) -> Report:
    """The report of an answer that ended at `ended`; `closed` is what the cloud says of it, if it could."""
    counters, outcome = answer.session.counters, answer.outcome
    judged = not decides_alone(request)  # drafts were compared with what both sides decided
    times = record.token_times
    gaps = [later - earlier for earlier, later in pairwise(times)]
    last = times[-1] if times else ended
    return Report(
        tokens=len(times),
        prompt_tokens=record.prompt_tokens,
        seconds=last - record.started,
        ttft=(times[0] if times else ended) - record.started,
        inter_token=median(gaps) if gaps else 0.0,
        per_token=(times[-1] - times[0]) / len(gaps) if gaps else 0.0,
        device=SideReport(
            drafted=counters.drafted,
            accepted=counters.accepted["device"] if judged else 0,
            rollbacks=counters.rollbacks["device"] if judged else 0,
            preempted=answer.preempted,
            stale=0 if closed is None else closed.stale,
            decode_ms=_milliseconds(outcome.local_times),
        ),
        cloud=SideReport(
            drafted=0 if closed is None else closed.drafted,
            accepted=(counters.accepted["cloud"] if closed is None else closed.accepted) if judged else 0,
            rollbacks=(counters.rollbacks["cloud"] if closed is None else closed.rollbacks) if judged else 0,
            preempted=0 if closed is None else closed.preempted,
            stale=counters.stale,
            decode_ms=_milliseconds(outcome.remote_times),
        ),
        sent_bytes=record.sent_bytes,
        received_bytes=record.received_bytes,
        fetched_bytes=record.fetched_bytes,
        rtt_ms=None if rtt is None else 1000 * rtt,
        switches=counters.switches,
        certificate_failures=counters.certificate_failures,
        disagreements=counters.disagreements if closed is None else closed.disagreements,
        degraded=tuple(range(len(times))) if record.alone else tuple(counters.degraded),
        seed=record.seed,
        method=request.method,
        aggregation=request.aggregation,
        sampler=request.sampler,
        placement=request.placement,
        sources=tuple(Source("device", title) for title in record.device_titles)
        + tuple(Source("cloud", title) for title in record.cloud_titles),
        attribution=_attribution(request, record, answer, closed),
        accepted=tuple(outcome.accepted[: len(times)]),
        expected=tuple(outcome.expected[: len(times)]),
        notes=tuple(record.notes),
    )


def _attribution(
    request: Request, record: Record, answer: Answer, closed: Closed | None
) -> tuple[tuple[float, ...], ...]:
    """Each source's share of each token, [tokens][sources]: the side's share times the document's within it."""
    outcome = answer.outcome
    if request.aggregation == "context":
        return ()  # one row of all documents does not tell whose word it was
    if request.method in FETCHES:  # the device has read all of them
        return tuple(tuple(round(share, 4) for share in row) for row in outcome.shares[: len(record.token_times)])
    degraded = set(answer.session.counters.degraded)
    cloud_rows = _cloud_rows(record, closed)
    rows = []
    for position, cloud_share in enumerate(outcome.cloud_shares[: len(record.token_times)]):
        from_cloud = cloud_rows[position] if position < len(cloud_rows) else ()
        total = sum(from_cloud)
        if position in degraded:
            share = 0.0
        elif cloud_share is None:
            share = total  # the cloud aggregated and knows, or it answered alone
        else:
            share = cloud_share
        device = outcome.shares[position] or (0.0,) * len(record.device_titles)
        row = [(1.0 - share) * part for part in device[: len(record.device_titles)]]
        row += [share * part / total if total else 0.0 for part in from_cloud]
        row += [0.0] * (len(record.device_titles) + len(record.cloud_titles) - len(row))
        rows.append(tuple(round(part, 4) for part in row))
    return tuple(rows)


def _cloud_rows(record: Record, closed: Closed | None) -> list[tuple[float, ...]]:
    """What the cloud's documents gave, as shares, [positions][documents]."""
    documents, data = len(record.cloud_titles), record.contributions.rows(len(record.cloud_titles))
    if closed is None or not documents:
        return []
    return [
        tuple(value / WHOLE_SHARE for value in data[start : start + documents])
        for start in range(0, len(data), documents)
    ]


def _milliseconds(seconds: list[float]) -> float:
    return 1000 * median(seconds) if seconds else 0.0
