"""Every message of the protocol as a frozen value (docs/protocol.md is normative).

`framing.py` enforces the `Annotated` limits. Integers are unsigned, times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

# --- bounds
# Limits in the types of message fields.


@dataclass(frozen=True, slots=True)
class Count:
    """An integer from `least`, below `limit`; on a tuple, its number of items."""

    limit: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number in [low, high], or 0 if `or_zero`."""

    low: float
    high: float
    or_zero: bool = False

    def allows(self, value: float) -> bool:
        """NaN fails every comparison."""
        return self.low <= value <= self.high or (self.or_zero and value == 0)


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 text of at most `limit` bytes."""

    limit: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """At most `limit` bytes."""

    limit: int


# --- limits
# Limits of a request on the wire, in HTTP bodies and on the command line.

LONGEST_QUESTION: Final = 2**14  # bytes of UTF-8 for searching libraries
LONGEST_PROMPT: Final = 2**18  # bytes of UTF-8 of a row's text around the document; models read less
MOST_CONTROLS: Final = 4096  # control tokens in it
LONGEST_OPTIONS: Final = 4096  # bytes of JSON of one method's own options
LONGEST_PROCESSORS: Final = 2**13  # bytes of JSON of everything that changes an answer's distribution
MOST_BIASES: Final = 300  # tokens in it
MOST_DOCUMENTS: Final = 64  # retrieved by one side for an answer
MOST_PATTERNS: Final = 16  # to choose documents
LONGEST_PATTERN: Final = 256  # bytes of UTF-8 per pattern
MOST_ENTRIES: Final = 4096  # K of the race
MOST_NAMED: Final = 4096  # tokens with values requested by one `Resolve`
MOST_UNITS: Final = 2**12  # units over a proposal's distributions; an index of flat ones is slow to read
MOST_RESOLUTION: Final = 1024  # units of a quantised distribution
MOST_LIKELIEST: Final = 256  # tokens listed for their probability
MOST_TOKENS: Final = 8192  # per answer
MOST_FETCHED: Final = 256  # passages sent for one answer
LARGEST_PROPOSAL: Final = 2**21  # exclusive limit of a proposal's payload in bytes
MOST_PROPOSED: Final = 64  # drafted tokens per proposal
MOST_NODES: Final = 256  # drafted tokens per tree
SEEDS: Final = 2**64  # exclusive limit
DRAWN_SEEDS: Final = 2**53  # exclusive limit of seeds drawn by the software: every JSON reader keeps them exact

# Noise is raised to the power of the temperature. Below this limit float32 can't tell its law from that of 0.
TEMPERATURE: Final = Real(0.01, 2.0, or_zero=True)
WHOLE_SHARE: Final = 255  # in `Contributions`: a token's whole probability


# --- control
# Control tokens in a text, which no text can express.


@dataclass(frozen=True, slots=True)
class Control:
    """A control token before the character at `place`."""

    place: Annotated[int, Count(LONGEST_PROMPT + 1)]
    token: Annotated[int, Count(2**24)]


# --- fields
# Types and bounds shared by several messages.

Side = Literal["device", "cloud"]
OTHER: dict[Side, Side] = {"device": "cloud", "cloud": "device"}
Sampler = Literal["race", "paper", "rejection"]
Placement = Literal["device", "cloud", "greedy", "random", "mirrored"]
Codec = Literal["race", "top-p", "raw"]
Aggregation = Literal["output", "context", "blocks"]
Form = Literal["text", "kv"]
Exactness = Literal["bit-exact", "rounded", "near"]  # of repeated computations, best first

SessionId = Annotated[int, Count(2**32, least=1)]
AnySession = Annotated[int, Count(2**32)]  # 0: the link itself
Epoch = Annotated[int, Count(2**32)]
Position = Annotated[int, Count(2**20)]
Token = Annotated[int, Count(2**24)]
Digest = Annotated[int, Count(2**61)]
Name = Annotated[str, Text(256)]
Question = Annotated[str, Text(LONGEST_QUESTION)]  # text for the library's search
Earlier = Annotated[str, Text(LONGEST_QUESTION)]  # earlier questions that it may follow up on
Wanted = Annotated[int, Count(MOST_DOCUMENTS + 1)]  # documents to retrieve
Patterns = Annotated[  # of allowed documents; empty: all
    tuple[Annotated[str, Text(LONGEST_PATTERN)], ...], Count(MOST_PATTERNS + 1)
]
EosIds = Annotated[tuple[Token, ...], Count(257)]  # end-of-sequence ids, strictly increasing


# --- rounds
# Messages of draft-and-verify answers: the device proposes tokens, and the cloud counts the accepted ones.

Round = Annotated[int, Count(2**32)]


@dataclass(frozen=True, slots=True)
class Propose:
    """Drafted tokens from `position` on, after the prefix with `digest`."""

    session: SessionId
    round: Round  # one more than the previous proposal's
    position: Position  # of the first proposed token
    digest: Annotated[tuple[Digest, ...], Count(2)]  # empty: after the whole proposal of the previous round
    tail: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # tokens before `position` that only the device knows
    tokens: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # empty if the payload names them
    payload: Annotated[bytes, Bytes(LARGEST_PROPOSAL)]  # of the method: the distributions of the drawn tokens


@dataclass(frozen=True, slots=True)
class Defer:
    """Leaves `count` tokens from `position` on to the verifier, which decides without drafts."""

    session: SessionId
    round: Round  # one more than the previous proposal's or deferral's
    position: Position
    digest: Annotated[tuple[Digest, ...], Count(2)]  # empty: after everything deferred in the previous round
    tail: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # tokens before `position` that only the device knows
    count: Annotated[int, Count(MOST_PROPOSED + 1, least=1)]


@dataclass(frozen=True, slots=True)
class Decided:
    """Decided tokens from `position` on, after the prefix with `digest`, proposed or not."""

    session: SessionId
    round: Round  # the last proposal compared, or the deferral; 0: none
    position: Position
    digest: Digest
    tokens: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1, least=1)]
    verify_time: Annotated[int, Count(2**32)]  # microseconds since that proposal's arrival, or of the pass; 0: repeated


@dataclass(frozen=True, slots=True)
class Verdict:
    """Number of accepted tokens from `position` on, and the token after them."""

    session: SessionId
    round: Round  # the last one judged; earlier unjudged ones are judged with it
    position: Position
    accepted: Annotated[int, Count(2**16)]
    token: Annotated[tuple[Token, ...], Count(2)]  # after the accepted ones; empty if the device finds it
    verify_time: Annotated[int, Count(2**32)]  # since the last proposal's arrival
    payload: Annotated[bytes, Bytes(2**21)]  # of the method: the distribution at the rejected token


# --- messages


@dataclass(frozen=True, slots=True)
class Hello:
    """Properties of a side, sent first by the device. The cloud answers `Welcome` or `Error`."""

    role: Side
    model: Name
    tokenizer: Name  # content hash
    vocabulary: Annotated[int, Count(2**24)]
    scorer: Name  # identity of the document weights, compared across sides
    embedder: Name
    codecs: Annotated[tuple[Name, ...], Count(16)]
    decode_intercept: Annotated[float, Real(0.0, 1e9)]  # seconds, profiled line of §5.2
    decode_slope: Annotated[float, Real(-1e9, 1e9)]  # seconds per token of context
    eos: EosIds  # of the model; sides may differ, see `Open.eos`
    library: Name  # content of the cloud's library; a device sends nothing about its own
    exactness: Exactness  # of the model's numbers, determined at loading


@dataclass(frozen=True, slots=True)
class Welcome:
    """The cloud's answer to `Hello`: itself and its limits."""

    hello: Hello
    max_sessions: Annotated[int, Count(2**20)]
    max_tokens: Position
    max_query: Annotated[int, Count(2**16)]  # bytes of UTF-8


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Open:
    """Starts one answer. Contains everything that determines the answer's law."""

    session: SessionId
    method: Name  # of common/methods
    question: Question
    prompt: Annotated[str, Text(LONGEST_PROMPT)]  # every row's text around the document
    documents: Wanted  # of the cloud's own
    seed: Annotated[int, Count(SEEDS)]
    temperature: Annotated[float, TEMPERATURE]
    sampler: Sampler
    codec: Codec
    entries: Annotated[int, Count(MOST_ENTRIES + 1, least=1)]  # K of the race
    exact: bool
    top_p: Annotated[float, Real(0.0, 1.0)]
    placement: Placement
    sources: Literal["both", "cloud"]  # "cloud": the device's documents are unused, and it does not decode
    run_ahead: Annotated[int, Count(4097, least=1)]  # drafts of a side beyond the commits; 1 is synchronous
    max_tokens: Annotated[int, Count(MOST_TOKENS + 1, least=1)]
    aggregation: Aggregation = "output"  # otherwise a side's documents share a row
    trace: bool = False  # the cloud records its work, and sends it as `Spans` before `Closed`
    first: Side = "device"  # aggregator of the first position under placement `greedy`
    eos: EosIds = ()  # the device's: ids that end the answer on both sides
    options: Annotated[str, Text(LONGEST_OPTIONS)] = ""  # of this method only, a JSON object
    controls: Annotated[tuple[Control, ...], Count(MOST_CONTROLS + 1)] = ()  # in the prompt, by place
    likeliest: Annotated[int, Count(MOST_LIKELIEST + 1)] = 0  # most probable tokens added to a race list
    processors: Annotated[str, Text(LONGEST_PROCESSORS)] = ""  # biases, penalties, format: a JSON object
    earlier: Earlier = ""
    only: Patterns = ()  # of the cloud's own documents
    documents_at: Annotated[int, Count(LONGEST_PROMPT + 1)] = 0  # characters of the prompt before the document


