"""The daemons' view of a decoding method.

A method is a state machine per side. They exchange messages and request distributions from the engine
(`common/engine/jobs.py`: `Client`). docs/contributing.md describes how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from common.answer.report import MethodReport, Record
from common.answer.request import Request, RequestError, failure_message
from common.answer.values import Phase
from common.processors.calls import encode_options
from proto.messages import (
    LONGEST_PROCESSORS,
    Busy,
    Cancel,
    Close,
    Closed,
    Codec,
    Contributions,
    Error,
    Fetch,
    Hello,
    Message,
    Open,
    Ready,
    Side,
    Spans,
)

if TYPE_CHECKING:
    from common.answer.patience import WaitLimits
    from common.answer.recorder import Recorder
    from common.answer.report import AnswerRecord
    from common.answer.values import Commit
    from common.daemon.side import Scope, SideRuntime
    from common.engine.jobs import Prompt
    from common.estimates.profiler import PeerEstimates


# Messages of every session; a half gets only `Ready`.
LIFECYCLE = (Open, Fetch, Ready, Close, Closed, Contributions, Spans, Cancel, Busy, Error)


class Cloud(Protocol):
    """The cloud for a device's answers. Any thread may call it."""

    @property
    def connected(self) -> bool:
        """Whether the cloud is available now."""
        ...

    @property
    def absence(self) -> str:
        """A sentence for the user about the cloud's absence."""
        ...

    @property
    def hello(self) -> Hello | None:
        """The cloud's description; None without a handshake."""
        ...

    @property
    def peer(self) -> PeerEstimates: ...

    def observe_acceptance(self, commit: Commit) -> None:
        """Note a position decided by both sides' drafts."""
        ...

    def decoded(self, context: int, seconds: float) -> None:
        """Note this side's decode step for an answer with the cloud."""
        ...

    def waited(self, seconds: float) -> None:
        """Note a wait for the cloud. On the scheduler thread."""
        ...

    def limits(self, read: bool, prompt_tokens: int = 0, tokens: int = 0, step: float | None = None) -> WaitLimits:
        """Limits on the wait for the cloud. On the scheduler thread.

        `read`: the cloud has read its prompt, else it announced `prompt_tokens`. It generates `tokens` before it sends
        anything. `step`: its announced seconds per pass, unless that is a decode step.
        """
        ...


