"""A decoding method as the daemons see it.

A method is two state machines, one on each side, that exchange messages and ask the engine for distributions
(`common/engine/jobs.py`: `Client`). docs/contributing.md tells how to add one.
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


# Messages that every session has, whatever its method; of them a half gets `Ready` only.
LIFECYCLE = (Open, Fetch, Ready, Close, Closed, Contributions, Spans, Cancel, Busy, Error)


class Cloud(Protocol):
    """The cloud as the answers on a device see it. Asked from any thread."""

    @property
    def connected(self) -> bool:
        """Whether the cloud can be counted on now."""
        ...

    @property
    def absence(self) -> str:
        """A sentence for the user of an answer that the cloud takes no part in."""
        ...

    @property
    def hello(self) -> Hello | None:
        """The cloud's own description, while the handshake stands."""
        ...

    @property
    def peer(self) -> PeerEstimates: ...

    def observe_acceptance(self, commit: Commit) -> None:
        """Note a position that was decided between both sides' drafts."""
        ...

    def decoded(self, context: int, seconds: float) -> None:
        """Note a decode step of this side for an answer with the cloud."""
        ...

    def waited(self, seconds: float) -> None:
        """Note what this answer has waited for the cloud. On the scheduler thread."""
        ...

    def limits(self, read: bool, prompt_tokens: int = 0, tokens: int = 0, step: float | None = None) -> WaitLimits:
        """Limits on this answer's wait for the cloud. On the scheduler thread.

        `read`: the cloud has read its prompt, else it says that this has `prompt_tokens`; `tokens` are generated
        before anything comes. `step`: seconds that it says a pass takes, where that is none of its decode steps.
        """
        ...


