"""A cloud that is starting tells devices how far it is."""

from __future__ import annotations

import pytest

from cloud.daemon import PERIOD, Reception
from common.process.lifetime import Startup
from common.transport.sending import Peer
from proto.messages import Error, Hello, Message, Probe

HELLO = Hello("device", "m", "t", 100, "s", "e", ("race",), 0.1, 0.0, (), "", "near")
ONE, OTHER = Peer(1, "key"), Peer(2, None)


class Told:
    """A link that keeps what is said over it."""

    def __init__(self) -> None:
        self.texts: list[tuple[Peer, str]] = []

    def send(self, peer: Peer, message: Message) -> int:
        assert isinstance(message, Error)
        assert (message.session, message.code) == (0, "starting")
        self.texts.append((peer, message.text))
        return 1

    def queued(self, peer: Peer) -> int:
        return 0

    def taken(self) -> list[tuple[Peer, str]]:
        taken, self.texts = self.texts, []
        return taken


@pytest.fixture
def startup() -> Startup:
    return Startup()


@pytest.fixture
def link() -> Told:
    return Told()


@pytest.fixture
def reception(startup: Startup, link: Told) -> Reception:
    reception = Reception(startup)
    reception.link = link
    return reception


def test_who_says_hello_is_told(reception: Reception, startup: Startup, link: Told) -> None:
    reception.on_connected(ONE)
    reception.on_message(ONE, Probe(1, 2), 8)
    assert link.taken() == []
    startup.at("importing the model", 0.4)
    reception.on_message(ONE, HELLO, 99)
    assert link.taken() == [(ONE, "importing the model, 40 %")]


def test_news_are_told_to_all_who_wait(reception: Reception, startup: Startup, link: Told) -> None:
    startup.at("importing the model", 0.4)
    for peer in (ONE, OTHER):
        reception.on_message(peer, HELLO, 99)
    link.taken()
    reception.tick(100.0)
    assert link.taken() == []
    startup.at("importing the model", 0.5)
    reception.on_gone(OTHER)
    reception.tick(100.0 + PERIOD / 2)
    assert link.taken() == [], "not so often"
    reception.tick(100.0 + PERIOD)
    assert link.taken() == [(ONE, "importing the model, 50 %")]


def test_a_device_that_says_hello_over_and_over_is_remembered_once(
    reception: Reception, startup: Startup, link: Told
) -> None:
    for _ in range(5):
        reception.on_message(ONE, HELLO, 99)
    assert len(link.taken()) == 5
    startup.at("opening the library")
    reception.tick(100.0)
    assert link.taken() == [(ONE, "opening the library")]