class DeviceContext(Protocol):
    """A device half's surroundings. Used from any thread."""

    request: Request
    opening: Open  # all parameters of the answer's distribution
    record: Record
    phase: Phase

    @property
    def side(self) -> SideRuntime: ...

    @property
    def cloud(self) -> Cloud: ...

    @property
    def scope(self) -> Scope:
        """This device's documents for the answer. The selection stays here."""
        ...

    def trace(self, aggregator: Side, alone: bool) -> Recorder | None:
        """The answer's trace, or None; `aggregator` decides the first position."""
        ...

    def send(self, message: Message) -> None:
        """Send to a participating cloud."""
        ...

    def note(self, sentence: str, absence: bool = False) -> None:
        """Show the user a sentence once. `absence`: it explains tokens without the cloud."""
        ...

    def silent(self, now: float) -> float:
        """Seconds since the last token, or the request."""
        ...

    def reread(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Read the finished answer again after each document, if several share a row.

        `apart` has them in separate rows, None if they already are. `record` gets the result.
        """
        ...

    def committed(self, commit: Commit) -> bool:
        """Show a final token. Returns whether the answer goes on."""
        ...

    def provisional(self, drafts: Sequence[int]) -> None:
        """Show provisional tokens in place of earlier ones."""
        ...

    def withdrawn(self, position: int) -> None:
        """Never called: shown tokens are final."""
        ...

    def ended(self, failure: Exception | None) -> None:
        """End the output; `failure` explains an incomplete answer."""
        ...


class DeviceHalf(Protocol):
    """One answer on the device. Any thread may call it; exceptions end the answer."""

    @property
    def over(self) -> bool:
        """Whether nothing more will be shown."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether only the cloud can advance the answer."""
        ...

    @property
    def away(self) -> bool:
        """Whether the cloud counts as away; the report then does not wait for it."""
        ...

    def start(self, absence: str | None) -> None:
        """Begin the answer; `absence` explains a missing cloud."""
        ...

    def receive(self, message: Message) -> None:
        """Process a message. Raises `ProtocolError` if it is malformed."""
        ...

    def without_cloud(self, sentence: str) -> None:
        """Continue without the cloud for the reason `sentence`, unless its part is done."""
        ...

    def reconnected(self) -> None:
        """Use a reconnected, perhaps different cloud, which does not know the session."""
        ...

    def tick(self, now: float) -> None:
        """Check the clock, about fifty times per second."""
        ...

    def end(self, failure: Exception | None) -> None:
        """Stop: cancelled or failed."""
        ...

    def report(self, closed: Closed | None) -> MethodReport:
        """This method's report; `closed` is the cloud's, or None."""
        ...


class CloudHalf(Protocol):
    """One session on the cloud. Any thread may call it; exceptions end the session."""

    began: float  # monotonic seconds
    slow: bool  # a separate thread receives messages, in order

    def begin(self) -> None:
        """Start the work."""
        ...

    def check(self, message: Message) -> None:
        """Reject a message cheaply on the link's thread, before `receive`, if `slow`.

        Raises `ProtocolError`.
        """
        ...

    def receive(self, message: Message) -> None:
        """Process a message. Raises `ProtocolError` if it is malformed."""
        ...

    def tick(self, now: float, run_ahead: int) -> None:
        """Check the clock; `run_ahead` is this cloud's limit of held drafts."""
        ...

    def silent(self, now: float) -> float:
        """Seconds since the device sent or accepted data."""
        ...

    def given_up(self) -> Error:
        """The error for a silent device."""
        ...

    def finish(self, done: Callable[[], object]) -> None:
        """Stop, complete the cloud's report, and call `done` on any thread."""
        ...

    def closing(self) -> Iterator[Message]:
        """End the session; yields the messages of the cloud's report, `Closed` last."""
        ...

    def end(self) -> None:
        """Stop: closed, cancelled, given up, or the device is gone."""
        ...


@dataclass(frozen=True, slots=True)
class CloudContext:
    """A session's surroundings on the cloud."""

    side: SideRuntime
    estimates: PeerEstimates  # of the device
    send: Callable[[Message], int]  # returns the bytes sent, 0 if dropped
    queued: Callable[[], int]  # bytes waiting in the link for the device
    over: Callable[[CloudHalf], None]  # called when the session ends by itself, after any `Error`
    # Reserves an answer's bytes of KV memory. Raises `NoPlace`.
    reserve: Callable[[CloudHalf, int], None]
    decodes_on: Callable[[], bool] = lambda: True  # whether an answer may decode unrequested
    tenant: Hashable = None  # owner of the answer, for fair shares; None: this daemon's user
    waited: Callable[[float], object] = lambda seconds: None  # gets the seconds of the wait for memory

    def failed(self, half: CloudHalf, session: int, failure: Exception) -> None:
        """Send the error to the device, then end the session here."""
        self.send(failure_message(session, failure))
        self.over(half)


class Method(Protocol):
    """A decoding method. Its module imports quickly, for the command line's options."""

    name: ClassVar[str]
    request: ClassVar[type[Request]]  # its options and their limits

    def check(self, request: Request) -> None:
        """Raise `RequestError`, one sentence naming the field, for incompatible options.

        Numbers from private documents may leave the device only under privacy 'balanced'.
        """
        ...

    def opening(self, request: Request, opening: Open) -> Open:
        """The session to open, from the common values."""
        ...

    def device(self, context: DeviceContext) -> DeviceHalf:
        """Make the device's half. Raises `RequestError`, or `AnswerFailed` without a needed cloud."""
        ...

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        """Make the cloud's half. Raises `ValueError`, one sentence, for an unservable request."""
        ...


# --- checks
# Each raises `RequestError`, one sentence that names the field.

# Defaults first.
CODECS: dict[str, tuple[Codec, ...]] = {
    "race": ("race",),
    "paper": ("top-p", "raw"),
    "rejection": ("race",),
}
TOP_P = {"race": 1.0, "paper": 0.8, "rejection": 1.0}  # defaults


def codec_of(request: Request) -> Codec:
    return request.codec or CODECS[request.sampler][0]


def top_p_of(request: Request) -> float:
    """The kept mass of each side's mixture."""
    return TOP_P[request.sampler] if request.top_p is None else request.top_p


def check_sampler(request: Request) -> None:
    """Refuse another sampler's codec, and 'mirrored' without the race.

    Only in the race do both sides find the same token.
    """
    if request.sampler == "rejection":
        raise RequestError("Sampler 'rejection' is only for methods that draft and verify.", "sampler")
    allowed = CODECS[request.sampler]
    if request.codec is not None and request.codec not in allowed:
        raise RequestError(f"The {request.sampler} sampler sends {' or '.join(allowed)}, not {request.codec}.", "codec")
    if request.sampler == "paper" and request.placement == "mirrored":
        raise RequestError("Placement 'mirrored' needs the race sampler.", "placement")
    check_processors(request)


def check_processors(request: Request) -> None:
    """Refuse processors too long for `Open`."""
    if len(encode_options(request).encode()) > LONGEST_PROCESSORS:
        raise RequestError(
            f"The format of the answer, its tools and the biases are too long: {LONGEST_PROCESSORS} bytes of JSON at "
            "most, without the descriptions in schemas.",
            "response_format" if request.calls is None else "tools",
        )


def check_documents(request: Request) -> None:
    """Refuse patterns and files of a side that takes no part."""
    for side, other, patterns in (
        ("device", "cloud", request.device_documents),
        ("cloud", "device", request.cloud_documents),
    ):
        if patterns and request.sources == other:
            raise RequestError(
                f"Sources {other!r} leave out the {side}'s documents: {side}_documents can't choose any of them.",
                f"{side}_documents",
            )
    if request.files and request.sources == "cloud":
        raise RequestError("Sources 'cloud' leave out the device's documents: files can't be used.", "files")
    if request.files and not request.documents:
        raise RequestError("With documents = 0 none of the files would be read: leave one of the two out.", "documents")
    if request.files and request.device_documents:
        raise RequestError(
            "A request with files uses no other documents of this device: leave device_documents out.",
            "device_documents",
        )


def check_both_sources(request: Request) -> None:
    if request.sources != "both":
        raise RequestError(
            f"Method {request.method!r} joins both sides' documents: sources can't be {request.sources!r}.", "method"
        )


def check_logprobs(request: Request) -> None:
    """Refuse log-probabilities unless the device sees both distributions before each decision."""
    if request.top_logprobs is None:
        return
    if request.sampler != "race" or request.placement != "device" or request.sources == "cloud":
        raise RequestError(
            "Log-probabilities need the race sampler, placement 'device', and sources 'both' or 'device'.", "logprobs"
        )
