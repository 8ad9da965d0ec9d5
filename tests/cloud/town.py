"""One cloud and several devices in this process, over real sockets, with the embedded draft model."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from cloud.sessions import Sessions
from cloud.settings import CloudSettings
from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.daemon.side import SideRuntime
from common.daemon.start import Ticker
from common.methods.catalog import METHODS
from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.sending import Peer
from device.engine import DeviceEngine
from device.interface import Finished
from device.settings import DeviceSettings
from proto.errors import ProtocolError
from proto.messages import Error, Message, Welcome
from tests.daemons.streaming import wait_until
from tests.support.generations import Iterated
from tests.support.sides import make_side

MODEL: dict[str, Any] = {
    "model": str(EMBEDDED_MODEL.parent / "draft"),
    "tokenizer": str(EMBEDDED_TOKENIZER),
    "threads": 1,
}
AT_ONCE = 40.0  # seconds, on a busy machine; less than the devices' patience


class Town:
    """A context manager: the cloud is up inside, devices come with `device` and `stranger`."""

    standing: ClassVar[list[Town]] = []  # those that are up now

    def __init__(self, data: Path, **cloud: Any) -> None:
        """`cloud` are settings; `emulate_decode_ms` works as in the daemon."""
        self.data = data
        settings = CloudSettings(data=data / "cloud", **(MODEL | cloud))
        self.cloud = make_side("cloud", settings)
        self.sessions = Sessions(settings, self.cloud)
        self.link = CloudLink("tcp://127.0.0.1:0", None, self.sessions, self.cloud.link_limits)
        self.sessions.link, self.sessions.metrics.link = self.link, self.link.counters
        self._ticker = Ticker(self.sessions.tick)
        self._guests: list[Resident | Stranger] = []

    def __enter__(self) -> Town:
        self.link.start()
        self._ticker.start()
        self.standing.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.standing.remove(self)
        for guest in reversed(self._guests):
            guest.close()
        self._ticker.close()
        self.link.close()
        self.cloud.close()

    def device(self, name: str, address: str | None = None, **changes: Any) -> Resident:
        """A device, connected; `changes` are settings."""
        data = self.data / name
        shutil.copytree(self.data / "device", data)
        chosen = MODEL | {"cloud": address or self.link.address, "privacy": "balanced", "patience": 60.0} | changes
        settings = DeviceSettings(data=data, **chosen)
        resident = Resident(settings)
        self._come(resident, resident.start)
        return resident

    def stranger(self) -> Stranger:
        """A peer that has shaken hands and can send any message."""
        stranger = Stranger(self.link.address)
        self._come(stranger, partial(stranger.greet, self.cloud))
        return stranger

    def _come(self, guest: Resident | Stranger, greet: Callable[[], None]) -> None:
        self._guests.append(guest)
        others = set(self.sessions._peers)
        greet()
        guest.peers = set(self.sessions._peers) - others

    @staticmethod
    def run(task: Callable[[], object]) -> None:
        """Run `task` in a thread of its own, which may outlast the test."""
        threading.Thread(target=task, daemon=True).start()

    def check_that_all_is_free(self) -> None:
        wait_until(lambda: self.sessions.open == 0, "the cloud is free", AT_ONCE)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Afterwards the guests that came inside are gone, with all that they sent and held."""
        before = len(self._guests)
        yield
        gone: set[Peer] = set()
        while len(self._guests) > before:
            guest = self._guests.pop()
            guest.close()
            gone |= guest.peers
        # Until it knows that they are gone, the cloud may still read what they sent, and open sessions.
        wait_until(lambda: gone.isdisjoint(self.sessions._peers), "the guests are gone", AT_ONCE)
        self.check_that_all_is_free()
        wait_until(lambda: self.cloud.decoder.memory.used_bytes == 0, "the memory is free", AT_ONCE)


class Resident:
    """A device of the town."""

    def __init__(self, settings: DeviceSettings) -> None:
        self.peers: set[Peer] = set()  # as which the cloud knows it
        self.side = make_side("device", settings, draft=settings.draft, verifying=settings.verifying)
        self.engine = DeviceEngine(settings, self.side)
        connection = self.engine.cloud.connection
        assert connection is not None
        assert settings.cloud is not None
        self.link = DeviceLink(settings.cloud, None, connection, self.side.link_limits)

    def start(self) -> None:
        self.engine.start(self.link)
        self.link.start()
        wait_until(lambda: self.engine.cloud.connected, "the device is connected")

    def vanish(self) -> None:
        """Close the link without telling the cloud."""
        self.link.close()

    def close(self) -> None:
        self.engine.close()
        self.link.close()
        self.side.close()

    def begin(self, question: str, **fields: Any) -> Iterated:
        chosen: dict[str, Any] = {"privacy": "balanced", "seed": 20, "unmatched": "answer"} | fields
        kind = METHODS[chosen.get("method", "speculative")].request
        return Iterated(self.engine, kind(question=question, prompt=f"\nQuestion: {question}\nAnswer:", **chosen))

    def ask(self, question: str, **fields: Any) -> Finished:
        return finished(self.begin(question, **fields))


def finished(generation: Iterated) -> Finished:
    """The end of an answer. Raises what the answer fails with."""
    *_, last = generation
    return cast(Finished, last)


class Stranger:
    """A peer with a link of its own; `heard` has the messages of the cloud."""

    def __init__(self, address: str) -> None:
        self.heard: list[Message] = []
        self.peers: set[Peer] = set()  # as which the cloud knows it
        self.link = DeviceLink(address, None, self)
        self.link.start()

    def greet(self, side: SideRuntime) -> None:
        """Say hello as a device that is compatible with `side`."""
        wait_until(lambda: self.link.status().state == "connected", "the stranger is connected")
        wait_until(lambda: self.link.send(_as_device(side)) > 0, "the stranger is connected")
        wait_until(lambda: bool(self.of(Welcome)), "the stranger is welcome")

    def send(self, message: Message) -> None:
        assert self.link.send(message) > 0

    def of(self, kind: type[Message]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    def code(self) -> str:
        """Code of the first error that comes."""
        wait_until(lambda: bool(self.of(Error)), "an error", AT_ONCE)
        code: str = self.of(Error)[0].code
        return code

    def close(self) -> None:
        self.link.close()

    def on_connected(self, peer: Peer) -> None:
        pass

    def on_gone(self, peer: Peer) -> None:
        pass

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        pass

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        self.heard.append(message)


def _as_device(side: SideRuntime) -> Message:
    return replace(side.hello, role="device")
