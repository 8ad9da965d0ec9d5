"""Counts of the messages and bytes of a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages of one type in one direction; bytes are those of the frames."""

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class CountersSnapshot:
    """A snapshot. `sent` and `received` are by message type name, e.g. `received["Draft"].bytes`."""

    sent: Mapping[str, Flow] = field(default_factory=lambda: MappingProxyType({}))
    received: Mapping[str, Flow] = field(default_factory=lambda: MappingProxyType({}))
    malformed: int = 0  # messages the codec refused
    over_quota: int = 0  # messages above a peer's rate, or of one that was cut for that; not decoded
    dropped: int = 0  # messages not sent: the peer was gone or its queue full
    strays: int = 0  # arrivals that belong to no live or admitted connection
    faults: int = 0  # exceptions of the handler
    connects: int = 0
    reconnects: int = 0
    refused: int = 0  # failed handshakes
    disconnected: int = 0  # connections cut for what they sent, or above the number of peers or strangers
    mishaps: int = 0  # exceptions that the link's thread outlived; each is a fault in this program


class LinkCounters:
    """The counters of a link while it runs. Only the link thread increments."""

    def __init__(self) -> None:
        self._sent: dict[str, Flow] = {}
        self._received: dict[str, Flow] = {}
        self.malformed = 0
        self.over_quota = 0
        self.dropped = 0
        self.strays = 0
        self.faults = 0
        self.connects = 0
        self.reconnects = 0
        self.refused = 0
        self.disconnected = 0

    def sent(self, kind: str, size: int) -> None:
        _add(self._sent, kind, size)

    def received(self, kind: str, size: int) -> None:
        _add(self._received, kind, size)

    def snapshot(self, refused_sends: int, mishaps: int) -> CountersSnapshot:
        """The counts now; `refused_sends` are the messages that the queue did not take."""
        return CountersSnapshot(
            sent=MappingProxyType(self._sent.copy()),  # dict.copy is one step under the interpreter lock
            received=MappingProxyType(self._received.copy()),
            malformed=self.malformed,
            over_quota=self.over_quota,
            dropped=self.dropped + refused_sends,
            strays=self.strays,
            faults=self.faults,
            connects=self.connects,
            reconnects=self.reconnects,
            refused=self.refused,
            disconnected=self.disconnected,
            mishaps=mishaps,
        )


def _add(flows: dict[str, Flow], kind: str, size: int) -> None:
    flow = flows.get(kind)
    flows[kind] = Flow(1, size) if flow is None else Flow(flow.messages + 1, flow.bytes + size)
