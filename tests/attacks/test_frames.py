"""Every message cut short at every byte, and with every field out of range, through a real socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgpack
import pytest
import zmq
from hypothesis import HealthCheck, given, settings

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.sending import Limits
from proto.errors import ProtocolError
from proto.framing import PROTOCOL_VERSION, TAGS, decode, encode, pack
from proto.messages import Cancel, Message
from tests.common.transport.support import Echo, Recorder, draft
from tests.proto.strategies import message

UNLIMITED = Limits(messages_per_second=1e9, messages_burst=1e9, peers=4)
WRONG: tuple[Any, ...] = (
    None, True, -1, 2**63 - 1, 2**64 - 1, -(2**63), float("nan"), float("inf"), -1e308, "", "x" * 60_000, "\0",
    b"bytes", [], [[]], [0] * 20_000, ["x", -1, None], {}, {"a": 1}, msgpack.ExtType(5, b"x"),
)  # fmt: skip


class Place:
    """A cloud, a good device beside, and a peer that sends what it is given."""

    def __init__(self, cloud: CloudLink, cloud_side: Echo, device: Recorder, link: DeviceLink, peer: Any) -> None:
        self._cloud, self._cloud_side, self._device, self._link, self._peer = cloud, cloud_side, device, link, peer
        self._fence = 0

    def check(self, frames: Sequence[bytes]) -> None:
        """Check that `frames` are read as the codec reads them, and that the peer, the device and the link go on."""
        counters = self._cloud.counters()
        for frame in frames:
            self._peer.send(frame)
        self._fence += 1
        self._peer.send(encode(Cancel(self._fence)))
        self._cloud_side.wait(lambda: Cancel(self._fence) in self._cloud_side.received(Cancel))
        refused = sum(is_refused(frame) for frame in frames)
        after = self._cloud.counters()
        assert after.malformed - counters.malformed == refused
        assert after.mishaps == after.faults == after.strays == 0
        self._link.send(draft(self._fence))
        self._device.wait(lambda: draft(self._fence) in self._device.received())
        while self._peer.poll(0):
            self._peer.recv()
        for seen in (self._cloud_side, self._device):
            with seen.changed:
                seen.messages.clear()


def is_refused(frame: bytes) -> bool:
    try:
        decode(frame)
    except ProtocolError:
        return True
    return False


@contextmanager
def place() -> Iterator[Place]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    echo, device = Echo(), Recorder()
    with (
        context,
        CloudLink("tcp://127.0.0.1:0", None, echo, UNLIMITED) as cloud,
        DeviceLink(cloud.address, None, device) as link,
        context.socket(zmq.DEALER) as peer,
    ):
        echo.link = cloud
        peer.linger, peer.sndhwm = 0, 0
        peer.connect(cloud.address)
        device.wait(lambda: device.connected)
        yield Place(cloud, echo, device, link, peer)


KINDS = pytest.mark.parametrize("kind", TAGS, ids=lambda kind: kind.__name__)


@KINDS
def test_cut_short_at_every_byte(kind: type[Message]) -> None:
    with place() as here:

        @settings(max_examples=4, suppress_health_check=list(HealthCheck))
        @given(message(kind))
        def check(sent: Message) -> None:
            whole = encode(sent)
            here.check([whole[:length] for length in range(len(whole))])

        check()


@KINDS
def test_every_field_out_of_range(kind: type[Message]) -> None:
    with place() as here:

        @settings(max_examples=2, suppress_health_check=list(HealthCheck))
        @given(message(kind))
        def check(sent: Message) -> None:
            values = [TAGS[kind], PROTOCOL_VERSION, *pack(sent)]
            payload = values.pop() if hasattr(sent, "payload") else b""
            frames = []
            for index in range(len(values)):
                for wrong in WRONG:
                    changed = [*values[:index], wrong, *values[index + 1 :]]
                    frames.append(msgpack.packb(changed) + payload)
            frames += [msgpack.packb([*values, wrong]) + payload for wrong in WRONG[:6]]
            frames += [msgpack.packb(values[:-1]) + payload]
            here.check(frames)

        check()
