"""Connections to a link that is full: one device's many don't keep the others outside."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import zmq

from common.transport.cloud_link import CloudLink, choose_evicted
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys, KeyPair, fingerprint
from common.transport.sending import Limits
from proto.framing import encode
from proto.messages import Cancel, Draft
from tests.common.transport.support import SECONDS, Echo, RawPeer, RawPeers, Recorder, draft, port_of
from tests.common.transport.test_front_door import pair

LOCAL = "tcp://127.0.0.1:0"
FULL = 8
LIMITS = Limits(peers=FULL, backoff_last=0.05, heartbeat_timeout=4 * SECONDS)


class Crowd:
    """Connections with one key, which ZeroMQ makes again whenever they are lost."""

    def __init__(self, cloud: str, server: KeyPair, own: KeyPair) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._cloud, self._server, self._own = cloud, server, own

    def come(self) -> None:
        made = self._context.socket(zmq.DEALER)
        made.linger = 0
        made.curve_serverkey = self._server.public.encode()
        made.curve_publickey, made.curve_secretkey = self._own.public.encode(), self._own.secret.encode()
        made.connect(self._cloud)
        made.send(encode(Cancel(1)))
        self._sockets.append(made)

    def speak(self) -> None:
        """Have all say something, over the connections that they have by now."""
        for each in self._sockets:
            each.send(encode(Cancel(2)), zmq.DONTWAIT)

    def close(self) -> None:
        for each in self._sockets:
            each.close(0)
        self._context.term()


class TestOneKey:
    @pytest.fixture
    def keys(self) -> tuple[KeyPair, KeyPair, KeyPair]:
        return pair(), pair(), pair()

    @pytest.fixture
    def echo(self) -> Echo:
        return Echo()

    @pytest.fixture
    def cloud(self, keys: tuple[KeyPair, KeyPair, KeyPair], echo: Echo) -> Iterator[CloudLink]:
        own, *devices = keys
        trusted = {each.public for each in devices}
        with CloudLink(LOCAL, CloudKeys(own, trusted.__contains__), echo, LIMITS) as cloud:
            echo.link = cloud
            yield cloud

    @pytest.fixture
    def crowd(self, cloud: CloudLink, keys: tuple[KeyPair, KeyPair, KeyPair], echo: Echo) -> Iterator[Crowd]:
        own, many, _ = keys
        crowd = Crowd(cloud.address, own, many)
        for count in range(1, FULL + 1):
            crowd.come()
            echo.wait(lambda count=count: len(echo.connected) == count)  # type: ignore[misc]
        yield crowd
        crowd.close()

    def test_that_takes_all_connections_leaves_one_to_another(
        self,
        cloud: CloudLink,
        crowd: Crowd,
        keys: tuple[KeyPair, KeyPair, KeyPair],
        echo: Echo,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The other one gets in and stays, whatever comes again: its only connection is nobody's to take."""
        own, many, one = keys
        device = Recorder()
        with DeviceLink(cloud.address, DeviceKeys(one, own.public), device, LIMITS) as link:
            device.wait(lambda: device.connected)
            link.send(draft(0))
            device.wait(lambda: device.received(Draft))
            assert echo.wait(lambda: echo.gone) == [echo.connected[0]]  # the crowd's oldest
            crowd.speak()  # and so does the one that was cut: it comes again, and is one too many
            echo.wait_polling(lambda: cloud.counters().disconnected > 1)
            crowd.speak()
            link.send(draft(1))
            device.wait(lambda: len(device.received(Draft)) == 2)
            assert (len(device.connected), device.gone) == (1, [])
            assert [peer.key for peer in echo.gone] == [many.public]
        assert (
            f"closed the oldest connection of the device with the fingerprint {fingerprint(many.public)}" in caplog.text
        )
        assert "refused a device: this link accepts 8 at a time" in caplog.text

    def test_that_loses_its_connections_gets_no_more_than_before(
        self, cloud: CloudLink, crowd: Crowd, keys: tuple[KeyPair, KeyPair, KeyPair], echo: Echo
    ) -> None:
        """Another one's take its places until both have as many, and not one beyond."""
        own, _, one = keys
        other = Crowd(cloud.address, own, one)
        for count in range(1, FULL // 2 + 1):
            other.come()
            echo.wait(lambda count=count: self.of(one, echo) == count)  # type: ignore[misc]
        refused = cloud.counters().disconnected
        other.come()
        echo.wait_polling(lambda: cloud.counters().disconnected > refused)
        assert self.of(one, echo) == FULL // 2
        other.close()

    @staticmethod
    def of(key: KeyPair, echo: Echo) -> int:
        """Connections that a key has."""
        return sum(peer.key == key.public and peer not in echo.gone for peer in echo.connected)


def test_without_keys_addresses_count(raw_peers: RawPeers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    cloud_side = Recorder()
    with CloudLink(LOCAL, None, cloud_side, Limits(peers=3, heartbeat_timeout=4 * SECONDS)) as cloud:
        for count in (1, 2, 3):
            raw_peers(cloud.address).send(encode(Cancel(count)))
            cloud_side.wait(lambda count=count: len(cloud_side.connected) == count)  # type: ignore[misc]
        with socket.create_connection(
            ("127.0.0.1", port_of(cloud.address)), SECONDS, source_address=("127.0.0.2", 0)
        ) as other:
            RawPeer.greet(other, b"DEALER")
            body = encode(Cancel(4))
            other.sendall(bytes([0, len(body)]) + body)
            cloud_side.wait(lambda: Cancel(4) in cloud_side.received())
            assert cloud_side.wait(lambda: cloud_side.gone) == cloud_side.connected[:1]
        assert "closed the oldest connection of the device at 127.0.0.1, which has the most" in caplog.text


class TestLeaves:
    @pytest.mark.parametrize(
        ("holders", "newcomer", "index"),
        [
            ("aaaa", "b", 0),
            ("baaa", "c", 1),  # nobody's only one
            ("abba", "c", 0),  # the oldest of those that have as many
            ("aab", "b", None),  # or both would take turns
            ("aaab", "b", 0),
            ("abc", "d", None),
            ("aaaa", "a", None),
            ("", "a", None),
        ],
    )
    def test_the_oldest_of_who_has_most(self, holders: str, newcomer: str, index: int | None) -> None:
        assert choose_evicted(holders, newcomer) == index

    def test_those_who_come_over_and_over_come_to_an_end(self) -> None:
        """Three who take whatever they can get have as many each soon, and cut nothing any more."""
        holders, cut = list("aaaaaaaab"), 0
        for turn in range(100):
            newcomer = "abc"[turn % 3]
            if (index := choose_evicted(holders, newcomer)) is not None:
                del holders[index]
                holders.append(newcomer)
                cut += 1
        assert {name: holders.count(name) for name in "abc"} == {"a": 3, "b": 3, "c": 3}
        assert cut == 5


def test_what_one_that_was_turned_away_has_said_gets_nobody_in() -> None:
    """It may have sent more before it was cut, which is read behind that."""
    link = CloudLink(LOCAL, CloudKeys(pair(), lambda key: True), Recorder(), Limits(peers=2))
    guard, link._guard = link._guard, MagicMock()
    try:
        crowd = [_said(link, number, "a" * 40) for number in (1, 2)]
        assert all(link._sender(each, 0.0) is not None for each in crowd)
        stranger = _said(link, 3, "b" * 40)
        link._turn_away(3)
        assert link._sender(stranger, 0.0) is None
        assert not any(connection.cut for connection in link._connections.values())
    finally:
        link._guard = guard
        link.close()


def _said(link: CloudLink, descriptor: int, key: str) -> Any:
    """A message of a connection with a key, which TCP has accepted."""
    link._live[descriptor] = None
    told = {"__fd": str(descriptor), "User-Id": key}
    return MagicMock(bytes=b"%d" % descriptor, get=told.__getitem__)
