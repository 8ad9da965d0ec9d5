"""The report of an answer: fields of every method, and each method's own part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise, zip_longest
from statistics import median

from common.answer.contributions import ContributionRows
from common.answer.request import Request
from common.answer.sent import SentBytes
from common.process.log_lines import AnswerName
from common.tracing.trace import Trace
from proto.fields import Aggregation, Placement, Sampler, Side

NOTED_WAIT = 1.0  # seconds; who waits less for memory need not know


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a passage: its document in this device's library, and the place in it."""

    path: str  # of the document, relative to the folder that was added
    place: str  # in the document, e.g. «page 3»; may be empty
    chunk: int | None  # the passage's number in the library; None: of a file that came with the request
    similarity: float  # of the passage and the question, cosine


@dataclass(frozen=True, slots=True)
class Source:
    """A document that took part."""

    side: Side
    title: str
    origin: Origin | None = None  # of the device's own, where it is a passage of its library


@dataclass(frozen=True, slots=True)
class SideReport:
    """One side's work for a request."""

    drafted: int = 0
    accepted: int = 0
    rollbacks: int = 0
    preempted: int = 0
    stale: int = 0  # fenced messages of this side
    branches: int = 0  # of the drafts, those beside the chain
    used: int = 0  # rejections behind which a branch went on: round trips that were saved
    decode_ms: float = 0.0  # median decode step

    @property
    def acceptance(self) -> float | None:
        """Share of this side's aggregated drafts that were the target; None before the first."""
        judged = self.accepted + self.rollbacks
        return self.accepted / judged if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """A method's own part of the report."""

    device: SideReport = SideReport()
    cloud: SideReport = SideReport()
    switches: int = 0
    certificate_failures: int = 0
    disagreements: int = 0
    degraded: tuple[int, ...] = ()  # positions the device decided alone
    # one row per token: share of each of `Report.sources` in the token's probability, [tokens][sources]; the rest is no
    # document's
    attribution: tuple[tuple[float, ...], ...] = ()
    # in so many tokens the shares of the cloud's documents are not known: its part of the report has not come
    unattributed: int = 0
    # one row per token: whether the draft of (device, cloud) was the token; None where this device saw no draft
    accepted: tuple[tuple[bool | None, bool | None], ...] = ()
    # one row per token: Eq. 5 of (device, cloud); None where the cloud decided, and with sampler `race`
    expected: tuple[tuple[float, float] | None, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)  # of this method only, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(MethodReport):
    """Figures, sources and notes of one answer, sent with the response."""

    request: str  # the session's number in hex, by which the logs of both daemons name the answer
    tokens: int
    prompt_tokens: int
    seconds: float
    ttft: float  # seconds to the first token
    inter_token: float  # median seconds between tokens after the first
    per_token: float  # (seconds - ttft) / (tokens - 1)
    sent: SentBytes  # device -> cloud, of every message of this answer
    received_bytes: int  # cloud -> device, of the messages that decide tokens (`LIFECYCLE` has the others)
    fetched_bytes: int  # of documents
    rtt_ms: float | None
    seed: int
    method: str
    aggregation: Aggregation
    sampler: Sampler
    placement: Placement
    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()  # sentences for the user, e.g. that the cloud was not reachable
    closest: float | None = None  # cosine of the closest document and the question; None: it is not known
    passages: tuple[str | None, ...] = ()  # texts of `sources`, where they are known
    unmatched: bool = False  # no document is close to the question
    refused: bool = False  # the answer says no more than that, as the request wants it
    trace: Trace | None = None  # None unless asked for

    @property
    def sent_bytes(self) -> int:
        return self.sent.total


@dataclass(slots=True)
class Record:
    """Figures collected while a request is served. Times are seconds of one monotonic clock."""

    started: float
    seed: int
    session: int
    token_times: list[float] = field(default_factory=list)
    device_titles: tuple[str, ...] = ()
    origins: tuple[Origin | None, ...] = ()  # of the device's documents, where they are known
    cloud_titles: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # of what the device reads, in the order of the titles
    cloud_closest: float | None = None  # cosine of the cloud's closest document and the question, as far as it said so
    own_closest: float = -1.0  # the same of the documents that the device has found
    closest: float | None = None  # the same of both sides' documents, where that is known
    unmatched: bool = False  # no document is close to the question
    refused: bool = False  # and the request wants no answer then
    device_prompt_tokens: int = 0
    cloud_prompt_tokens: int = 0  # of the cloud that read last, where connections were lost
    sent: SentBytes = field(default_factory=SentBytes)
    received_bytes: int = 0
    fetched_bytes: int = 0
    alone: bool = False  # the whole answer is the device's, although the cloud was wanted
    contributions: ContributionRows = field(default_factory=ContributionRows)  # of the cloud's documents
    notes: list[str] = field(default_factory=list)
    memory_wait: float = 0.0  # seconds until there was KV memory for the answer
    begun: float = 0.0  # when the answer was, the files of the request being read

    def waited(self, seconds: float) -> None:
        """Note that a model had KV memory for the answer after so many seconds."""
        self.memory_wait = max(self.memory_wait, seconds)

    @property
    def passages(self) -> tuple[str | None, ...]:
        """Texts of the sources, the device's first; None where a text is not known."""
        sources = len(self.device_titles) + len(self.cloud_titles)
        if len(self.texts) == sources:  # the device has read all of them
            return self.texts
        theirs = map(self.contributions.texts.get, range(len(self.cloud_titles)))
        return (*self.texts, *[None] * (len(self.device_titles) - len(self.texts)), *theirs)


def build_report(request: Request, record: Record, part: MethodReport, rtt: float | None, ended: float) -> Report:
    """The report of an answer that ended at `ended`; `part` is its method's, `rtt` in seconds."""
    times = record.token_times
    gaps = [later - earlier for earlier, later in pairwise(times)]
    last = times[-1] if times else ended
    notes = tuple(record.notes)
    if record.memory_wait >= NOTED_WAIT:
        notes += (f"The answer waited {record.memory_wait:.0f} s for memory that other answers had (kv_bytes).",)
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    sources = tuple(Source("device", *each) for each in zip_longest(record.device_titles, record.origins)) + tuple(
        Source("cloud", title) for title in record.cloud_titles
    )
    if record.refused:  # what was drafted is not what was said
        values["attribution"], sources = (), ()
    if record.alone:
        values["degraded"] = tuple(range(len(times)))
    return Report(
        **values,
        request=AnswerName.of(record.session),
        tokens=len(times),
        prompt_tokens=record.device_prompt_tokens + record.cloud_prompt_tokens,
        seconds=last - record.started,
        ttft=(times[0] if times else ended) - record.started,
        inter_token=median(gaps) if gaps else 0.0,
        per_token=(times[-1] - times[0]) / len(gaps) if gaps else 0.0,
        sent=record.sent,
        received_bytes=record.received_bytes,
        fetched_bytes=record.fetched_bytes,
        rtt_ms=None if rtt is None else 1000 * rtt,
        seed=record.seed,
        method=request.method,
        aggregation=request.aggregation,
        sampler=request.sampler,
        placement=request.placement,
        sources=sources,
        notes=notes,
        closest=record.closest,
        passages=() if record.refused else record.passages,
        unmatched=record.unmatched,
        refused=record.refused,
    )
