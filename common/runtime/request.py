"""What is asked of the engine, and what it gives back while it answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from common.tracing.trace import Trace
from proto.messages import Aggregation, Codec, Placement, Sampler, Side

Sources = Literal["both", "device", "cloud"]
Privacy = Literal["strict", "balanced", "offline"]
FinishReason = Literal["stop", "length", "cancelled"]
# How the two sides come to one answer: two drafts of every token, ahead of time or one by one (DRDG/TW); two answers,
# of which one is taken (DRDG/SW); or the cloud's documents, or their keys and values, on the device (DRCG).
Method = Literal["speculative", "token-wise", "sequence-wise", "fetch-text", "fetch-kv"]


@dataclass(frozen=True, slots=True)
class Request:
    """One question. Defaults are the engine's; `device/settings.py` fills them in from the configuration."""

    question: str  # what both libraries are searched for
    prompt: str  # the query part of every row, e.g. "\nQuestion: ...\nAnswer:"
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int | None = None  # None: drawn at random, reported
    stop: tuple[str, ...] = ()
    sources: Sources = "both"
    privacy: Privacy = "strict"
    sampler: Sampler = "race"
    placement: Placement = "device"
    codec: Codec | None = None  # None: the sampler's own (race -> race, paper -> top-p)
    entries: int = 32  # K of the race
    exact: bool = True
    top_p: float = 0.8  # truncation of the paper's sampler; the race does not truncate
    method: Method = "speculative"
    aggregation: Aggregation = "output"  # "context": all documents of the side that generates in one row
    documents: int = 4  # retrieved per side
    trace: bool = False  # whether the report says what took when, on both sides


@dataclass(frozen=True, slots=True)
class Source:
    """A document that took part."""

    side: Side
    title: str


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """Text that became final. `text` may be empty while a multi-byte character is incomplete."""

    text: str
    token: int
    position: int
    degraded: bool  # decided by the device alone because the cloud was away


@dataclass(frozen=True, slots=True)
class SideReport:
    """One side's work for a request."""

    drafted: int = 0
    accepted: int = 0
    rollbacks: int = 0
    preempted: int = 0
    stale: int = 0  # fenced messages of this side
    decode_ms: float = 0.0  # median decode step

    @property
    def acceptance(self) -> float | None:
        """Share of this side's aggregated drafts that were the target; None before the first."""
        judged = self.accepted + self.rollbacks
        return self.accepted / judged if judged else None


@dataclass(frozen=True, slots=True)
class Report:
    """What happened during one request (sent with the response)."""

    tokens: int
    prompt_tokens: int
    seconds: float
    ttft: float  # seconds to the first token
    inter_token: float  # median seconds between tokens after the first
    per_token: float  # (seconds - ttft) / (tokens - 1)
    device: SideReport
    cloud: SideReport
    sent_bytes: int  # device -> cloud, of Draft, Target, Resolve, Resolved and Sync
    received_bytes: int  # of the same, and of Generated
    fetched_bytes: int  # of Fetched
    rtt_ms: float | None
    switches: int
    certificate_failures: int
    disagreements: int
    degraded: tuple[int, ...]  # positions the device decided alone
    seed: int
    method: Method
    aggregation: Aggregation
    sampler: Sampler
    placement: Placement
    sources: tuple[Source, ...]
    # one row per token: share of each of `sources` in the token's probability, [tokens][sources]
    attribution: tuple[tuple[float, ...], ...] = ()
    # one row per token: whether the draft of (device, cloud) was the token; None where this device saw no draft
    accepted: tuple[tuple[bool | None, bool | None], ...] = ()
    # one row per token: Eq. 5 of (device, cloud); None where the cloud decided, and with sampler `race`
    expected: tuple[tuple[float, float] | None, ...] = ()
    notes: tuple[str, ...] = field(default=())  # sentences for the user, e.g. that the cloud was not reachable
    trace: Trace | None = None  # None unless asked for


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a generation."""

    reason: FinishReason
    text: str
    report: Report


class Generation(Protocol):
    """A running answer: iterate for events; the last is `Finished`. Cancelling frees both sides at once.

    Iterating raises `AnswerFailed`, or `RequestError` for what shows only on the way (a prompt that is too long).
    """

    def __iter__(self) -> Iterator[TokenEvent | Finished]: ...

    def cancel(self) -> None: ...


class RequestError(ValueError):
    """The request can't be served as asked; the text is one sentence for the user.

    `field` names the offending part of the request ("prompt", "max_tokens", ...).
    """

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


class AnswerFailed(RuntimeError):
    """An answer that was begun can't be completed; the text is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """The link as the device sees it."""

    state: Literal["connected", "connecting", "away", "refused", "off"]
    address: str
    detail: str  # a sentence when not connected
    rtt_ms: float | None
    model: str | None


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What `dragon status` shows."""

    model: str
    tokenizer: str
    scorer: str
    documents: int
    chunks: int
    active: int
    served: int
    cloud: CloudStatus


class Engine(Protocol):
    """The device's engine, as the HTTP interface sees it."""

    @property
    def model(self) -> str:
        """The model's name. Every request asks for it: it must cost nothing."""
        ...

    def generate(self, request: Request) -> Generation:
        """Start an answer. Raises `RequestError` for input that can't be served."""
        ...

    def status(self) -> EngineStatus:
        """What is going on now. It may read from the library, and must not list it."""
        ...
