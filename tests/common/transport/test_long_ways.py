"""Links whose round trip takes seconds, or that carry less than a kilobyte per second. They mostly wait."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys
from common.transport.sending import Limits
from proto.messages import Cancel
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.common.transport.support import Echo, Recorder, draft, port_of
from tests.common.transport.test_front_door import pair

LOCAL = "tcp://127.0.0.1:0"
SLOW = 7000 / 8  # bytes per second


@pytest.mark.timeout(240)
def test_links_that_mostly_wait_at_the_same_time() -> None:
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(comes_up_on_a_long_way_and_again_after_a_cut, rtt) for rtt in (2.0, 5.0)]
        waiting.append(pool.submit(is_not_dead_while_one_message_takes_half_a_minute))
    for each in waiting:
        each.result()


def comes_up_on_a_long_way_and_again_after_a_cut(rtt: float) -> None:
    """An encrypted link does."""
    cloud_pair, device_pair = pair(), pair()
    keys = CloudKeys(cloud_pair, lambda key: key == device_pair.public)
    way = Line(delay=rtt / 2)
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, keys, echo) as cloud,
        FaultyProxy(port_of(cloud.address), up=way, down=way) as proxy,
        DeviceLink(proxy.address, DeviceKeys(device_pair, cloud_pair.public), device) as link,
    ):
        echo.link = cloud
        for count in (1, 2):
            begun = time.monotonic()
            device.wait(lambda count=count: len(device.connected) == count, 90)  # type: ignore[misc]
            # Longer than a link on a short way may be silent: each side must know that this way is long.
            device.wait_polling(lambda count=count: link.send(draft(count)), 10)  # type: ignore[misc]
            device.wait(lambda count=count: len(device.messages) == count, 30)  # type: ignore[misc]
            print(f"connection {count} over {rtt} s: {time.monotonic() - begun:.0f} s until an answer")
            assert len(device.gone) == count - 1
            proxy.cut()
            device.wait(lambda count=count: len(device.gone) == count, 30)  # type: ignore[misc]
        assert device.received() == [draft(1), draft(2)]


def test_an_attempt_waits_longer_after_each_that_heard_nothing() -> None:
    """The first ones end before the first word of the other side comes."""
    # A machine that stands still cuts a connection of such impatience, too, but not each time.
    assert any(connections_until_an_answer() == 1 for _ in range(3))


def connections_until_an_answer() -> int:
    impatient = Limits(connect_timeout=0.2, heartbeat_interval=0.1, heartbeat_timeout=0.5, backoff_last=0.1)
    way = Line(delay=0.5)
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, None, echo, impatient) as cloud,
        FaultyProxy(port_of(cloud.address), up=way, down=way) as proxy,
        DeviceLink(proxy.address, None, device, impatient) as link,
    ):
        echo.link = cloud
        device.wait_polling(lambda: "doesn't answer" in link.status().detail)
        device.wait(lambda: device.connected, 30)
        link.send(draft(1))
        device.wait(lambda: device.messages or len(device.connected) > 1, 30)
        return len(device.connected)


def is_not_dead_while_one_message_takes_half_a_minute() -> None:
    """A link that carries less than a kilobyte per second."""
    cloud_pair, device_pair = pair(), pair()
    keys = CloudKeys(cloud_pair, lambda key: key == device_pair.public)
    way = Line(delay=0.1, rate=SLOW)
    cloud_side, device = Recorder(), Recorder()
    with (
        CloudLink(LOCAL, keys, cloud_side) as cloud,
        FaultyProxy(port_of(cloud.address), up=way, down=way) as proxy,
        DeviceLink(proxy.address, DeviceKeys(device_pair, cloud_pair.public), device) as link,
    ):
        device.wait(lambda: device.connected, 30)
        link.send(Cancel(1))
        [peer] = cloud_side.wait(lambda: cloud_side.connected, 30)
        begun = time.monotonic()
        link.send(draft(1, bytes(30_000)))
        cloud.send(peer, draft(2, bytes(30_000)))
        cloud_side.wait(lambda: draft(1, bytes(30_000)) in cloud_side.received(), 80)
        device.wait(lambda: device.received() == [draft(2, bytes(30_000))], 80)
        assert time.monotonic() - begun > Limits().heartbeat_timeout * 3
        assert not device.gone and not cloud_side.gone
