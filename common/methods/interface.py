"""The daemons' view of a decoding method.

A method is two state machines, one per side. They exchange messages and request distributions from the engine
(`common/engine/jobs.py`: `Client`). docs/contributing.md describes how to add a method.
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


# Messages of every session, for any method; a half gets only `Ready`.
LIFECYCLE = (Open, Fetch, Ready, Close, Closed, Contributions, Spans, Cancel, Busy, Error)


class Cloud(Protocol):
    """The cloud for the answers on a device. Any thread may call it."""

    @property
    def connected(self) -> bool:
        """Whether the cloud is available now."""
        ...

    @property
    def absence(self) -> str:
        """A sentence that explains the cloud's absence to the user."""
        ...

    @property
    def hello(self) -> Hello | None:
        """The cloud's description; None without a handshake."""
        ...

    @property
    def peer(self) -> PeerEstimates: ...

    def observe_acceptance(self, commit: Commit) -> None:
        """Note a position that both sides' drafts decided."""
        ...

    def decoded(self, context: int, seconds: float) -> None:
        """Note a decode step of this side for an answer with the cloud."""
        ...

    def waited(self, seconds: float) -> None:
        """Note this answer's wait for the cloud. On the scheduler thread."""
        ...

    def limits(self, read: bool, prompt_tokens: int = 0, tokens: int = 0, step: float | None = None) -> WaitLimits:
        """Limits on this answer's wait for the cloud. On the scheduler thread.

        `read`: the cloud has read its prompt; otherwise it has announced `prompt_tokens`. It generates `tokens` before
        it sends anything. `step`: seconds per pass that the cloud announced, if a pass is not a decode step.
        """
        ...


