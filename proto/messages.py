"""Every message of the protocol as a frozen value (docs/protocol.md is the normative text).

`schema.py` refuses what is outside of the `Annotated` limits. Integers are unsigned, times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from proto import limits
from proto.bounds import Bytes, Count, Real, Text
from proto.control import Control
from proto.fields import (
    Aggregation,
    AnySession,
    Codec,
    Digest,
    Earlier,
    EosIds,
    Epoch,
    Exactness,
    Form,
    Name,
    Patterns,
    Placement,
    Position,
    Question,
    Sampler,
    SessionId,
    Side,
    Token,
    Wanted,
)
from proto.rounds import Decided, Defer, Propose, Verdict


@dataclass(frozen=True, slots=True)
class Hello:
    """Properties of a side. The device sends it first; the cloud answers with its own as `Welcome`, or `Error`."""

    role: Side
    model: Name
    tokenizer: Name  # content hash
    vocabulary: Annotated[int, Count(2**24)]
    scorer: Name  # identity of the document weights, they are compared across sides
    embedder: Name
    codecs: Annotated[tuple[Name, ...], Count(16)]
    decode_intercept: Annotated[float, Real(0.0, 1e9)]  # seconds, profiled line of §5.2
    decode_slope: Annotated[float, Real(-1e9, 1e9)]  # seconds per token of context
    eos: EosIds  # of the model; they may differ, see `Open.eos`
    library: Name  # of the cloud: the content of its library; a device tells nothing of its own
    exactness: Exactness  # of the model's numbers, as loading found them


@dataclass(frozen=True, slots=True)
class Welcome:
    """The cloud's answer to `Hello`: itself and its limits."""

    hello: Hello
    max_sessions: Annotated[int, Count(2**20)]
    max_tokens: Position
    max_query: Annotated[int, Count(2**16)]  # bytes of UTF-8


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Open:
    """Start one answer. Everything that fixes the answer's law is in here."""

    session: SessionId
    method: Name  # of common/methods
    question: Question
    prompt: Annotated[str, Text(limits.LONGEST_PROMPT)]  # the query part of every row
    documents: Wanted  # of the cloud's own
    seed: Annotated[int, Count(limits.SEEDS)]
    temperature: Annotated[float, limits.TEMPERATURE]
    sampler: Sampler
    codec: Codec
    entries: Annotated[int, Count(limits.MOST_ENTRIES + 1, least=1)]  # K of the race
    exact: bool
    top_p: Annotated[float, Real(0.0, 1.0)]
    placement: Placement
    sources: Literal["both", "cloud"]  # "cloud": the device's documents take no part and it does not decode
    run_ahead: Annotated[int, Count(4097, least=1)]  # drafts a side may hold beyond the commits; 1 is synchronous
    max_tokens: Annotated[int, Count(limits.MOST_TOKENS + 1, least=1)]
    aggregation: Aggregation = "output"  # else the documents that a side has share a row
    trace: bool = False  # the cloud notes what it does when, and sends it as `Spans` before `Closed`
    first: Side = "device"  # who aggregates the first position under placement `greedy`
    eos: EosIds = ()  # the device's: what ends the answer on both sides
    options: Annotated[str, Text(limits.LONGEST_OPTIONS)] = ""  # of this method alone, a JSON object
    controls: Annotated[tuple[Control, ...], Count(limits.MOST_CONTROLS + 1)] = ()  # in the prompt, by place
    likeliest: Annotated[int, Count(limits.MOST_LIKELIEST + 1)] = 0  # most probable tokens that a race list has, too
    processors: Annotated[str, Text(limits.LONGEST_PROCESSORS)] = ""  # biases, penalties, format: a JSON object
    earlier: Earlier = ""
    only: Patterns = ()  # of the cloud's own documents


@dataclass(frozen=True, slots=True)
class Ready:
    """The cloud retrieved and prefills. Titles serve the citations."""

    session: SessionId
    titles: Annotated[tuple[Annotated[str, Text(1024)], ...], Count(257)]
    prompt_tokens: Annotated[int, Count(2**24)]
    closest: Annotated[float, Real(-2.0, 2.0)]  # retrieval cosine, the largest; -1 without documents


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafted token with the distribution it was drawn from, conditioned on the prefix `digest`."""

    session: SessionId
    epoch: Epoch
    position: Position
    digest: Digest
    evidence: Annotated[float, Real(-2e30, 2e30)]  # log h_t^s (Appendix A.1); -1e30 without documents
    decode_time: Annotated[int, Count(2**32)]
    payload: Annotated[bytes, Bytes(2**21)]


@dataclass(frozen=True, slots=True)
class Target:
    """Committed tokens from `position` on, and who aggregates the position after them."""

    session: SessionId
    epoch: Epoch  # the aggregation term
    position: Position
    tokens: Annotated[tuple[Token, ...], Count(4097, least=1)]
    aggregator: Side


@dataclass(frozen=True, slots=True)
class Resolve:
    """Ask for values that a certificate lacks: of named tokens, or of a deeper list (`depth` entries)."""

    session: SessionId
    position: Position
    digest: Digest
    ids: Annotated[tuple[Token, ...], Count(limits.MOST_NAMED + 1)]
    depth: Annotated[int, Count(2**24)]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Values that complete a race list at `position`: of the tokens listed, or of the `depth` fastest."""

    session: SessionId
    position: Position
    digest: Digest
    depth: Annotated[int, Count(2**24)]
    payload: Annotated[bytes, Bytes(2**21)]


