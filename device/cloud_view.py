"""The cloud as the answers on this device see it: connected, away for now, or not configured."""

from __future__ import annotations

from dataclasses import replace

from common.placement.estimates import Estimates
from common.runtime.peer_estimates import PeerEstimates
from common.runtime.side import SideRuntime
from common.session.values import Commit
from common.session.watch import Patience
from device.cloud_connection import CloudConnection, alone
from device.settings import DeviceSettings
from proto.messages import Hello, Message

PREFILL_PATIENCE = 15.0  # seconds for the cloud to retrieve and read its documents


class CloudView:
    """Implements `Cloud` of the methods. `connection` is None for a device without a cloud."""

    def __init__(self, settings: DeviceSettings, side: SideRuntime, connection: CloudConnection | None) -> None:
        self.connection = connection
        self._settings = settings
        self._side = side

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
        self.peer.observe_acceptance(commit)

    def decoded(self, context: int, seconds: float) -> None:
        """Note a decode step of this side for an answer with the cloud."""
        self._side.profiler.decoded(self.peer, context, seconds)

    # --- patience

    def limits(self, heard: bool) -> Patience:
        """Limits on an answer's wait for the cloud; `heard`: the cloud has read its prompt."""
        limits = Patience.of(self.estimates(), self.peer.meter.longest, self._settings.patience)
        if not self.connected:
            return replace(limits, patience=self._settings.patience)
        return limits if heard else replace(limits, patience=max(limits.patience, PREFILL_PATIENCE))

    def silence(self, tokens: int = 0) -> float:
        """Seconds of silence after which a cloud that reads its prompt and generates `tokens` tokens is given up."""
        if not self.connected:
            return self._settings.patience
        return self._reading + 4 * tokens * self.estimates().cloud_decode

    @property
    def _reading(self) -> float:
        return max(self._settings.patience, PREFILL_PATIENCE)