class DeviceContext(Protocol):
    """The surroundings of a device's half. Used from any thread."""

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
        """The documents of this device that the answer may use. The selection stays here."""
        ...

    def trace(self, aggregator: Side, alone: bool) -> Recorder | None:
        """The trace of this answer, or None; `aggregator` decides the first position."""
        ...

    def send(self, message: Message) -> None:
        """Send to the cloud, if it takes part."""
        ...

    def note(self, sentence: str, absence: bool = False) -> None:
        """Show the user a sentence once. `absence`: it explains tokens without the cloud."""
        ...

    def silent(self, now: float) -> float:
        """Seconds since the last token, or since the request."""
        ...

    def reread(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Read the finished answer again after each document, if documents share a row.

        `apart` has the documents in separate rows, None if they already are. `record` gets the result.
        """
        ...

    def committed(self, commit: Commit) -> bool:
        """Show a final token. Returns whether the answer goes on."""
        ...

    def provisional(self, drafts: Sequence[int]) -> None:
        """Show provisional tokens after the final ones, replacing earlier provisional ones."""
        ...

    def withdrawn(self, position: int) -> None:
        """Never called: a shown token is final."""
        ...

    def ended(self, failure: Exception | None) -> None:
        """End the output; `failure` is the reason for an incomplete answer."""
        ...


class DeviceHalf(Protocol):
    """One answer on the device, called from any thread. Any exception ends the answer."""

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
        """Whether the cloud is considered away, so that the report does not wait for it."""
        ...

    def start(self, absence: str | None) -> None:
        """Begin the answer; `absence` is the reason for the cloud's absence, or None."""
        ...

    def receive(self, message: Message) -> None:
        """Process a message of this session. Raises `ProtocolError` if it is malformed."""
        ...

    def without_cloud(self, sentence: str) -> None:
        """Continue without the cloud; `sentence` is the reason. No effect after the cloud's part."""
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
        """This method's part of the report; `closed` is the cloud's, or None."""
        ...


class CloudHalf(Protocol):
    """One session on the cloud, called from any thread. Any exception ends the session."""

    began: float  # monotonic seconds
    slow: bool  # messages are slow to process, so a separate thread receives them in order

    def begin(self) -> None:
        """Start the work."""
        ...

    def check(self, message: Message) -> None:
        """Reject a message cheaply, on the link's thread, before `receive`. For slow halves only.

        Raises `ProtocolError`.
        """
        ...

    def receive(self, message: Message) -> None:
        """Process a message of this session. Raises `ProtocolError` if it is malformed."""
        ...

    def tick(self, now: float, run_ahead: int) -> None:
        """Check the clock; `run_ahead` is this cloud's current limit of held drafts."""
        ...

    def silent(self, now: float) -> float:
        """Seconds since the device last sent or accepted data."""
        ...

    def given_up(self) -> Error:
        """The error for a device that was silent for too long."""
        ...

    def finish(self, done: Callable[[], object]) -> None:
        """Stop, and complete the cloud's part of the report; then call `done`, on any thread."""
        ...

    def closing(self) -> Iterator[Message]:
        """End the session; yields the messages of the cloud's report, `Closed` last."""
        ...

    def end(self) -> None:
        """Stop: closed, cancelled, given up, or the device is gone."""
        ...


@dataclass(frozen=True, slots=True)
class CloudContext:
    """The surroundings of a session on the cloud."""

    side: SideRuntime
    estimates: PeerEstimates  # of the device
    send: Callable[[Message], int]  # returns the bytes sent, 0 if dropped
    queued: Callable[[], int]  # bytes that wait in the link for the device
    over: Callable[[CloudHalf], None]  # called when the session ends by itself, after the `Error` of a failure
    # Reserves the bytes of KV memory that an answer with its documents needs. Raises `NoPlace`.
    reserve: Callable[[CloudHalf, int], None]
    decodes_on: Callable[[], bool] = lambda: True  # whether an answer may decode without a request from its device
    tenant: Hashable = None  # owner of the answer, for fair shares of work; None: this daemon's user
    waited: Callable[[float], object] = lambda seconds: None  # gets the seconds of the wait for memory

    def failed(self, half: CloudHalf, session: int, failure: Exception) -> None:
        """End the `session` of `half`: send the error to the device, then notify this daemon."""
        self.send(failure_message(session, failure))
        self.over(half)


class Method(Protocol):
    """A decoding method. Its module imports quickly, because the command line lists the options."""

    name: ClassVar[str]
    request: ClassVar[type[Request]]  # its options and their limits

    def check(self, request: Request) -> None:
        """Raise `RequestError`, one sentence naming the field, for incompatible options.

        Numbers computed from private documents may leave the device only under privacy 'balanced'.
        """
        ...

    def opening(self, request: Request, opening: Open) -> Open:
        """The session to open; `opening` has the common values."""
        ...

    def device(self, context: DeviceContext) -> DeviceHalf:
        """Make the device's half. Raises `RequestError`, or `AnswerFailed` if a needed cloud is absent."""
        ...

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        """Make the cloud's half. Raises `ValueError`, one sentence, for an unservable request."""
        ...


# --- checks
# Checks of options for several methods. Each raises `RequestError`, one sentence that names the field.

# The sampler's default first.
CODECS: dict[str, tuple[Codec, ...]] = {
    "race": ("race",),
    "paper": ("top-p", "raw"),
    "rejection": ("race",),
}
TOP_P = {"race": 1.0, "paper": 0.8, "rejection": 1.0}  # defaults of the samplers


def codec_of(request: Request) -> Codec:
    """The codec of the sent drafts."""
    return request.codec or CODECS[request.sampler][0]


def top_p_of(request: Request) -> float:
    """The mass kept of each side's mixture; 1 keeps all."""
    return TOP_P[request.sampler] if request.top_p is None else request.top_p


def check_sampler(request: Request) -> None:
    """Refuse another sampler's codec, and 'mirrored' without the race.

    Only in the race do both sides find the same token.
    """
    if request.sampler == "rejection":
        raise RequestError("Sampler 'rejection' is that of methods that draft and verify.", "sampler")
    allowed = CODECS[request.sampler]
    if request.codec is not None and request.codec not in allowed:
        raise RequestError(f"The {request.sampler} sampler sends {' or '.join(allowed)}, not {request.codec}.", "codec")
    if request.sampler == "paper" and request.placement == "mirrored":
        raise RequestError("Placement 'mirrored' needs the race sampler.", "placement")
    check_processors(request)


def check_processors(request: Request) -> None:
    """Refuse processors that are too long for `Open`."""
    if len(encode_options(request).encode()) > LONGEST_PROCESSORS:
        raise RequestError(
            f"The format of the answer, its tools and the biases are too long: {LONGEST_PROCESSORS} bytes of JSON at "
            "most, without the descriptions in schemas.",
            "response_format" if request.calls is None else "tools",
        )


def check_documents(request: Request) -> None:
    """Refuse patterns and files for a side whose documents take no part."""
    for side, other, patterns in (
        ("device", "cloud", request.device_documents),
        ("cloud", "device", request.cloud_documents),
    ):
        if patterns and request.sources == other:
            raise RequestError(
                f"Sources {other!r} leave the {side}'s documents out: {side}_documents can't choose any of them.",
                f"{side}_documents",
            )
    if request.files and request.sources == "cloud":
        raise RequestError("Sources 'cloud' leave the device's documents out: there is no use for files.", "files")
    if request.files and not request.documents:
        raise RequestError("With documents = 0 none of the files would be read: leave one of the two out.", "documents")
    if request.files and request.device_documents:
        raise RequestError(
            "A request with files draws on no other documents of this device: leave device_documents out.",
            "device_documents",
        )


def check_both_sources(request: Request) -> None:
    """Refuse one side's documents alone: the method needs both."""
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