@dataclass(frozen=True, slots=True)
class Sync:
    """The sender's committed prefix and the term in which it was made; after silence, a reconnect or a take-over.
    `wants_reply` asks the peer for its own `Sync` and for everything it holds beyond this prefix.
    """

    session: SessionId
    epoch: Epoch
    tokens: Annotated[tuple[Token, ...], Count(2**16)]
    aggregator: Side
    wants_reply: bool


@dataclass(frozen=True, slots=True)
class Close:
    """The device is done with the session; the cloud answers `Closed` and frees it."""

    session: SessionId
    position: Position  # length of the answer


@dataclass(frozen=True, slots=True)
class Closed:
    """The cloud's counts of the session, sent after all of its `Contributions` and texts."""

    session: SessionId
    drafted: Annotated[int, Count(2**32)]
    accepted: Annotated[int, Count(2**32)]
    rollbacks: Annotated[int, Count(2**32)]
    preempted: Annotated[int, Count(2**32)]
    stale: Annotated[int, Count(2**32)]
    disagreements: Annotated[int, Count(2**32)]
    branches: Annotated[int, Count(2**32)] = 0  # of `drafted`, those beside the chain
    used: Annotated[int, Count(2**32)] = 0  # rejections behind which one of them went on


@dataclass(frozen=True, slots=True)
class Contributions:
    """Shares of the cloud's documents, and of none, in the tokens: uint8 [positions, documents + 1], of 255, all 0
    where it made no draft.
    """

    session: SessionId
    position: Position  # of the first row
    documents: Annotated[int, Count(257)]
    payload: Annotated[bytes, Bytes(2**16)]


@dataclass(frozen=True, slots=True)
class Spans:
    """Part of the cloud's half of a trace: when it did what (payloads/trace.py), without tokens and text."""

    session: SessionId
    part: Annotated[int, Count(256)]
    parts: Annotated[int, Count(257)]  # how many there are
    dropped: Annotated[int, Count(2**32)]  # spans that the cloud had no room to note
    payload: Annotated[bytes, Bytes(2**16)]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Free the session at once; nothing is answered."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class Probe:
    """In-band round-trip measurement; `sent` is the sender's monotonic clock."""

    sequence: Annotated[int, Count(2**32)]
    sent: Annotated[int, Count(2**63)]


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """`received` is the replier's own monotonic clock, for one-way delay changes."""

    sequence: Annotated[int, Count(2**32)]
    sent: Annotated[int, Count(2**63)]
    received: Annotated[int, Count(2**63)]


@dataclass(frozen=True, slots=True)
class Busy:
    """No place for the session now."""

    session: SessionId
    retry_after: Annotated[int, Count(2**32)]


@dataclass(frozen=True, slots=True)
class Error:
    """A refusal, in a sentence that says what differs and what to do. Session 0 is the link itself."""

    session: AnySession
    code: Name
    text: Annotated[str, Text(2048)]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Retrieve documents and hand them over: the device reads them itself. No answer is opened."""

    session: SessionId
    question: Question
    documents: Wanted
    form: Form
    earlier: Earlier = ""
    only: Patterns = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Part `part` of `parts` of the document `index` of `count`. Without any document: one message, `count` 0.

    Before `Closed`: a text that the answer may cite, in one part, without similarity and title.
    """

    session: SessionId
    index: Annotated[int, Count(limits.MOST_FETCHED)]
    count: Annotated[int, Count(limits.MOST_FETCHED + 1)]
    part: Annotated[int, Count(2**16)]
    parts: Annotated[int, Count(2**16)]
    similarity: Annotated[float, Real(-2.0, 2.0)]  # retrieval cosine
    title: Annotated[str, Text(1024)]
    payload: Annotated[bytes, Bytes(2**21)]  # of the document's text in UTF-8, or of its `kv` payload


@dataclass(frozen=True, slots=True)
class Generated:
    """The cloud's whole answer, of method "sequence-wise"."""

    session: SessionId
    evidence: Annotated[float, Real(-2e30, 2e30)]  # log h of the cloud's documents before the first token
    tokens: Annotated[tuple[Token, ...], Count(8193)]
    payload: Annotated[bytes, Bytes(2**21)]  # log-probability of each token, float32 little-endian


Message = (
    Hello
    | Welcome
    | Open
    | Ready
    | Draft
    | Target
    | Resolve
    | Resolved
    | Sync
    | Close
    | Closed
    | Contributions
    | Spans
    | Cancel
    | Probe
    | ProbeReply
    | Busy
    | Error
    | Fetch
    | Fetched
    | Generated
    | Propose
    | Verdict
    | Decided
    | Defer
)
