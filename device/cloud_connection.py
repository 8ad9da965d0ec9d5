"""The device's connection to its cloud, and the answers' view of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, Self, get_args

from common.answer import request
from common.answer.patience import MOST_TRIP, ReadingTrust, WaitLimits
from common.answer.request import Privacy, Request
from common.answer.values import Commit
from common.daemon.handshake import explain_mismatch
from common.daemon.side import SideRuntime
from common.estimates.policy import Estimates
from common.estimates.profiler import PeerEstimates
from common.process.threads import QuietLog
from common.transport.sending import LinkCounters, LinkStatus, Peer
from device.interface import CloudStatus
from device.settings import DeviceSettings
from proto.errors import ProtocolError, Refusal
from proto.framing import PROTOCOL_VERSION
from proto.messages import Error, Hello, Message, ProbeReply, Welcome

log = logging.getLogger(__name__)

VERSION, MISMATCH = "version", "mismatch"  # codes of an `Error`
# Logged codes. In others, a cloud could write a question into the log.
_KNOWN: Final = frozenset({*get_args(Refusal), MISMATCH, "quota"})


class LinkToCloud(Protocol):
    @property
    def arriving(self) -> bool: ...

    def send(self, message: Message) -> int: ...

    def progressed(self) -> None: ...

    def status(self) -> LinkStatus: ...

    def counters(self) -> LinkCounters: ...


class CloudConnection:
    """Handler of the link.

    `deliver` gets the messages of sessions. `welcomed` is called after each handshake, `refused` with a sentence
    after a failed one.
    """

    def __init__(
        self,
        address: str,
        side: SideRuntime,
        deliver: Callable[[Message, int], None],
        welcomed: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self.address = address
        self.welcome: Welcome | None = None  # while the handshake is valid
        self._side = side
        self._deliver = deliver
        self._welcomed = welcomed
        self._refused = refused
        self._link: LinkToCloud | None = None
        self.peer: PeerEstimates = side.profiler.nobody  # of the latest connection
        self.trust = ReadingTrust()  # of all connections: the cloud is the same
        self._comings = QuietLog(log)
        self._lines = QuietLog(log)  # on the cloud's messages
        self.left = False  # it announced its end
        self.refusal: str | None = None  # a sentence: it can't be used
        self._starting: str | None = None  # its start's step, in its words

    def attach(self, link: LinkToCloud) -> None:
        """Sets the link, before it starts to deliver."""
        self._link = link

    def send(self, message: Message) -> int:
        """Returns the message's wire bytes, 0 without a connection."""
        return 0 if self._link is None else self._link.send(message)

    def progressed(self) -> None:
        if self._link is not None:
            self._link.progressed()

    @property
    def arriving(self) -> bool:
        return self._link is not None and self._link.arriving

    def counters(self) -> LinkCounters | None:
        """Returns the link's counts, None before there is a link."""
        return None if self._link is None else self._link.counters()

    def on_connected(self, peer: Peer) -> None:
        self.refusal, self._starting = None, None
        self.send(self._side.hello)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case ProbeReply():
                self.peer.meter.replied(message)
            case Welcome() if (reason := explain_mismatch(self._side.hello, message.hello)) is not None:
                self._log("the cloud at %s is refused (%s); `dragon status` says why", MISMATCH, reason)
                self._refuse(reason)
            case Welcome() if self.welcome is not None:
                self.welcome = message  # a changed library
            case Welcome():
                self._measure_anew(message.hello)
                self.welcome, self.refusal, self.left, self._starting = message, None, False, None
                self._comings.tell(logging.INFO, "connected to the cloud at %s", self.address)
                self._welcomed()
            case Error(session=0, code=request.STOPPING):
                self._leave()
            case Error(session=0, code=request.STARTING) if self.welcome is None:
                if self._starting is None:
                    self._comings.tell(logging.INFO, "the cloud at %s is starting", self.address)
                self._starting = message.text
            case Error(session=0) if self.welcome is not None:
                self._log("the cloud at %s reports a fault (%s)", message.code, message.text)
            case Error(session=0):
                self._log("the cloud at %s refuses (%s); `dragon status` says why", message.code, message.text)
                self._refuse(other_version(self.address) if message.code == VERSION else message.text)
            case _:
                self.peer.meter.use()
                self._deliver(message, size)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        self._lines.tell(logging.WARNING, "the cloud sent a malformed message: %s", error)

    def on_gone(self, peer: Peer) -> None:
        if self.welcome is not None:
            self._comings.tell(logging.WARNING, "lost the cloud at %s", self.address)
        self.welcome, self._starting = None, None

    def _leave(self) -> None:
        if self.welcome is not None:
            self._comings.tell(logging.WARNING, "the cloud at %s is stopping", self.address)
        self.welcome, self.left = None, True

    def _log(self, line: str, code: str, words: str) -> None:
        """Logs a known code, and the cloud's `words` at level debug only."""
        known = code if code in _KNOWN else "of another kind"
        if self._lines.tell(logging.WARNING, line, self.address, known):
            log.debug("The cloud's words: %s", words)

    def _refuse(self, reason: str) -> None:
        self.welcome, self.refusal = None, reason
        self._refused(reason)

    def _measure_anew(self, hello: Hello) -> None:
        """Starts new estimates, as another machine may have another clock, network, speed and library."""
        self._side.profiler.forget(self.peer)
        self.peer = self._side.profiler.watch(hello, self.send)

    def status(self) -> CloudStatus:
        rtt = self.peer.meter.rtt
        rtt_ms = None if rtt is None else 1000 * rtt
        if self.welcome is not None:
            hello = self.welcome.hello
            return CloudStatus("connected", self.address, "", rtt_ms, hello.model, hello.exactness)
        if self.refusal is not None:
            return CloudStatus("refused", self.address, self.refusal, None, None, None)
        link = self._link.status() if self._link is not None else LinkStatus("connecting", "")
        if link.state in ("away", "refused"):
            return CloudStatus(link.state, self.address, link.detail, None, None, None)
        if self._starting is not None:
            starting = f"The cloud at {self.address} is starting: {self._starting}."
            return CloudStatus("connecting", self.address, starting, None, None, None)
        return CloudStatus("connecting", self.address, f"Connecting to {self.address}.", None, None, None)