@dataclass(frozen=True, slots=True)
class Ready:
    """The cloud has retrieved and prefills. Titles serve the citations."""

    session: SessionId
    titles: Annotated[tuple[Annotated[str, Text(1024)], ...], Count(257)]
    prompt_tokens: Annotated[int, Count(2**24)]
    closest: Annotated[float, Real(-2.0, 2.0)]  # largest retrieval cosine, -1 without documents


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafted token with its distribution, conditioned on the prefix `digest`."""

    session: SessionId
    epoch: Epoch
    position: Position
    digest: Digest
    evidence: Annotated[float, Real(-2e30, 2e30)]  # log h_t^s (Appendix A.1); -1e30 without documents
    decode_time: Annotated[int, Count(2**32)]
    payload: Annotated[bytes, Bytes(2**21)]


@dataclass(frozen=True, slots=True)
class Target:
    """Committed tokens from `position` on, and the aggregator of the next position."""

    session: SessionId
    term: Epoch  # of the aggregation
    position: Position
    tokens: Annotated[tuple[Token, ...], Count(4097, least=1)]
    aggregator: Side


@dataclass(frozen=True, slots=True)
class Resolve:
    """Requests values missing in a certificate: of named tokens, or of a deeper list (`depth` entries)."""

    session: SessionId
    position: Position
    digest: Digest
    ids: Annotated[tuple[Token, ...], Count(MOST_NAMED + 1)]
    depth: Annotated[int, Count(2**24)]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Values that complete a race list at `position`: of the listed or the `depth` fastest tokens."""

    session: SessionId
    position: Position
    digest: Digest
    depth: Annotated[int, Count(2**24)]
    payload: Annotated[bytes, Bytes(2**21)]


