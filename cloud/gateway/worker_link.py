"""The link of a worker: the devices as it sees them, behind the gateway."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Final

from cloud.gateway.channel import Channel, ChannelKeys, Kind, Note
from common.process.accounts import Accounts
from common.process.vital import Died
from common.transport.interface import Handler, Peer, owner
from common.transport.limits import DEFAULT_LIMITS
from proto.framing import LARGEST_PAYLOAD, decode, encode, wire_size
from proto.messages import Busy, Cancel, Close, Error, Fetch, Message, Open

_SIGN: Final = 20.0  # seconds within which there is a sign of life


class WorkerLink:
    """Implements `Link` of `cloud.sessions`, and calls a handler as the devices' own link would.

    Each device has its share of this thread, as of the devices' own. Implements `Manager`, too: the gateway wants signs
    of life.
    """

    def __init__(
        self,
        address: str,
        number: int,
        handler: Handler,
        *,
        keys: ChannelKeys | None = None,
        metrics: Callable[[], bytes] = bytes,
        silence: float = math.inf,
        died: Died | None = None,
    ) -> None:
        """`metrics` tells this worker's, in Prometheus' text format; `silence` are the seconds without a sign of life
        after which the gateway has the worker killed.
        """
        self.watchdog = min(_SIGN, silence)
        self._handler = handler
        self._accounts = Accounts(DEFAULT_LIMITS.work_per_second, DEFAULT_LIMITS.work_burst)
        rate = DEFAULT_LIMITS.errors_per_second
        self._complaints = Accounts(rate, max(1.0, rate))
        self._metrics = metrics
        self._sent: dict[Peer, int] = {}  # bytes
        self._passed: dict[Peer, int] = {}  # bytes of these that wait nowhere any more
        self._openings: dict[Peer, int] = {}  # the latest that it has taken in, by which the gateway knows what is over
        self._lock = threading.Lock()  # of all three
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
            if not self._channel.send(Note(Kind.MESSAGE, peer, self._openings[peer], frame)):
                return 0
            self._sent[peer] += len(frame)
        return wire_size(frame)

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
                new = peer not in self._sent
                if new and not note.value:
                    return  # it was on its way when the device was gone
                if note.value:  # as with the first one of each device
                    with self._lock:
                        self._sent.setdefault(peer, 0)
                        self._openings[peer] = note.value
                if new:
                    self._call(self._handler.on_connected, peer)
                self._call(self._hand_over, peer, note.frame, new)
            case Kind.PASSED if peer in self._sent:
                with self._lock:
                    self._passed[peer] = note.value
            case Kind.GONE if peer in self._sent:
                with self._lock:
                    del self._sent[peer]
                    self._passed.pop(peer, None)
                    self._openings.pop(peer, None)
                self._call(self._handler.on_gone, peer)
            case _:
                pass

    def _hand_over(self, peer: Peer, frame: bytes, new: bool) -> None:
        """Charge the work to its device. One that has overdrawn its account is refused whatever causes more; but its
        first message, by which it is known here, and the ends of sessions are taken in.
        """
        begun, now = time.thread_time(), time.monotonic()
        account = self._accounts.of(owner(peer), now)
        wait = account.wait(now)
        try:
            message = decode(frame, LARGEST_PAYLOAD)
            if wait and not new and not isinstance(message, Cancel | Close | Error):
                self._refuse(peer, message, wait, now)
            else:
                self._handler.on_message(peer, message, wire_size(frame))
        finally:
            account.charge(now, time.thread_time() - begun)

    def _refuse(self, peer: Peer, message: Message, wait: float, now: float) -> None:
        if isinstance(message, Open | Fetch):
            self._handler.on_message(peer, Cancel(message.session), 0)  # the gateway frees it by what follows
            self.send(peer, Busy(message.session, int(1e6 * wait)))
        elif self._complaints.of(owner(peer), now).take(now):
            self.send(peer, Error(0, "quota", "This cloud does less work per second for one device; slow down."))

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """An exception over one device's message must not cost the others their turn."""
        try:
            function(*arguments)
        except Exception as error:
            self._channel.turns.mishaps.note(getattr(function, "__name__", "handler"), error)
