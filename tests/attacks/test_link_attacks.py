"""Attacks on a cloud's link, with a good session beside: it must not notice, and memory must stay bounded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys
from common.transport.sending import Limits
from proto.messages import Cancel
from tests.attacks.attacker import KINDS, MOST_CONNECTIONS, PIECE
from tests.attacks.side_by_side import Attacker, resident_bytes, side_by_side
from tests.common.transport.support import Echo, Recorder, draft
from tests.common.transport.test_front_door import pair

LOCAL = "tcp://127.0.0.1:0"
# What an attack may cost the median exchange (a third of a millisecond when nothing else runs), so generous that a
# busy machine, on which the attacker itself takes one of two cores, does not fail it: an exchange passes through five
# threads, each of which waits for its turn of some milliseconds there. The figures are printed.
FACTOR, SLACK = 4.0, 0.02
GROWTH = 48 * 2**20  # bytes of resident memory; what is seen is 0 to 16 MiB
WINDOWS, SECONDS = 3, 0.2  # of the attack
ATTACKS = 3  # of which a busy machine may spoil all but one: it can cut a connection late
ENDLESS = 0.6  # seconds of a window for an attack of which some may be taken in
LOOKS = 0.5  # seconds; what a connection sends until it is found out is taken in, as fast as the machine can
PATIENCE = 200.0  # seconds for an attack to be through, on a machine with other work
ENCRYPTED = ("strangers", "malformed", "names", "connections")  # the others speak ZMTP by hand, without CURVE
COUNTED = {  # by the victim, of an attack that gets in
    "strangers": "refused",
    "malformed": "malformed",
    "names": "connects",
    "connections": "disconnected",
    "endless": "disconnected",
    "slow": "connects",
}
CASES = [(kind, False) for kind in KINDS] + [(kind, True) for kind in ENCRYPTED]


@pytest.mark.parametrize(("kind", "encrypted"), CASES, ids=[f"{kind}{'-curve' * curve}" for kind, curve in CASES])
def test_a_good_session_does_not_notice(kind: str, encrypted: bool) -> None:
    cloud_pair, good, bad = pair(), pair(), pair()
    keys = CloudKeys(cloud_pair, lambda key: key in (good.public, bad.public)) if encrypted else None
    device_keys = DeviceKeys(good, cloud_pair.public) if encrypted else None
    attacking = (bad.public, bad.secret, cloud_pair.public) if encrypted else ()
    limits = Limits(queue_messages=256)
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, keys, echo, limits) as cloud,
        DeviceLink(cloud.address, device_keys, device) as link,
        Attacker(kind, cloud.address, *attacking) as attacker,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        sent = 0

        def exchange() -> float:
            nonlocal sent
            begun = time.perf_counter()
            link.send(draft(sent))
            sent += 1
            device.wait(lambda: len(device.messages) >= sent)
            echo.messages.clear()  # what the test itself keeps is no leak of the link
            echo.invalid.clear()
            return time.perf_counter() - begun

        exchange()
        counted, seconds, strikes = cloud.counters(), ENDLESS if kind == "endless" else SECONDS, 0
        for _ in range(ATTACKS):
            before = resident_bytes()
            found = side_by_side(attacker, exchange, WINDOWS, seconds)
            grown = resident_bytes() - before
            print(f"{kind}{' with a trusted key' * encrypted}: {found}, {grown / 2**20:+.0f} MiB")
            taken_in = PIECE * (found.strikes - strikes) * LOOKS / (WINDOWS * seconds) if kind == "endless" else 0.0
            strikes = found.strikes
            if grown < GROWTH + taken_in and found.attacked < FACTOR * found.quiet + SLACK:
                break
        assert device.received() == [draft(position) for position in range(sent)]
        assert not device.gone and len(device.connected) == 1
        assert found.strikes > 0
        assert found.attacked < FACTOR * found.quiet + SLACK
        assert grown < GROWTH + taken_in
        if name := COUNTED.get(kind):
            attacker.go()  # until it has come so far on a busy machine, too
            device.wait_polling(lambda: getattr(cloud.counters(), name) > getattr(counted, name), PATIENCE)
        assert cloud.counters().mishaps == cloud.counters().faults == 0


def descriptors() -> int:
    """Files and connections that this process has open."""
    return len(os.listdir(Path("/proc/self/fd")))


def test_ten_thousand_connections_hold_a_bounded_number_of_descriptors() -> None:
    """They are opened as fast as the machine can; a device that comes in the middle gets in."""
    echo, device, late = Echo(), Recorder(), Recorder()
    with (
        CloudLink(LOCAL, None, echo) as cloud,
        DeviceLink(cloud.address, None, device) as link,
        Attacker("connections", cloud.address) as attacker,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(0))
        device.wait(lambda: device.messages)
        before = descriptors()
        most, begun = 0, time.monotonic()
        attacker.go()
        position = 0
        while cloud.counters().disconnected < MOST_CONNECTIONS - 2 * cloud.limits.strangers:
            assert time.monotonic() - begun < PATIENCE, cloud.counters()
            position += 1
            link.send(draft(position))
            device.wait(lambda position=position: len(device.messages) > position)  # type: ignore[misc]
            most = max(most, descriptors() - before)
            if position == 5:
                late_link = DeviceLink(cloud.address, None, late)
                late_link.start()
        seconds = time.monotonic() - begun
        late.wait_polling(lambda: late_link.status().state == "connected" and late_link.send(Cancel(9)))
        echo.wait(lambda: Cancel(9) in echo.received())
        late_link.close()
        print(f"{MOST_CONNECTIONS} connections in {seconds:.1f} s, {most} descriptors at most")
        # The attacker keeps its ends of all of them. How many there are at a time until the guard has its turn is a
        # matter of the machine.
        attacker.stop()
        device.wait_polling(lambda: descriptors() - before < 4 * cloud.limits.strangers)
        assert not device.gone and cloud.counters().mishaps == 0