@dataclass(frozen=True, slots=True)
class Sync:
    """The sender's committed prefix and its term, after silence, a reconnect or a take-over.

    `wants_reply` asks for the peer's `Sync` and for everything that it has beyond this prefix.
    """

    session: SessionId
    term: Epoch  # of the aggregation
    tokens: Annotated[tuple[Token, ...], Count(2**16)]
    aggregator: Side
    wants_reply: bool


@dataclass(frozen=True, slots=True)
class Close:
    """The device's end of the session; the cloud answers `Closed` and frees it."""

    session: SessionId
    position: Position  # length of the answer


@dataclass(frozen=True, slots=True)
class Closed:
    """The cloud's counts of the session, sent after all `Contributions` and texts."""

    session: SessionId
    drafted: Annotated[int, Count(2**32)]
    accepted: Annotated[int, Count(2**32)]
    rollbacks: Annotated[int, Count(2**32)]
    preempted: Annotated[int, Count(2**32)]
    stale: Annotated[int, Count(2**32)]
    disagreements: Annotated[int, Count(2**32)]
    branches: Annotated[int, Count(2**32)] = 0  # of `drafted`, outside the chain
    used: Annotated[int, Count(2**32)] = 0  # rejections after which a branch continued


@dataclass(frozen=True, slots=True)
class Contributions:
    """Shares of the cloud's documents, and of none, in the tokens.

    uint8 [positions, documents + 1], in parts of 255; all 0 at positions without a draft.
    """

    session: SessionId
    position: Position  # of the first row
    documents: Annotated[int, Count(257)]
    payload: Annotated[bytes, Bytes(2**16)]


