"""A cloud's name: unknown, slow to be found, with several addresses or others than before."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from common.transport.address import AddressOrder, Lookup, look_up
from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import CloudKeys, DeviceKeys
from common.transport.sending import Limits
from tests.common.transport.support import SECONDS, Recorder, port_of
from tests.common.transport.test_front_door import pair

NAME = "cloud.example"
QUICK = Limits(backoff_last=0.05, connect_timeout=0.5)


class Names:
    """The system's, of which one is a test's: `answer` gives its numbers."""

    def __init__(self) -> None:
        self.answer: Callable[[], list[str]] = list
        self.asked = 0
        self._others = socket.getaddrinfo

    def look_up(self, host: str, port: int, *rest: Any, **more: Any) -> Any:
        if host != NAME:
            return self._others(host, port, *rest, **more)
        self.asked += 1
        numbers = self.answer()
        if not numbers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found(number, port) for number in numbers]


def found(number: str, port: int) -> tuple[Any, ...]:
    if ":" not in number:
        return socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port)
    zone = int(number.endswith("%eth-0"))  # as the system numbers that interface
    return socket.AF_INET6, socket.SOCK_STREAM, 6, "", (number, port, 0, zone)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    return names


def named(cloud: CloudLink) -> str:
    return f"tcp://{NAME}:{port_of(cloud.address)}"


class TestLink:
    def test_a_cloud_at_the_second_address_of_its_name(self, names: Names) -> None:
        """It listens on IPv4 only, its name has an IPv6 address before that; this machine may have none at all."""
        names.answer = lambda: ["::1", "127.0.0.1"]
        device = Recorder()
        cloud = CloudLink("tcp://127.0.0.1:0", None, Recorder())
        with DeviceLink(named(cloud), None, device, QUICK, insecure=True) as link:
            with cloud:
                device.wait(lambda: device.connected)
            device.wait(lambda: device.gone)
            assert link.status().detail == f"The cloud at {named(cloud)} can't be reached."
            with CloudLink(cloud.address, None, Recorder()):
                device.wait(lambda: len(device.connected) == 2)

    def test_a_cloud_that_has_moved(self, names: Names) -> None:
        names.answer = lambda: ["127.0.0.1"]
        device = Recorder()
        cloud = CloudLink("tcp://127.0.0.1:0", None, Recorder())
        with DeviceLink(named(cloud), None, device, QUICK, insecure=True):
            with cloud:
                device.wait(lambda: device.connected)
                assert names.asked == 1
            names.answer = lambda: ["127.0.0.2"]
            with CloudLink(f"tcp://127.0.0.2:{port_of(cloud.address)}", None, Recorder()):
                device.wait(lambda: len(device.connected) == 2)

    def test_the_key_decides_who_at_a_name_is_the_cloud(self, names: Names) -> None:
        """Another one, to which the same device's key is known, answers at the name's first address."""
        names.answer = lambda: ["127.0.0.2", "127.0.0.1"]
        right, other, own = pair(), pair(), pair()
        cloud_side, stranger, device = Recorder(), Recorder(), Recorder()
        with (
            CloudLink("tcp://127.0.0.1:0", CloudKeys(right, lambda key: key == own.public), cloud_side) as cloud,
            CloudLink(
                f"tcp://127.0.0.2:{port_of(cloud.address)}", CloudKeys(other, lambda key: key == own.public), stranger
            ) as impostor,
            DeviceLink(named(cloud), DeviceKeys(own, right.public), device, QUICK),
        ):
            [peer] = device.wait(lambda: device.connected)
            assert peer.key == right.public
            device.wait_polling(lambda: impostor.counters().refused)
            assert not stranger.connected

    def test_a_name_that_is_not_known_yet(self, names: Names) -> None:
        device = Recorder()
        with (
            CloudLink("tcp://127.0.0.1:0", None, Recorder()) as cloud,
            DeviceLink(named(cloud), None, device, QUICK, insecure=True) as link,
        ):
            device.wait_polling(lambda: names.asked >= 3)
            sentence = f"The name {NAME} is not known here; check how it is spelled, and this machine's network."
            assert (link.status().state, link.status().detail) == ("away", sentence)
            names.answer = lambda: ["127.0.0.1"]
            device.wait(lambda: device.connected)
            assert link.status().detail == ""

    def test_an_unknown_name_is_looked_up_with_growing_pauses(self, names: Names) -> None:
        with DeviceLink(
            f"tcp://{NAME}:9", None, Recorder(), Limits(backoff_first=0.01, backoff_last=0.2), insecure=True
        ):
            begun, device = time.monotonic(), Recorder()
            device.wait_polling(lambda: names.asked >= 6)
            # Half of each pause is certain: (10 + 20 + 40 + 80 + 160) / 2 ms.
            assert time.monotonic() - begun >= 0.15

    def test_a_lookup_that_takes_long_holds_nothing_up(self, names: Names) -> None:
        """Its answer is used when it comes, and no second one is begun beside it."""
        go_on, left = threading.Event(), threading.Event()

        def answer() -> list[str]:
            go_on.wait(SECONDS)
            left.set()
            return ["127.0.0.1"]

        names.answer = answer
        device, limits = Recorder(), Limits(backoff_last=0.05, connect_timeout=0.1)
        with CloudLink("tcp://127.0.0.1:0", None, Recorder()) as cloud:
            with DeviceLink(named(cloud), None, device, limits, insecure=True) as link:
                device.wait_polling(lambda: "The address of cloud.example is not known yet" in link.status().detail)
                go_on.set()
                device.wait(lambda: device.connected)
                assert names.asked == 1
            go_on.clear()
            left.clear()
            with DeviceLink(named(cloud), None, device, limits, insecure=True):
                device.wait_polling(lambda: names.asked == 2)
            assert not left.is_set()  # it closed without waiting for the answer
            go_on.set()
            device.wait_polling(lambda: all(thread.name != "name lookup" for thread in threading.enumerate()))


class TestPlaces:
    def test_each_is_tried_once(self) -> None:
        places = AddressOrder()
        assert places.next() is None
        places.found(["a", "b"])
        assert [places.next() for _ in range(3)] == ["a", "b", None]

    def test_one_that_worked_goes_first_if_it_is_there_still(self) -> None:
        places = AddressOrder()
        places.found(["a", "b", "c"])
        assert [places.next(), places.next()] == ["a", "b"]
        places.worked()
        assert places.next() is None  # after a connection the name is looked up anew
        places.found(["a", "b", "c"])
        assert [places.next() for _ in range(4)] == ["b", "a", "c", None]
        places.found(["c", "a"])
        assert [places.next() for _ in range(3)] == ["c", "a", None]


class TestLookup:
    def test_a_number_is_there_at_once(self, names: Names) -> None:
        for address, number in (
            ("tcp://localhost:5", "tcp://127.0.0.1:5"),
            ("tcp://192.0.2.7:5", "tcp://192.0.2.7:5"),
            ("tcp://[2001:db8::1]:5", "tcp://[2001:db8::1]:5"),
            ("tcp://[fe80::1%eth0]:5", "tcp://[fe80::1%eth0]:5"),
        ):
            lookup = Lookup(address, lambda: None)
            assert lookup.take() is None
            lookup.begin()
            assert [lookup.take(), lookup.take()] == [[number], None]

    def test_addresses_are_spelled_as_numbers(self, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
        made = socket.socket
        monkeypatch.setattr(socket, "socket", lambda family, kind: made(socket.AF_INET, kind))  # there may be no IPv6
        names.answer = lambda: ["2001:db8::1", "192.0.2.7", "fe80::1%eth-0", "192.0.2.7"]
        assert look_up(f"tcp://{NAME}:5") == ["tcp://[2001:db8::1]:5", "tcp://192.0.2.7:5", "tcp://[fe80::1%1]:5"]

    def test_no_address_that_this_machine_has_no_sockets_for(
        self, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = socket.socket

        def four_only(family: int, kind: int) -> socket.socket:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            return made(family, kind)

        monkeypatch.setattr(socket, "socket", four_only)
        names.answer = lambda: ["::1", "192.0.2.7"]
        assert look_up(f"tcp://{NAME}:5") == ["tcp://192.0.2.7:5"]

    @pytest.mark.parametrize("host", ["cloud..example", "x" * 70 + ".example", "\N{SNOWMAN}" * 70])
    def test_what_can_not_be_a_name_has_none(self, host: str) -> None:
        assert look_up(f"tcp://{host}:5") == []
