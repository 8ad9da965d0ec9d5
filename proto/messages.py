"""Every message of the protocol as a frozen value (docs/protocol.md is the normative text).

`framing.py` refuses what is outside of the `Annotated` limits. Integers are unsigned, times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

# --- bounds
# Limits that a field of a message carries in its type.


@dataclass(frozen=True, slots=True)
class Count:
    """An integer from `least` on and below `limit`; on a tuple, as many items."""

    limit: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number in [low, high], or 0 where `or_zero`."""

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
# Limits of a request that hold on the wire, in HTTP bodies and on the command line alike.

LONGEST_QUESTION: Final = 2**14  # bytes of UTF-8 that libraries are searched for
LONGEST_PROMPT: Final = 2**15  # bytes of UTF-8 of the query part of every row
MOST_CONTROLS: Final = 4096  # control tokens in it
LONGEST_OPTIONS: Final = 4096  # bytes of JSON of the options that only one method has
LONGEST_PROCESSORS: Final = 2**13  # bytes of JSON of what changes an answer's distribution
MOST_BIASES: Final = 300  # tokens that it may name
MOST_DOCUMENTS: Final = 64  # that one side retrieves for an answer
MOST_PATTERNS: Final = 16  # by which documents are chosen
LONGEST_PATTERN: Final = 256  # bytes of UTF-8 of each
MOST_ENTRIES: Final = 4096  # K of the race
MOST_NAMED: Final = 4096  # tokens whose values one `Resolve` asks for
MOST_UNITS: Final = 2**12  # of all distributions of a proposal: an index of flat ones takes long to read
MOST_RESOLUTION: Final = 1024  # units that a quantised distribution is divided into
MOST_LIKELIEST: Final = 256  # tokens that are listed because they are probable
MOST_TOKENS: Final = 8192  # of an answer
MOST_FETCHED: Final = 256  # passages that one answer is handed
LARGEST_PROPOSAL: Final = 2**21  # a proposal's payload is below that, in bytes
MOST_PROPOSED: Final = 64  # drafted tokens of one proposal
MOST_NODES: Final = 256  # drafted tokens of a tree
SEEDS: Final = 2**64  # seeds are below it
DRAWN_SEEDS: Final = 2**53  # the same of those that nobody chose: every reader of JSON keeps such a number

# Noise is raised to the power of the temperature: below the least one, float32 could not tell its law from that of 0.
TEMPERATURE: Final = Real(0.01, 2.0, or_zero=True)
WHOLE_SHARE: Final = 255  # in `Contributions`: all of a token's probability


# --- control
# Control tokens in a text, which no text can spell out.


@dataclass(frozen=True, slots=True)
class Control:
    """A control token in a text, before the character at `place`."""

    place: Annotated[int, Count(LONGEST_PROMPT + 1)]
    token: Annotated[int, Count(2**24)]


# --- fields
# Types and bounds of the fields that several messages have.

Side = Literal["device", "cloud"]
OTHER: dict[Side, Side] = {"device": "cloud", "cloud": "device"}
Sampler = Literal["race", "paper", "rejection"]
Placement = Literal["device", "cloud", "greedy", "random", "mirrored"]
Codec = Literal["race", "top-p", "raw"]
Aggregation = Literal["output", "context", "blocks"]
Form = Literal["text", "kv"]
Exactness = Literal["bit-exact", "rounded", "near"]  # of repeated computations, the best first

SessionId = Annotated[int, Count(2**32, least=1)]
AnySession = Annotated[int, Count(2**32)]  # 0: the link itself
Epoch = Annotated[int, Count(2**32)]
Position = Annotated[int, Count(2**20)]
Token = Annotated[int, Count(2**24)]
Digest = Annotated[int, Count(2**61)]
Name = Annotated[str, Text(256)]
Question = Annotated[str, Text(LONGEST_QUESTION)]  # what is looked up in the library
Earlier = Annotated[str, Text(LONGEST_QUESTION)]  # questions of the conversation that it may follow up on
Wanted = Annotated[int, Count(MOST_DOCUMENTS + 1)]  # documents to retrieve
Patterns = Annotated[  # of the documents that may be retrieved; none: all
    tuple[Annotated[str, Text(LONGEST_PATTERN)], ...], Count(MOST_PATTERNS + 1)
]
EosIds = Annotated[tuple[Token, ...], Count(257)]  # end-of-sequence ids, strictly increasing


# --- rounds
# Messages of draft-and-verify answers: the device proposes tokens, the cloud says how many of them hold.

Round = Annotated[int, Count(2**32)]