@dataclass(frozen=True, slots=True)
class Spans:
    """Part of the cloud's half of a trace: times of its work (payloads/trace.py), without text."""

    session: SessionId
    part: Annotated[int, Count(256)]
    parts: Annotated[int, Count(257)]  # number of parts
    dropped: Annotated[int, Count(2**32)]  # spans that exceeded the cloud's room
    payload: Annotated[bytes, Bytes(2**16)]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Frees the session at once, without an answer."""

    session: SessionId


SEQUENCES = 2**31  # limit of measuring probes' numbers; the link's own, for flow control, are from here to 2^32


@dataclass(frozen=True, slots=True)
class Probe:
    """In-band round-trip measurement; `sent` is the sender's monotonic clock."""

    sequence: Annotated[int, Count(2**32)]
    sent: Annotated[int, Count(2**63)]


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """`received` is the replier's monotonic clock, for changes of one-way delay."""

    sequence: Annotated[int, Count(2**32)]
    sent: Annotated[int, Count(2**63)]
    received: Annotated[int, Count(2**63)]


@dataclass(frozen=True, slots=True)
class Busy:
    """No slot for the session now."""

    session: SessionId
    retry_after: Annotated[int, Count(2**32)]


@dataclass(frozen=True, slots=True)
class Error:
    """A refusal, with a sentence on the difference and the remedy. Session 0 is the link."""

    session: AnySession
    code: Name
    text: Annotated[str, Text(2048)]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Requests documents for the device's own reading. Opens no answer."""

    session: SessionId
    question: Question
    documents: Wanted
    form: Form
    earlier: Earlier = ""
    only: Patterns = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Part `part` of `parts` of the document `index` of `count`.

    Without documents: one message with `count` 0. Before `Closed`: a text to cite, in one part, without similarity
    and title.
    """

    session: SessionId
    index: Annotated[int, Count(MOST_FETCHED)]
    count: Annotated[int, Count(MOST_FETCHED + 1)]
    part: Annotated[int, Count(2**16)]
    parts: Annotated[int, Count(2**16)]
    similarity: Annotated[float, Real(-2.0, 2.0)]  # retrieval cosine
    title: Annotated[str, Text(1024)]
    payload: Annotated[bytes, Bytes(2**21)]  # of the document's UTF-8 text, or of its `kv` payload


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