class DeviceContext(Protocol):
    """A request being answered on the device, as its method's half sees it. Used from any thread."""

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
        """The documents of this device that the answer may retrieve. What chooses them stays here."""
        ...

    def trace(self, aggregator: Side, alone: bool) -> Recorder | None:
        """The trace of this answer, whose first position `aggregator` decides; None unless it was asked for."""
        ...

    def send(self, message: Message) -> None:
        """Send to the cloud, if it takes part."""
        ...

    def note(self, sentence: str, absence: bool = False) -> None:
        """Tell the user a sentence, once. `absence`: it says why tokens are decided without the cloud."""
        ...

    def silent(self, now: float) -> float:
        """Seconds since the last token, or since the request."""
        ...

    def reread(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Read the answer again at its end, behind each of the documents that share a row: `apart` has them in rows of
        their own, None where they are; `record` takes what they say.
        """
        ...

    def committed(self, commit: Commit) -> bool:
        """Show a token, which is final. Returns whether the answer goes on."""
        ...

    def provisional(self, drafts: Sequence[int]) -> None:
        """Show tokens behind the final ones, in place of those shown so before: they may be taken back."""
        ...

    def withdrawn(self, position: int) -> None:
        """Never called: a shown token is final."""
        ...

    def ended(self, failure: Exception | None) -> None:
        """Nothing more will be shown; `failure` says why when the answer could not be completed."""
        ...


class DeviceHalf(Protocol):
    """One answer on the device. Called from any thread; an exception from any method ends the answer."""

    @property
    def over(self) -> bool:
        """Whether nothing more will be shown."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether only the cloud can bring the answer forward."""
        ...

    @property
    def away(self) -> bool:
        """Whether the cloud counts as away, so that nobody waits for its part of the report."""
        ...

    def start(self, absence: str | None) -> None:
        """Begin the answer; `absence` says why the cloud can't take part now, None when it can."""
        ...

    def receive(self, message: Message) -> None:
        """Take in a message of this session. Raises `ProtocolError` when it is malformed."""
        ...

    def without_cloud(self, sentence: str) -> None:
        """Go on without the cloud; `sentence` tells the user why. Does nothing once the cloud's part is done."""
        ...

    def reconnected(self) -> None:
        """Turn to a cloud, perhaps another one, that is connected again and does not know the session."""
        ...

    def tick(self, now: float) -> None:
        """Look at the clock, some fifty times a second."""
        ...

    def end(self, failure: Exception | None) -> None:
        """Stop here: cancelled, or failed."""
        ...

    def report(self, closed: Closed | None) -> MethodReport:
        """This method's part of the report; `closed` is the cloud's contribution, None if it did not come."""
        ...


class CloudHalf(Protocol):
    """One session on the cloud. Called from any thread; an exception from any method ends the session."""

    began: float  # monotonic seconds
    slow: bool  # messages take long to take in: they are received on a thread for that, in their order

    def begin(self) -> None:
        """Start to work."""
        ...

    def check(self, message: Message) -> None:
        """Refuse, on the link's thread, what takes no work to be refused. Asked of slow ones, before `receive`.

        Raises `ProtocolError`.
        """
        ...

    def receive(self, message: Message) -> None:
        """Take in a message of this session. Raises `ProtocolError` when it is malformed."""
        ...

    def tick(self, now: float, run_ahead: int) -> None:
        """Look at the clock; `run_ahead` is the most drafts that this cloud wants to hold."""
        ...

    def silent(self, now: float) -> float:
        """Seconds since the device last sent something, or took something that it was sent."""
        ...

    def given_up(self) -> Error:
        """The error for a device that was silent for too long."""
        ...

    def finish(self, done: Callable[[], object]) -> None:
        """Stop, and compute what the cloud's part of the report lacks; `done` is called then, from any thread."""
        ...

    def closing(self) -> Iterator[Message]:
        """End the session; returns the messages of the cloud's part of the report, `Closed` the last."""
        ...

    def end(self) -> None:
        """Stop here: closed, cancelled, given up, or the device is gone."""
        ...


@dataclass(frozen=True, slots=True)
class CloudContext:
    """A session's surroundings on the cloud."""

    side: SideRuntime
    estimates: PeerEstimates  # of the device
    send: Callable[[Message], int]  # returns the bytes, 0 for what was dropped
    queued: Callable[[], int]  # bytes that wait in the link for the device
    over: Callable[[CloudHalf], None]  # called when the session ends by itself, after the `Error` if it failed
    # Told the bytes of KV memory that an answer needs, as its documents show them. Raises `NoPlace`.
    reserve: Callable[[CloudHalf, int], None]
    decodes_on: Callable[[], bool] = lambda: True  # whether an answer may decode what its device did not ask for
    tenant: Hashable = None  # whose answer it is, for the shares of work that each has; None: this daemon's user's
    waited: Callable[[float], object] = lambda seconds: None  # told the seconds until there was memory

    def failed(self, half: CloudHalf, session: int, failure: Exception) -> None:
        """End the `session` of `half`: tell the device why, then this daemon."""
        self.send(failure_message(session, failure))
        self.over(half)


class Method(Protocol):
    """A decoding method. Its module is light to import: the command line lists the options."""

    name: ClassVar[str]
    request: ClassVar[type[Request]]  # its options and their limits

    def check(self, request: Request) -> None:
        """Raise `RequestError`, one sentence that names the field, for options that don't go together.

        Numbers computed from private documents may leave the device under privacy 'balanced' only.
        """
        ...

    def opening(self, request: Request, opening: Open) -> Open:
        """The session to open; `opening` has the values that all methods share."""
        ...

    def device(self, context: DeviceContext) -> DeviceHalf:
        """Make the device's half. Raises `RequestError`, or `AnswerFailed` where the cloud is needed and not there."""
        ...

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        """Make the cloud's half. Raises `ValueError`, one sentence, for a request that can't be served."""
        ...


# --- checks
# Checks of options that several methods share. Each raises `RequestError`, one sentence that names the field.

# The sampler's own first.
CODECS: dict[str, tuple[Codec, ...]] = {
    "race": ("race",),
    "paper": ("top-p", "raw"),
    "rejection": ("race",),
}
TOP_P = {"race": 1.0, "paper": 0.8, "rejection": 1.0}  # the samplers' own


def codec_of(request: Request) -> Codec:
    """The codec of the drafts that are sent."""
    return request.codec or CODECS[request.sampler][0]


def top_p_of(request: Request) -> float:
    """The mass of each side's mixture that is kept; 1: all of it."""
    return TOP_P[request.sampler] if request.top_p is None else request.top_p


def check_sampler(request: Request) -> None:
    """Refuse another sampler's codec; 'mirrored' but for the race, as only there both sides find the same token."""
    if request.sampler == "rejection":
        raise RequestError("Sampler 'rejection' is that of methods that draft and verify.", "sampler")
    allowed = CODECS[request.sampler]
    if request.codec is not None and request.codec not in allowed:
        raise RequestError(f"The {request.sampler} sampler sends {' or '.join(allowed)}, not {request.codec}.", "codec")
    if request.sampler == "paper" and request.placement == "mirrored":
        raise RequestError("Placement 'mirrored' needs the race sampler.", "placement")
    check_processors(request)


def check_processors(request: Request) -> None:
    """Refuse processors that are too long for the message that opens an answer."""
    if len(encode_options(request).encode()) > LONGEST_PROCESSORS:
        raise RequestError(
            f"The format of the answer, its tools and the biases are too long: {LONGEST_PROCESSORS} bytes of JSON at "
            "most, without the descriptions in schemas.",
            "response_format" if request.calls is None else "tools",
        )


def check_documents(request: Request) -> None:
    """Refuse patterns and files of a side whose documents take no part."""
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
    """Refuse a request for one side's documents: the method needs both."""
    if request.sources != "both":
        raise RequestError(
            f"Method {request.method!r} joins both sides' documents: sources can't be {request.sources!r}.", "method"
        )


def check_logprobs(request: Request) -> None:
    """Refuse log-probabilities where the device does not see both sides' distributions before a token is decided."""
    if request.top_logprobs is None:
        return
    if request.sampler != "race" or request.placement != "device" or request.sources == "cloud":
        raise RequestError(
            "Log-probabilities need the race sampler, placement 'device', and sources 'both' or 'device'.", "logprobs"
        )
