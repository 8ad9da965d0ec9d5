"""The cloud as the answers on this device see it: connected, away for now, or not configured."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Self

from common.answer.patience import MOST_STEP, MOST_TRIP, Patience
from common.answer.request import Request
from common.answer.values import Commit
from common.daemon.side import SideRuntime
from common.estimates.cost import Estimates
from common.estimates.peer import PeerEstimates
from device.cloud_connection import CloudConnection, alone
from device.settings import DeviceSettings
from proto.messages import Hello, Message

NEVER: Final = float("inf")
AT_ONCE: Final = 0.001  # seconds for a cloud that said that it is stopping, which is not waited for
PREFILL_PATIENCE: Final = 15.0  # seconds for the cloud to retrieve and read its documents
MOST_READING: Final = 300.0  # seconds for that, or for generating an answer, however long the cloud says it is
CLOSING_PATIENCE: Final = 3.0  # seconds, beside a round trip, until a report is made without the cloud's part
ANSWER_STEPS: Final = 4  # steps of the cloud that a token of an answer may take which comes as a whole


class CloudView:
    """Implements `Cloud` of the methods. `connection` is None for a device without a cloud."""

    def __init__(
        self,
        settings: DeviceSettings,
        side: SideRuntime,
        connection: CloudConnection | None,
        request: Request | None = None,
    ) -> None:
        """`request`: the one whose answer sees the cloud so."""
        self.connection = connection
        self._settings = settings
        self._side = side
        self._method = "" if request is None else request.method
        self._waits = request is not None and request.wait

    def of(self, request: Request) -> Self:
        """The cloud as the answer to `request` sees it."""
        return type(self)(self._settings, self._side, self.connection, request)

    @property
    def connected(self) -> bool:
        """Whether the cloud can be counted on now."""
        return self.connection is not None and self.connection.welcome is not None

    @property
    def absence(self) -> str:
        """A sentence for the user of an answer that the cloud takes no part in."""
        status = self.connection.status() if self.connection is not None else alone(self._settings.privacy)
        return f"The cloud did not take part: {status.detail or 'it is not connected.'}"

    @property
    def refusal(self) -> str | None:
        """The sentence of a cloud that can't be used, or of this device about it."""
        return None if self.connection is None else self.connection.refusal

    @property
    def hello(self) -> Hello | None:
        """The cloud's own description, while the handshake stands."""
        welcome = None if self.connection is None else self.connection.welcome
        return None if welcome is None else welcome.hello

    def send(self, message: Message) -> int:
        """Send while the handshake stands: no refused cloud may get prompts. Returns the bytes on the wire, or 0."""
        return self.connection.send(message) if self.connection is not None and self.connected else 0

    # --- estimates

    @property
    def peer(self) -> PeerEstimates:
        return self._side.profiler.nobody if self.connection is None else self.connection.peer

    def estimates(self) -> Estimates:
        return self.peer.estimates

    def observe_acceptance(self, commit: Commit) -> None:
        """Note a position that was decided between both sides' drafts."""
        self.peer.observe_acceptance(commit.expected, commit.accepted)

    def decoded(self, context: int, seconds: float) -> None:
        """Note a decode step of this side for an answer with the cloud."""
        self._side.profiler.decoded(self.peer, context, seconds)

    def waited(self, seconds: float) -> None:
        """Note what an answer has waited for the cloud."""
        self.peer.waits(self._method).observe(seconds)

    # --- patience

    def limits(self, read: bool, prompt_tokens: int = 0, tokens: int = 0, step: float | None = None) -> Patience:
        """Limits on an answer's wait for the cloud, which has `read` its prompt or says that this has `prompt_tokens`;
        see `Cloud`. Whatever it says, they are finite, unless the request waits.
        """
        peer, least = self.peer, self._settings.patience
        estimates = peer.estimates if step is None else replace(peer.estimates, cloud_decode=step)
        limits = Patience.of(estimates, peer.meter.longest, least, peer.waits(self._method).seconds)
        if self.connection is not None and self.connection.left:
            limits = replace(limits, patience=AT_ONCE)  # until another one comes
        elif not self.connected:
            limits = replace(limits, patience=least)
        elif not read:
            declared = (prompt_tokens + ANSWER_STEPS * tokens) * min(estimates.cloud_decode, MOST_STEP)
            reading = PREFILL_PATIENCE + min(declared, MOST_READING)
            limits = replace(limits, patience=max(limits.patience, reading), reading=True)
        return replace(limits, arriving=self._arriving, patience=NEVER if self._waits else limits.patience)

    def closing(self) -> Patience:
        """Limits on the wait for the cloud's part of a report."""
        trip = min(self.peer.meter.longest or 0.0, MOST_TRIP)
        return Patience(NEVER, CLOSING_PATIENCE + trip, self._arriving)

    @property
    def _arriving(self) -> bool:
        return self.connection is not None and self.connection.arriving
