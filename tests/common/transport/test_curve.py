"""Encryption and the allow-list: whoever is not trusted gets nothing through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys, KeyFolder, fingerprint
from common.transport.loop import ZapAuthenticator
from common.transport.sending import Limits
from proto.messages import Cancel
from tests.common.transport.support import Echo, Recorder, draft
from tests.common.transport.test_front_door import pair

LOCAL = "tcp://127.0.0.1:0"
QUICK = Limits(backoff_last=0.05, connect_timeout=1.0)


class Machines:
    """A cloud's and a device's key folder that know each other."""

    def __init__(self, path: Path) -> None:
        self.cloud = KeyFolder(path / "cloud")
        self.device = KeyFolder(path / "device")
        self.cloud.new()
        self.device.new()
        self.cloud.trust("laptop", self.device.own().public)
        self.device.trust("cloud", self.cloud.own().public)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def is_shut_out(cloud_keys: CloudKeys | None, device_keys: DeviceKeys | None) -> None:
    """Three failed attempts in a row, and neither side has heard of the other."""
    cloud_side, device = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, cloud_keys, cloud_side, QUICK) as cloud,
        DeviceLink(cloud.address, device_keys, device, QUICK) as link,
    ):
        device.wait_polling(lambda: link.counters().refused + cloud.counters().refused >= 3)
        assert link.send(Cancel(1)) == 0
        assert link.status().state in ("refused", "away")
        assert not device.order and not cloud_side.order


def test_a_trusted_device_gets_through_under_its_key(machines: Machines) -> None:
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, machines.cloud.cloud_keys(), echo) as cloud,
        DeviceLink(cloud.address, machines.device.device_keys(), device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(1))
        device.wait(lambda: device.received())
        assert device.received() == [draft(1)]
        assert echo.connected[0].key == machines.device.own().public
        assert device.connected[0].key == machines.cloud.own().public


def test_a_key_that_is_not_trusted_is_shut_out_and_told_why(machines: Machines) -> None:
    stranger = DeviceKeys(pair(), machines.cloud.own().public)
    is_shut_out(machines.cloud.cloud_keys(), stranger)
    cloud_side, device = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, machines.cloud.cloud_keys(), cloud_side, QUICK) as cloud,
        DeviceLink(cloud.address, stranger, device, QUICK) as link,
    ):
        device.wait_polling(lambda: link.status().state == "refused")
        assert "dragon keys trust" in link.status().detail


def test_a_device_does_not_talk_to_a_cloud_with_another_key(machines: Machines) -> None:
    is_shut_out(machines.cloud.cloud_keys(), DeviceKeys(machines.device.own(), pair().public))


def test_a_server_without_an_allow_list_accepts_nobody(machines: Machines) -> None:
    is_shut_out(CloudKeys(machines.cloud.own()), machines.device.device_keys())


def test_an_allow_list_that_fails_accepts_nobody(machines: Machines) -> None:
    def broken(key: str) -> bool:
        raise OSError("the disk is gone")

    def vague(key: str) -> bool:
        return "yes"  # type: ignore[return-value]

    for allows in (broken, vague):
        is_shut_out(CloudKeys(machines.cloud.own(), allows), machines.device.device_keys())


def test_plaintext_and_encryption_do_not_mix(machines: Machines) -> None:
    is_shut_out(machines.cloud.cloud_keys(), None)
    is_shut_out(None, machines.device.device_keys())


def test_trust_and_revocation_hold_from_the_next_connection_on(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    keys = machines.cloud.cloud_keys()
    cloud_side, device, again = Recorder(), Recorder(), Recorder()
    with CloudLink(LOCAL, keys, cloud_side, QUICK) as cloud:
        with DeviceLink(cloud.address, machines.device.device_keys(), device, QUICK):
            device.wait(lambda: device.connected)
        assert "no device is trusted" not in caplog.text
        machines.cloud.revoke("laptop")
        with DeviceLink(cloud.address, machines.device.device_keys(), again, QUICK) as link:
            again.wait_polling(lambda: link.status().state == "refused")
            assert not again.connected
            assert "no device is trusted, so no device can connect; `dragon pair --role cloud` adds one" in caplog.text
            machines.cloud.trust("laptop", machines.device.own().public)
            again.wait(lambda: again.connected)


def test_a_device_that_was_shut_out_reads_its_keys_again(machines: Machines) -> None:
    device = Recorder()
    wrong = DeviceKeys(machines.device.own(), pair().public)
    held = [wrong]
    with (
        CloudLink(LOCAL, machines.cloud.cloud_keys(), Recorder(), QUICK) as cloud,
        DeviceLink(cloud.address, wrong, device, QUICK, renew=lambda: held[0]) as link,
    ):
        device.wait_polling(lambda: link.counters().refused > 1)
        assert not device.connected
        held[0] = machines.device.device_keys()
        device.wait(lambda: device.connected)
        assert device.connected[0].key == machines.cloud.own().public


def test_the_log_names_those_that_are_refused_and_is_not_filled_by_them(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = DeviceKeys(pair(), machines.cloud.own().public)
    device = Recorder()
    with (
        CloudLink(LOCAL, machines.cloud.cloud_keys(), Recorder(), QUICK) as cloud,
        DeviceLink(cloud.address, stranger, device, QUICK) as link,
    ):
        device.wait_polling(lambda: link.counters().refused > 8)
    told = [record.getMessage() for record in caplog.records if "refused a connection" in record.getMessage()]
    assert 1 <= len(told) <= 5
    assert fingerprint(stranger.own.public) in told[0]
    assert stranger.own.public not in caplog.text


def test_reconnecting_does_not_refill_the_quota_of_a_key(machines: Machines) -> None:
    limits = Limits(messages_per_second=0.001, messages_burst=10.0)
    cloud_side = Recorder()
    with CloudLink(LOCAL, machines.cloud.cloud_keys(), cloud_side, limits) as cloud:
        for count in (8, 16, 24):
            device = Recorder()
            with DeviceLink(cloud.address, machines.device.device_keys(), device, limits) as link:
                device.wait_polling(lambda link=link: link.send(Cancel(8)))  # type: ignore[misc]
                for session in range(1, 8):
                    link.send(Cancel(session))
                cloud_side.wait_polling(
                    lambda count=count: (  # type: ignore[misc]
                        len(cloud_side.messages) + cloud.counters().over_quota >= count
                    )
                )
        assert len(cloud_side.messages) == 9  # of ten: one was the probe behind which the first link was closed


def test_zeromq_itself_refuses_everybody_when_the_gate_is_gone(machines: Machines) -> None:
    """Without this a crash of the gate would open the server to every key."""
    device = Recorder()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    gate = ZapAuthenticator(context, lambda key: True, lambda key: False)
    gate.close()
    server = context.socket(zmq.ROUTER)
    gate.protect(server, machines.cloud.own().secret.encode())
    port = server.bind_to_random_port("tcp://127.0.0.1")
    with DeviceLink(f"tcp://127.0.0.1:{port}", machines.device.device_keys(), device, QUICK) as link:
        device.wait_polling(lambda: link.status().state in ("away", "refused"))
        assert not device.connected
        assert not server.poll(0)
    server.close(0)
    context.term()


KEY = bytes(range(32))
REQUEST = [b"1.0", b"7", b"dragon", b"127.0.0.1", b"id", b"CURVE", KEY]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda request: request, b"200"),
        (lambda request: [b"2.0", *request[1:]], b"400"),
        (lambda request: [*request[:2], b"other", *request[3:]], b"400"),
        (lambda request: [*request[:5], b"NULL"], b"400"),
        (lambda request: [*request[:5], b"PLAIN", b"name", b"password"], b"400"),
        (lambda request: [*request[:6], KEY[:31]], b"400"),
        (lambda request: [*request, b"more"], b"400"),
        (lambda request: [b"1.0"], b"400"),
    ],
)
def test_the_gate_answers_every_question_and_doubts_what_it_does_not_know(
    change: Callable[[list[bytes]], list[bytes]], verdict: bytes
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    gate = ZapAuthenticator(context, lambda key: True, lambda key: False)
    asker = context.socket(zmq.REQ)
    asker.linger = 0
    asker.connect("inproc://zeromq.zap.01")
    asker.send_multipart(change(REQUEST))
    assert gate.socket.poll(5000)
    gate.answer()
    assert asker.poll(5000)
    answer = asker.recv_multipart()
    assert len(answer) == 6 and answer[2] == verdict
    asker.close()
    gate.close()
    context.term()
