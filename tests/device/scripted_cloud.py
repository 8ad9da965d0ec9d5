"""A cloud that says what a script tells it to, over a real socket, beside a real device in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.daemon.side import SideRuntime
from common.methods.coupled.scheme import decode_tokens
from common.transport.cloud_link import CloudLink
from common.transport.sending import Peer
from device.interface import AnswerEvent
from device.settings import DeviceSettings
from proto.errors import ProtocolError
from proto.messages import MOST_PROPOSED, Fetch, Hello, Message, Open, Propose, Verdict, Welcome
from tests.cloud.town import MODEL, Resident
from tests.daemons.streaming import wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model
from tests.support.generations import Iterated

BEAT = 0.05  # seconds between two messages of a cloud that does not stop talking
PATIENCE = 0.3  # seconds, of the device
BOUND = 60.0  # seconds; an answer that is held for ever is held for longer on any machine

Script = Callable[["ScriptedCloud", Message], None]


class ScriptedCloud:
    """A context manager. `script` is called with every message but the first, on the link's thread."""

    def __init__(self) -> None:
        self.script: Script = lambda cloud, message: None
        self.hello: Hello | None = None
        self.changes: dict[str, Any] = {}  # to its description of itself
        self._peer: Peer | None = None
        self._stop = threading.Event()
        self._talking: list[threading.Thread] = []
        self.link = CloudLink("tcp://127.0.0.1:0", None, self)

    def __enter__(self) -> ScriptedCloud:
        self.link.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.be_quiet()
        self.link.close()

    def like(self, side: SideRuntime, library: str = "library") -> None:
        """Describe itself as a cloud that goes with `side`."""
        self.hello = replace(side.hello, role="cloud", library=library)

    def say(self, message: Message) -> None:
        """Send a message to the device."""
        assert self._peer is not None
        self.link.send(self._peer, message)

    def welcome(self) -> None:
        assert self.hello is not None
        self.say(Welcome(replace(self.hello, **self.changes), 8, 512, 2**14))

    def welcome_anew(self, **changes: Any) -> None:
        """Be measured as a new cloud with these changes: one that is refused meanwhile is forgotten."""
        self.changes = {"tokenizer": "another"}
        self.welcome()
        self.changes = changes
        self.welcome()

    def later(self, seconds: float, message: Message) -> None:
        """Send a message after some time."""
        timer = threading.Timer(seconds, lambda: None if self._stop.is_set() else self.say(message))
        timer.daemon = True
        timer.start()

    def say_in_turn(self, messages: Sequence[tuple[float, Message]]) -> None:
        """Send messages one after the other, each after a pause."""

        def run() -> None:
            for pause, message in messages:
                if stop.wait(pause):
                    return
                self.say(message)

        stop = self._stop
        talking = threading.Thread(target=run, daemon=True)
        talking.start()
        self._talking.append(talking)

    def keep_saying(self, message: Callable[[], Message]) -> None:
        """Send such messages until told to be quiet."""

        def run() -> None:
            while not stop.wait(BEAT):
                self.say(message())

        stop = self._stop
        talking = threading.Thread(target=run, daemon=True)
        talking.start()
        self._talking.append(talking)

    def be_quiet(self) -> None:
        self._stop.set()
        for talking in self._talking:
            talking.join()
        self._talking.clear()
        self._stop = threading.Event()

    def on_connected(self, peer: Peer) -> None:
        self._peer = peer

    def on_gone(self, peer: Peer) -> None:
        pass

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        raise error

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        self._peer = peer
        if isinstance(message, Hello):
            self.welcome()
        else:
            self.script(self, message)


def agreeing(message: Propose, vocabulary: int, seconds: float = 0.0) -> Verdict:
    """The verdict that all of a coupled proposal holds, by a pass that is said to take so long."""
    count = len(decode_tokens(message.payload, vocabulary, MOST_PROPOSED))
    return Verdict(message.session, message.round, message.position, count, (), int(1e6 * seconds), b"")


def renew(cloud: ScriptedCloud, device: Resident, **changes: Any) -> None:
    """Have the device measure `cloud` as a new one."""
    before = device.engine.cloud.peer
    cloud.welcome_anew(**changes)
    seen = device.engine.cloud
    wait_until(lambda: seen.connected and seen.peer is not before, "the cloud is another one")


def session_of(message: Message) -> int:
    assert isinstance(message, Open | Fetch)
    return message.session


def within(generation: Iterated, seconds: float = BOUND) -> list[AnswerEvent]:
    """All events of an answer, which must end in time. Raises what it fails with."""
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, generation)
        try:
            return reading.result(seconds)
        except TimeoutError:
            generation.cancel()
            raise AssertionError(f"the answer is still held after {seconds} s") from None


@pytest.fixture(scope="module")
def cloud() -> Iterator[ScriptedCloud]:
    with ScriptedCloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def device(cloud: ScriptedCloud, fresh_data: Callable[[], Path]) -> Iterator[Resident]:
    data = fresh_data()
    model = MODEL | {"model": make_wordy_model(data / "model"), "scorer": SCORER}
    del model["tokenizer"]
    chosen = model | {"cloud": cloud.link.address, "privacy": "balanced", "patience": PATIENCE}
    resident = Resident(DeviceSettings(data=data / "device", **chosen))
    cloud.like(resident.side)
    resident.start()
    yield resident
    resident.close()
