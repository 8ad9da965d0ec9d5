"""The link of a worker: the devices as it sees them, behind the gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from cloud.gateway.channel import Channel, ChannelKeys, Kind, Note
from common.process.vital import Died
from common.transport.interface import Handler, Peer
from proto.framing import LARGEST_PAYLOAD, decode, encode, wire_size
from proto.messages import Message


class WorkerLink:
    """Implements `Link` of `cloud.sessions`, and calls a handler as the devices' own link would.

    Implements `Manager`, too: the gateway wants signs of life.
    """

    watchdog: Final = 20.0  # seconds

    def __init__(
        self,
        address: str,
        number: int,
        handler: Handler,
        *,
        keys: ChannelKeys | None = None,
        metrics: Callable[[], bytes] = bytes,
        died: Died | None = None,
    ) -> None:
        """`metrics` tells this worker's, in Prometheus' text format."""
        self._handler = handler
        self._metrics = metrics
        self._sent: dict[Peer, int] = {}  # bytes
        self._passed: dict[Peer, int] = {}  # bytes of these that wait nowhere any more
        self._lock = threading.Lock()  # of both
        self._channel = Channel(address, self._taken, name=number, keys=keys, died=died)

    def start(self) -> None:
        self._channel.start()

    def close(self) -> None:
        self._channel.close()

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the link's thread call `answer` soon, as a sign that it works. From any thread."""
        self._channel.ask(answer)

    def ready(self, vocabulary: int) -> None:
        """Tell the gateway that this worker serves."""
        self._channel.send(Note(Kind.READY, value=vocabulary))

    def alive(self) -> None:
        """Tell the gateway that this worker's threads work."""
        self._channel.send(Note(Kind.ALIVE))

    def send(self, peer: Peer, message: Message) -> int:
        """Hand `message` over for `peer`, from any thread; its bytes on the wire, or 0 if it was dropped."""
        frame = encode(message, LARGEST_PAYLOAD)
        with self._lock:
            if peer not in self._sent:
                return 0
            self._sent[peer] += len(frame)
        return wire_size(frame) if self._channel.send(Note(Kind.MESSAGE, peer, frame=frame)) else 0

    def queued(self, peer: Peer) -> int:
        """Bytes that wait for `peer`, here or at the gateway."""
        with self._lock:
            return self._sent.get(peer, 0) - self._passed.get(peer, 0)

    # --- on the channel's thread

    def _taken(self, number: int, note: Note) -> None:
        if note.kind is Kind.METRICS:
            self._channel.send(Note(Kind.METRICS, frame=self._metrics()))
        peer = note.peer
        if peer is None:
            return
        match note.kind:
            case Kind.MESSAGE:
                if peer not in self._sent:
                    with self._lock:
                        self._sent[peer] = 0
                    self._handler.on_connected(peer)
                self._handler.on_message(peer, decode(note.frame, LARGEST_PAYLOAD), wire_size(note.frame))
            case Kind.PASSED:
                with self._lock:
                    self._passed[peer] = note.value
            case Kind.GONE if peer in self._sent:
                with self._lock:
                    del self._sent[peer]
                    self._passed.pop(peer, None)
                self._handler.on_gone(peer)
            case _:
                pass
