"""The report of an answer, and records for it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields, replace
from itertools import pairwise, zip_longest
from statistics import median
from typing import Final

from common.answer.citations import cited_sources
from common.answer.request import Request
from common.answer.values import NOBODY, Asker, Commit, KeptMixture, SideDraft
from common.process.log_lines import AnswerName
from common.tracing.trace import Trace
from proto.framing import PAYLOAD_LIMIT
from proto.messages import (
    WHOLE_SHARE,
    Aggregation,
    Closed,
    Contributions,
    Defer,
    Draft,
    Fetch,
    Fetched,
    Message,
    Open,
    Placement,
    Propose,
    Resolve,
    Resolved,
    Sampler,
    Side,
    Sync,
    Target,
)

# --- contributions
# The cloud's part of a report: document shares, and texts that may be cited.

MOST_TEXT: Final = 2**20  # bytes per answer on the device


def contribution_messages(
    session: int, documents: int, shares: Sequence[Sequence[float]], cloud_shares: Sequence[float | None]
) -> Iterator[Contributions]:
    """Encode `shares` [positions][documents + 1] in messages for any link.

    A row is multiplied by the cloud's share in its token, unless None. It is empty without a draft. Rows from before
    this session are left out.
    """
    if documents == 0:
        return
    rows = PAYLOAD_LIMIT // row_bytes(documents)
    first = next((position for position, row in enumerate(shares) if row), len(shares))
    for start in range(first, len(shares), rows):
        part = slice(start, start + rows)
        payload = b"".join(
            _row(row, documents, share) for row, share in zip(shares[part], cloud_shares[part], strict=True)
        )
        yield Contributions(session, start, documents, payload)


def text_messages(
    session: int,
    texts: Sequence[str],
    pieces: Sequence[str],
    shares: Sequence[Sequence[float]],
    cloud_shares: Sequence[float | None],
) -> Iterator[Fetched]:
    """Yields the texts that an answer may cite, cut to a payload.

    `pieces` are the tokens' texts; `shares` and `cloud_shares` as above.
    """
    count = len(texts)
    scaled = [
        [share * (1.0 if scale is None else scale) for share in (*row[:count], *[0.0] * (count - len(row)))]
        for row, scale in zip(shares, cloud_shares, strict=True)
    ]
    for index in sorted(cited_sources(scaled, pieces)):
        text = texts[index].encode()[:PAYLOAD_LIMIT].decode(errors="ignore")
        yield Fetched(session, index, count, 0, 1, 0.0, "", text.encode())


def row_bytes(documents: int) -> int:
    """One byte per document, and for none."""
    return documents + 1


def _row(shares: Sequence[float], documents: int, cloud_share: float | None) -> bytes:
    scale = WHOLE_SHARE if cloud_share is None else WHOLE_SHARE * cloud_share
    return bytes([_byte(scale * share) for share in shares]).ljust(documents + 1, b"\0")


def _byte(value: float) -> int:
    return min(max(round(value), 0), WHOLE_SHARE) if math.isfinite(value) else 0


class ContributionRows:
    """Collects rows and texts within the answer's length and a text limit."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}  # citable texts by number
        self._text_bytes = 0
        self._documents = 0
        self._data = bytearray()
        self._first: int | None = None  # of a row

    @property
    def size(self) -> int:
        """Bytes up to the last row."""
        return len(self._data)

    def add(self, message: Contributions, positions: int) -> None:
        """Add rows for an answer of `positions` tokens.

        Ignores later rows, as the device may end an answer earlier, and parts that do not fit.
        """
        documents, payload = message.documents, message.payload
        width = row_bytes(documents)
        if not documents or len(payload) % width or self._documents not in (0, documents):
            return
        start = message.position * width
        payload = payload[: max(0, positions * width - start)]
        if not payload:
            return
        self._documents = documents
        self._first = message.position if self._first is None else min(self._first, message.position)
        self._data.extend(bytes(max(0, start - len(self._data))))
        self._data[start : start + len(payload)] = payload

    def add_text(self, message: Fetched, documents: int) -> None:
        """Add a text; ignore an invalid or misplaced one."""
        self._text_bytes += len(message.payload)
        whole = message.count == documents and message.index < documents and message.parts == 1
        if whole and self._text_bytes <= MOST_TEXT:
            with suppress(UnicodeDecodeError):
                self.texts[message.index] = message.payload.decode()

    def shares(self, documents: int) -> list[tuple[float, ...]]:
        """Shares [positions][documents + 1], the last of no document; empty for another number."""
        return [tuple(value / WHOLE_SHARE for value in row) for row in self._rows(documents)]

    def known(self, documents: int) -> range:
        """Positions with rows; empty for another number of documents."""
        if self._first is None or documents != self._documents:
            return range(0)
        return range(self._first, len(self._data) // row_bytes(documents))

    def _rows(self, documents: int) -> Iterator[bytes]:
        width = row_bytes(documents)
        data = self._data if documents == self._documents else b""
        return (bytes(data[start : start + width]) for start in range(0, len(data), width))


# --- sent


NOTHING_SENT: Final = "Nothing of this answer left this device."
SENT_NAMES: Final = {
    "question": "the question",
    "earlier_turns": "earlier turns",
    "tokens": "the answer's tokens",
    "probabilities": "probabilities",
    "control": "control messages",
}


@dataclass(slots=True)
class SentBytes:
    """Bytes that left the device for one answer, each counted once."""

    question: int = 0  # with instructions, tools and settings
    earlier_turns: int = 0  # conversation before the question
    tokens: int = 0  # tokens, and requests for values at their positions
    probabilities: int = 0  # drafts with distributions and evidence, and single values
    control: int = 0  # session ends, and errors about the cloud's messages

    def count(self, message: Message, size: int, history: int, sampler: Sampler) -> None:
        """Count `message` with `size` bytes on the wire.

        `history`: prompt bytes of earlier turns. Proposals of sampler `race` contain only tokens.
        """
        match message:
            case Open() | Fetch():
                earlier = len(message.earlier.encode()) + (history if isinstance(message, Open) else 0)
                self.question += size - earlier
                self.earlier_turns += earlier
            case Draft() | Resolved():
                self.probabilities += size
            case Propose() if sampler != "race":
                distributions = len(message.payload)
                self.tokens += size - distributions
                self.probabilities += distributions
            case Propose() | Defer() | Target() | Sync() | Resolve():
                self.tokens += size
            case _:
                self.control += size

    @property
    def total(self) -> int:
        return sum(astuple(self))

    @property
    def exchange(self) -> int:
        """Bytes of the messages that decide tokens."""
        return self.tokens + self.probabilities


def sent_in_words(sent: SentBytes) -> str:
    """Total, parts, and data that stayed here, in words."""
    if not sent.total:
        return NOTHING_SENT
    parts = [f"{name} ({size:,} B)" for part, name in SENT_NAMES.items() if (size := getattr(sent, part))]
    return f"{sent.total:,} B left this device: {', '.join(parts)}. {_kept(sent)}"


def _kept(sent: SentBytes) -> str:
    quoting = bool(sent.earlier_turns or sent.exchange)
    text = "No text of your documents except what answers quote" if quoting else "No text of your documents"
    if sent.probabilities:
        return f"{text}. The probabilities depend on the documents that this device read."
    return f"{text}, and no probabilities."


# --- report

NOTED_WAIT = 1.0  # seconds; shorter waits are not reported


@dataclass(frozen=True, slots=True)
class Origin:
    """A passage's document and location in this device's library."""

    path: str  # relative to the added folder
    place: str  # e.g. «page 3»; may be empty
    chunk: int | None  # number in the library; None: a file of the request
    similarity: float  # cosine with the question


@dataclass(frozen=True, slots=True)
class Source:
    """A document that took part."""

    side: Side
    title: str
    origin: Origin | None = None  # for a passage of the device's library


@dataclass(frozen=True, slots=True)
class SideReport:
    """One side's work."""

    drafted: int = 0
    accepted: int = 0
    rollbacks: int = 0
    preempted: int = 0
    stale: int = 0  # fenced messages
    branches: int = 0  # drafts beside the chain
    used: int = 0  # rejections that continued on a branch, saving round trips
    decode_ms: float = 0.0  # median decode step

    @property
    def acceptance(self) -> float | None:
        """Accepted share of aggregated drafts; None before the first."""
        judged = self.accepted + self.rollbacks
        return self.accepted / judged if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """A method's part of the report."""

    device: SideReport = SideReport()
    cloud: SideReport = SideReport()
    switches: int = 0
    certificate_failures: int = 0
    disagreements: int = 0
    degraded: tuple[int, ...] = ()  # decided by the device alone
    # [tokens][sources]: each source's share; the rest belongs to no document
    attribution: tuple[tuple[float, ...], ...] = ()
    # number of tokens without the cloud's shares, as its report is missing
    unattributed: int = 0
    # per token: whether the draft of (device, cloud) was it; None without a draft here
    accepted: tuple[tuple[bool | None, bool | None], ...] = ()
    # per token: Eq. 5 of (device, cloud); None if the cloud decided, and for `race`
    expected: tuple[tuple[float, float] | None, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)  # the method's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(MethodReport):
    """Figures, sources and notes of an answer, sent with it."""

    request: str  # session number in hex, the answer's name in both daemons' logs
    tokens: int
    prompt_tokens: int
    seconds: float
    ttft: float  # seconds to the first token
    inter_token: float  # median seconds between later tokens
    per_token: float  # (seconds - ttft) / (tokens - 1)
    sent: SentBytes  # device -> cloud
    received_bytes: int  # cloud -> device, deciding tokens (not `LIFECYCLE`)
    fetched_bytes: int  # of documents
    rtt_ms: float | None
    seed: int
    weights: str  # of the device's model, readable: `int4`, or the number of matrices per format
    method: str
    aggregation: Aggregation
    sampler: Sampler
    placement: Placement
    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()  # sentences for the user
    closest: float | None = None  # largest cosine with the question; None if unknown
    passages: tuple[str | None, ...] = ()  # of `sources`, None if unknown
    unmatched: bool = False  # no document is close to the question
    refused: bool = False  # the answer is the refusal that the request wants if unmatched
    trace: Trace | None = None  # None unless requested

    @property
    def sent_bytes(self) -> int:
        return self.sent.total


@dataclass(slots=True)
class Record:
    """Figures of a request, with times in seconds of a monotonic clock."""

    started: float
    seed: int
    session: int
    weights: str = ""  # of the device's model
    token_times: list[float] = field(default_factory=list)
    device_titles: tuple[str, ...] = ()
    origins: tuple[Origin | None, ...] = ()  # of the device's documents, None if unknown
    cloud_titles: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # of all documents that the device reads, in title order
    cloud_closest: float | None = None  # largest cosine of the cloud's documents, None if unknown
    own_closest: float = -1.0  # the device's
    closest: float | None = None  # both sides', None if unknown
    unmatched: bool = False  # no document is close to the question
    refused: bool = False  # unmatched, and the request wants a refusal then
    device_prompt_tokens: int = 0
    cloud_prompt_tokens: int = 0  # of the latest cloud
    sent: SentBytes = field(default_factory=SentBytes)
    received_bytes: int = 0
    fetched_bytes: int = 0
    alone: bool = False  # although the cloud was wanted
    contributions: ContributionRows = field(default_factory=ContributionRows)  # the cloud's
    notes: list[str] = field(default_factory=list)
    memory_wait: float = 0.0  # seconds for KV memory
    begun: float = 0.0  # after reading the request's files
    asker: Asker = NOBODY
    progress: tuple[int, int] = (0, 0)  # tokens of the prompt read so far, and in all

    def read(self, done: int, total: int) -> None:
        """Note how many tokens of the prompt are read."""
        self.progress = done, total

    def waited(self, seconds: float) -> None:
        """Note the wait for KV memory."""
        self.memory_wait = max(self.memory_wait, seconds)

    @property
    def passages(self) -> tuple[str | None, ...]:
        """Texts of the sources, device first; None if unknown."""
        sources = len(self.device_titles) + len(self.cloud_titles)
        if len(self.texts) == sources:  # the device has read all of them
            return self.texts
        theirs = map(self.contributions.texts.get, range(len(self.cloud_titles)))
        return (*self.texts, *[None] * (len(self.device_titles) - len(self.texts)), *theirs)


def build_report(request: Request, record: Record, part: MethodReport, rtt: float | None, ended: float) -> Report:
    """Build the report of an answer that ended at `ended`; `rtt` in seconds."""
    times = record.token_times
    gaps = [later - earlier for earlier, later in pairwise(times)]
    last = times[-1] if times else ended
    notes = tuple(record.notes)
    if record.memory_wait >= NOTED_WAIT:
        notes += (f"The answer waited {record.memory_wait:.0f} s for memory (kv_bytes) that other answers used.",)
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    sources = tuple(Source("device", *each) for each in zip_longest(record.device_titles, record.origins)) + tuple(
        Source("cloud", title) for title in record.cloud_titles
    )
    if record.refused:  # the drafts were not shown
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
        sent=replace(record.sent),
        received_bytes=record.received_bytes,
        fetched_bytes=record.fetched_bytes,
        rtt_ms=None if rtt is None else 1000 * rtt,
        seed=record.seed,
        weights=record.weights,
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


# --- record

RECENT = 256  # times per median


class AnswerRecord:
    """Shares of this side's documents and of the cloud, under the answer's lock."""

    def __init__(self) -> None:
        self.shares: list[tuple[float, ...]] = []  # [positions][docs + 1], empty without a draft
        self.cloud_shares: list[float | None] = []
        self.apart = True  # separate rows, or read again separately
        self.accepted: list[tuple[bool | None, bool | None]] = []  # (device, cloud); None without a draft here
        self.expected: list[tuple[float, float] | None] = []  # (device, cloud), Eq. 5
        self._remote_times: deque[float] = deque(maxlen=RECENT)  # milliseconds
        self._mixtures: dict[int, KeptMixture] = {}

    def drafted(self, position: int, drafts: Sequence[SideDraft]) -> None:
        """Keep the drafts' mixtures until decided."""
        for place, draft in enumerate(drafts, position):
            self._mixtures[place] = draft.mixing

    def remote_decode(self, microseconds: int) -> None:
        """Note a step on the other side."""
        self._remote_times.append(microseconds / 1e3)

    @property
    def remote_decode_ms(self) -> float:
        """Median of the other side's latest steps, 0 before the first."""
        return median(self._remote_times) if self._remote_times else 0.0

    def forget_before(self, position: int) -> None:
        """Forget late drafts of decided positions."""
        if self._mixtures:
            for late in [each for each in self._mixtures if each < position]:
                del self._mixtures[late]

    def commit(self, commit: Commit, role: Side) -> None:
        """Note a decision on side `role`; skipped positions were decided elsewhere."""
        if commit.position != len(self.shares):
            self._cut(commit.position)
        mixture = self._mixtures.pop(commit.position, commit.mixing)
        if commit.accepted.get(role) is False:
            self._mixtures.clear()  # followed the rejected one
        self.shares.append(tuple(map(float, mixture.contributions(commit.token))))
        self.cloud_shares.append(commit.cloud_share)
        self.accepted.append((commit.accepted.get("device"), commit.accepted.get("cloud")))
        self.expected.append(commit.expected)

    def take(self, shares: Sequence[tuple[float, ...]]) -> None:
        """Take the shares of a second, separate reading."""
        self.shares[: len(shares)] = shares
        self.apart = True

    def withdraw(self, position: int) -> None:
        """Forget the decisions from `position` on."""
        if position < len(self.shares):
            self._cut(position)

    def _cut(self, length: int) -> None:
        more = length - len(self.shares)
        if more > 0:
            self.shares += [()] * more
            self.cloud_shares += [None] * more
            self.accepted += [(None, None)] * more
            self.expected += [None] * more
        elif more < 0:
            del self.shares[length:], self.cloud_shares[length:], self.accepted[length:], self.expected[length:]


# --- attribution
# A side's share in the token times the document's share within the side.
#
# The rest belongs to no document: the model's own knowledge.

DIGITS = 4
UNREAD = "This answer has no citations: the share of each document could not be computed."


@dataclass(frozen=True, slots=True)
class SourceShares:
    """Shares [tokens][sources]; in `unknown` tokens the cloud's are missing and 0.

    For example, from before a lost connection.
    """

    shares: tuple[tuple[float, ...], ...] = ()
    unknown: int = 0


def untold(unknown: int, tokens: int) -> str:
    of = f"{unknown} of {tokens}"
    return f"The cloud did not send the shares of its documents for {of} tokens: their citations are missing."


def attribute_to_both(
    record: Record, outcome: AnswerRecord, degraded: Collection[int], closed: Closed | None
) -> SourceShares:
    """Shares, the device's documents first; `closed` is None without the cloud's part."""
    cloud_rows, known = _cloud_rows(record, closed), _known(record, closed)
    devices, clouds = len(record.device_titles), len(record.cloud_titles)
    rows, unknown = [], 0
    for position, cloud_share in enumerate(outcome.cloud_shares[: len(record.token_times)]):
        from_cloud = cloud_rows[position] if position < len(cloud_rows) else ()
        total = sum(from_cloud)
        missing = clouds > 0 and position not in degraded and position not in known and cloud_share != 0.0
        unknown += missing
        if position in degraded:
            share = 0.0
        elif missing and cloud_share is None:
            share = 1.0  # the device's are unknown
        elif cloud_share is None:
            share = total  # the cloud scaled its row, or answered alone
        else:
            share = cloud_share
        device = outcome.shares[position] or (0.0,) * devices
        row = [(1.0 - share) * part for part in device[:devices]]
        row += [share * part / total if total else 0.0 for part in from_cloud[:clouds]]
        row += [0.0] * (devices + clouds - len(row))
        rows.append(tuple(round(part, DIGITS) for part in row))
    return SourceShares(tuple(rows), unknown)


def attribute_to_device(record: Record, shares: Sequence[Sequence[float]]) -> SourceShares:
    """Shares if this device read everything; `shares` [tokens][documents + 1]."""
    sources = len(record.device_titles) + len(record.cloud_titles)  # without the share of no document
    told = shares[: len(record.token_times)]
    return SourceShares(tuple(tuple(round(share, DIGITS) for share in row[:sources]) for row in told))


def attribute_to_cloud(record: Record, degraded: Collection[int], closed: Closed | None) -> SourceShares:
    """Shares of the cloud's documents alone; 0 in `degraded` tokens."""
    rows, known, nothing = _cloud_rows(record, closed), _known(record, closed), (0.0,) * len(record.cloud_titles)
    tokens = range(len(record.token_times))
    told = (rows[place][:-1] if place in known and place not in degraded else nothing for place in tokens)
    shares = tuple(tuple(round(share, DIGITS) for share in row) for row in told) if rows else ()
    return SourceShares(shares, sum(place not in known and place not in degraded for place in tokens) if nothing else 0)


def _cloud_rows(record: Record, closed: Closed | None) -> list[tuple[float, ...]]:
    """[positions][documents + 1]."""
    return [] if closed is None else record.contributions.shares(len(record.cloud_titles))


def _known(record: Record, closed: Closed | None) -> range:
    return range(0) if closed is None else record.contributions.known(len(record.cloud_titles))
