"""Peers that speak no ZMTP 3, or name themselves as somebody else will be named: the link must outlive them."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys, KeyPair
from common.transport.sending import Limits
from proto.framing import encode
from proto.messages import Cancel
from tests.common.transport.support import SECONDS, Echo, Recorder, draft, port_of

LOCAL = "tcp://127.0.0.1:0"
ROOT = Path(__file__).resolve().parents[3]
HTTP = "POST / HTTP/1.1\r\nHost: 127.0.0.1:8601\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{}"
STRANGERS = {
    "zmtp-1": b"\x01\x00\x02\x00x",
    "zmtp-1 versioned": b"\xff" + bytes(8) + b"\x01\x00\x05\x00\x00\x01\x00x",
    "zmtp-2": b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x00\x00\x02\x00x",
    "zmtp-2 with an id": b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x05\x00kEg\x01\x00\x02\x00x",
    "get": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8601\r\nUser-Agent: " + b"a" * 360 + b"\r\n\r\n",
    "post": HTTP.format(4000, "\x00\x01" * 2000).encode("latin-1"),
    "bytes": bytes(range(256)) * 8,
    "nothing": b"",
}


def pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def say(address: str, data: bytes) -> bytes:
    """Answer of the other side to `data` until it closes the connection, or says nothing for a while."""
    with socket.create_connection(("127.0.0.1", port_of(address)), timeout=0.3) as connection:
        answer = b""
        with suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(2**16):
                answer += part
        return answer


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "curve"])
def test_whoever_speaks_no_zmtp_3_is_turned_away_and_nobody_else_notices(encrypted: bool) -> None:
    cloud_pair, device_pair = pair(), pair()
    keys = CloudKeys(cloud_pair, lambda key: key == device_pair.public) if encrypted else None
    device_keys = DeviceKeys(device_pair, cloud_pair.public) if encrypted else None
    echo, device, late = Echo(), Recorder(), Recorder()
    with CloudLink(LOCAL, keys, echo) as cloud, DeviceLink(cloud.address, device_keys, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        for position, data in enumerate([*STRANGERS.values(), *STRANGERS.values()]):
            say(cloud.address, data)
            assert link.send(draft(position))
            device.wait(lambda position=position: len(device.messages) == position + 1)  # type: ignore[misc]
        with DeviceLink(cloud.address, device_keys, late) as other:
            late.wait(lambda: late.connected)
            other.send(draft(100))
            late.wait(lambda: late.messages)
        assert not device.gone and len(echo.connected) == 2
        counters = cloud.counters()
        assert counters.malformed == counters.strays == counters.mishaps == 0


def test_a_device_outlives_a_cloud_that_speaks_no_zmtp_3() -> None:
    device, cloud_side = Recorder(), Echo()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        port = listener.getsockname()[1]
        with DeviceLink(f"tcp://127.0.0.1:{port}", None, device, Limits(backoff_last=0.05)) as link:
            for data in STRANGERS.values():
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(data)
            listener.close()
            assert not device.connected and not device.messages
            with CloudLink(f"tcp://127.0.0.1:{port}", None, cloud_side) as cloud:
                cloud_side.link = cloud
                device.wait_polling(lambda: link.status().state == "connected" and link.send(draft(1)))
                device.wait(lambda: device.messages)
                assert link.counters().mishaps == cloud.counters().mishaps == 0


def claim_names_and_connect(configure: Callable[[zmq.Socket[bytes]], None], address: str, used: bytes) -> None:
    """Claim the names that libzmq would give to the next connections, then make more of those than were claimed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    last = int.from_bytes(used[1:], "big")
    names = [b"\0" + struct.pack(">I", (last + ahead) % 2**32) for ahead in range(1, 21)]
    with context:
        dealers = []
        for name in [*names, *[b""] * 40, used, b"\0", b"somebody", b"n" * 255]:
            dealer = context.socket(zmq.DEALER)
            dealer.linger = 0
            if name:
                dealer.routing_id = name
            configure(dealer)
            dealer.connect(address)
            dealer.send(encode(draft(7)))
            assert dealer.poll(int(SECONDS * 1000)), "nobody answers any more"
            dealers.append(dealer)
        for dealer in dealers:
            dealer.close(0)


CLAIM = """
from tests.common.transport.test_front_door import attacked_by_names
attacked_by_names({encrypted})
"""


def attacked_by_names(encrypted: bool) -> None:
    cloud_pair, device_pair = pair(), pair()
    keys = CloudKeys(cloud_pair, lambda key: key == device_pair.public) if encrypted else None
    device_keys = DeviceKeys(device_pair, cloud_pair.public) if encrypted else None

    def configure(dealer: zmq.Socket[bytes]) -> None:
        if encrypted:
            dealer.curve_serverkey = cloud_pair.public.encode()
            dealer.curve_publickey, dealer.curve_secretkey = device_pair.public.encode(), device_pair.secret.encode()

    echo, device = Echo(), Recorder()
    with CloudLink(LOCAL, keys, echo) as cloud, DeviceLink(cloud.address, device_keys, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(0))
        device.wait(lambda: device.messages)
        [used] = cloud._routes  # what an attacker would guess: the first one is the same in every process
        claim_names_and_connect(configure, cloud.address, used)
        link.send(Cancel(1))
        link.send(draft(1))
        device.wait(lambda: len(device.messages) == 2)
        assert not device.gone and device.received() == [draft(0), draft(1)]
        assert len(echo.connected) == 1 + 24 + 40
        assert len({peer.connection for peer in echo.connected}) == len(echo.connected)
        names = {known.routing for known in cloud._connections.values()}
        assert all(len(name) == 5 and name[0] == 0 for name in names), "a name that a peer chose was taken over"
        assert cloud.counters().mishaps == 0


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "curve"])
def test_a_peer_can_not_take_the_names_of_later_connections(encrypted: bool) -> None:
    """In a process of its own: where a ROUTER heeds the claims, libzmq aborts on a name that is taken."""
    command = [sys.executable, "-c", CLAIM.format(encrypted=encrypted)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