def other_version(address: str) -> str:
    """A version complaint in this device's words: in the cloud's, "this side" is the cloud."""
    return (
        f"The cloud at {address} speaks another version of the protocol than this device, which speaks version "
        f"{PROTOCOL_VERSION}: update the older one."
    )


def alone(privacy: Privacy) -> CloudStatus:
    """The status without a cloud, or with privacy offline."""
    reason = "privacy = 'offline' keeps everything here." if privacy == "offline" else "No cloud is configured."
    return CloudStatus("off", "", reason, None, None, None)


# --- cloud_view
# The answers' view of the cloud: connected, away, or not configured.

NEVER: Final = float("inf")
AT_ONCE: Final = 0.001  # seconds, for a cloud that announced its stop
PREFILL_PATIENCE: Final = 15.0  # seconds for the cloud to retrieve and read
CLOSING_PATIENCE: Final = 3.0  # seconds after a round trip for the cloud's part of a report


class CloudView:
    """Implements the methods' `Cloud`. `connection`: None without a cloud."""

    def __init__(
        self,
        settings: DeviceSettings,
        side: SideRuntime,
        connection: CloudConnection | None,
        request: Request | None = None,
    ) -> None:
        """`request` is the one whose answer has this view."""
        self.connection = connection
        self._settings = settings
        self._side = side
        self._method = "" if request is None else request.method
        self._waits = request is not None and request.wait

    def of(self, request: Request) -> Self:
        return type(self)(self._settings, self._side, self.connection, request)

    @property
    def connected(self) -> bool:
        return self.connection is not None and self.connection.welcome is not None

    @property
    def absence(self) -> str:
        """A sentence on the cloud's absence."""
        status = self.connection.status() if self.connection is not None else alone(self._settings.privacy)
        return f"The cloud did not take part: {status.detail or 'it is not connected.'}"

    @property
    def refusal(self) -> str | None:
        """The refusal by or of the cloud, None if there is none."""
        return None if self.connection is None else self.connection.refusal

    @property
    def hello(self) -> Hello | None:
        """The cloud's `Hello`, None without a valid handshake."""
        welcome = None if self.connection is None else self.connection.welcome
        return None if welcome is None else welcome.hello

    def send(self, message: Message) -> int:
        """Sends after a valid handshake only, so that no refused cloud gets prompts. Returns wire bytes."""
        return self.connection.send(message) if self.connection is not None and self.connected else 0

    # --- estimates

    @property
    def peer(self) -> PeerEstimates:
        return self._side.profiler.nobody if self.connection is None else self.connection.peer

    def estimates(self) -> Estimates:
        return self.peer.estimates

    def observe_acceptance(self, commit: Commit) -> None:
        """Records a position decided between both drafts."""
        self.peer.observe_acceptance(commit.expected, commit.accepted)

    def decoded(self, context: int, seconds: float) -> None:
        """Records this side's step for an answer with the cloud."""
        self._side.profiler.decoded(self.peer, context, seconds)

    def waited(self, seconds: float) -> None:
        self.peer.waits(self._method).observe(seconds)

    def progressed(self) -> None:
        """Notes a token in which the cloud took part."""
        if self.connection is not None:
            self.connection.progressed()

    # --- patience

    def read(self, prompt_tokens: int, seconds: float, shared: bool) -> None:
        """Records `seconds` until a `shared` token, or until the end."""
        if self.connection is None:
            return
        if shared:
            self.connection.trust.ended(prompt_tokens, seconds)
        elif seconds > PREFILL_PATIENCE:
            self.connection.trust.in_vain()

    def limits(self, read: bool, prompt_tokens: int = 0, tokens: int = 0, step: float | None = None) -> WaitLimits:
        """Returns limits on the wait for the cloud; see `Cloud`.

        It has `read` its prompt, or states `prompt_tokens`. Limits are finite, unless the request waits.
        """
        peer, least = self.peer, self._settings.patience
        estimates = peer.estimates if step is None else replace(peer.estimates, cloud_decode=step)
        limits = WaitLimits.of(estimates, peer.meter.longest, least, peer.waits(self._method).seconds)
        if self.connection is not None and self.connection.left:
            limits = replace(limits, patience=AT_ONCE)  # until another comes
        elif not self.connected:
            limits = replace(limits, patience=least)
        elif not read:
            assert self.connection is not None
            reading = PREFILL_PATIENCE + self.connection.trust.seconds(prompt_tokens, tokens, estimates.cloud_decode)
            limits = replace(limits, patience=max(limits.patience, reading), reading=True)
        return replace(limits, arriving=self._arriving, patience=NEVER if self._waits else limits.patience)

    def closing(self) -> WaitLimits:
        """Returns limits on the wait for the cloud's part of a report."""
        trip = min(self.peer.meter.longest or 0.0, MOST_TRIP)
        return WaitLimits(NEVER, CLOSING_PATIENCE + trip, self._arriving)

    @property
    def _arriving(self) -> bool:
        return self.connection is not None and self.connection.arriving