@dataclass(frozen=True, slots=True)
class Propose:
    """Drafted tokens from `position` on, behind the prefix with `digest`."""

    session: SessionId
    round: Round  # one more than that of the proposal before
    position: Position  # of the first proposed token
    digest: Annotated[tuple[Digest, ...], Count(2)]  # none: behind the proposal of the round before, as a whole
    tail: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # tokens before `position` that only the device knows
    tokens: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # empty where the payload names them
    payload: Annotated[bytes, Bytes(LARGEST_PROPOSAL)]  # of the method: the distributions that tokens were drawn from


@dataclass(frozen=True, slots=True)
class Defer:
    """Leaves `count` tokens from `position` on to the verifier, which decides them one by one, without drafts."""

    session: SessionId
    round: Round  # one more than that of the proposal, or of what was deferred, before
    position: Position
    digest: Annotated[tuple[Digest, ...], Count(2)]  # none: behind what the round before deferred, as a whole
    tail: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # tokens before `position` that only the device knows
    count: Annotated[int, Count(MOST_PROPOSED + 1, least=1)]


@dataclass(frozen=True, slots=True)
class Decided:
    """Tokens from `position` on, behind the prefix with `digest`, whether they were proposed or not."""

    session: SessionId
    round: Round  # the last proposal that they were compared with, or the one that deferred them; 0: none
    position: Position
    digest: Digest
    tokens: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1, least=1)]
    verify_time: Annotated[int, Count(2**32)]  # microseconds from that proposal's arrival on, or of the pass; 0: again


@dataclass(frozen=True, slots=True)
class Verdict:
    """Number of proposed tokens from `position` on that are part of the answer, and the token behind them."""

    session: SessionId
    round: Round  # the last one that is judged; those before it that were not are judged with it
    position: Position
    accepted: Annotated[int, Count(2**16)]
    token: Annotated[tuple[Token, ...], Count(2)]  # the one behind the accepted ones; none where the device finds it
    verify_time: Annotated[int, Count(2**32)]  # from the last proposal's arrival on
    payload: Annotated[bytes, Bytes(2**21)]  # of the method: the distribution at the rejected token


# --- messages


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
    prompt: Annotated[str, Text(LONGEST_PROMPT)]  # the query part of every row
    documents: Wanted  # of the cloud's own
    seed: Annotated[int, Count(SEEDS)]
    temperature: Annotated[float, TEMPERATURE]
    sampler: Sampler
    codec: Codec
    entries: Annotated[int, Count(MOST_ENTRIES + 1, least=1)]  # K of the race
    exact: bool
    top_p: Annotated[float, Real(0.0, 1.0)]
    placement: Placement
    sources: Literal["both", "cloud"]  # "cloud": the device's documents take no part and it does not decode
    run_ahead: Annotated[int, Count(4097, least=1)]  # drafts a side may hold beyond the commits; 1 is synchronous
    max_tokens: Annotated[int, Count(MOST_TOKENS + 1, least=1)]
    aggregation: Aggregation = "output"  # else the documents that a side has share a row
    trace: bool = False  # the cloud notes what it does when, and sends it as `Spans` before `Closed`
    first: Side = "device"  # who aggregates the first position under placement `greedy`
    eos: EosIds = ()  # the device's: what ends the answer on both sides
    options: Annotated[str, Text(LONGEST_OPTIONS)] = ""  # of this method alone, a JSON object
    controls: Annotated[tuple[Control, ...], Count(MOST_CONTROLS + 1)] = ()  # in the prompt, by place
    likeliest: Annotated[int, Count(MOST_LIKELIEST + 1)] = 0  # most probable tokens that a race list has, too
    processors: Annotated[str, Text(LONGEST_PROCESSORS)] = ""  # biases, penalties, format: a JSON object
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
    term: Epoch  # of the aggregation
    position: Position
    tokens: Annotated[tuple[Token, ...], Count(4097, least=1)]
    aggregator: Side


@dataclass(frozen=True, slots=True)
class Resolve:
    """Ask for values that a certificate lacks: of named tokens, or of a deeper list (`depth` entries)."""

    session: SessionId
    position: Position
    digest: Digest
    ids: Annotated[tuple[Token, ...], Count(MOST_NAMED + 1)]
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
    term: Epoch  # of the aggregation
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


SEQUENCES = 2**31  # of probes that measure; those from here to 2^32 are the link's own, for flow control


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
    index: Annotated[int, Count(MOST_FETCHED)]
    count: Annotated[int, Count(MOST_FETCHED + 1)]
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
