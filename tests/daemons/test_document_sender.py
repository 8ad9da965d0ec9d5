"""Documents that the cloud hands over, and what a device that asks for them can cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.sessions import Sessions
from cloud.settings import CloudSettings
from common.configuration.configuration import load_settings
from common.daemon.side import SideRuntime
from common.engine.jobs import Job
from common.engine.kv.documents import unpack_states
from common.methods.paper.fetch import FetchCloud
from common.transport.sending import Peer
from proto.messages import Busy, Cancel, Error, Fetch, Fetched, Form, Message
from tests.daemons.conftest import ENTRIES
from tests.daemons.streaming import wait_until

QUESTION = "What is the best-selling horror game?"
PEER, OTHER = Peer(1, None), Peer(2, None)
IDLE = 5.0  # seconds


class Wire:
    """A link whose reader can be slow: `sent` is what it took."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.waiting = 0  # bytes that it says wait in it
        self.full = False

    def send(self, peer: Peer, message: Message) -> int:
        if self.full:
            return 0
        self.sent.append(message)
        return 100

    def queued(self, peer: Peer) -> int:
        return self.waiting

    def of(self, kind: type) -> list[Message]:
        return [message for message in self.sent if isinstance(message, kind)]


@pytest.fixture(scope="module")
def side(fresh_data: Callable[[], Path]) -> Iterator[SideRuntime]:
    settings = load_settings(CloudSettings, overrides={"data": fresh_data() / "cloud", "threads": 1})
    side = SideRuntime("cloud", settings)
    yield side
    side.close()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def sessions(side: SideRuntime, wire: Wire) -> Sessions:
    settings = side.settings.model_copy(update={"max_sessions": 1, "max_documents": 4, "session_idle_seconds": IDLE})
    assert isinstance(settings, CloudSettings)
    sessions = Sessions(settings, side)
    sessions.link = wire
    for peer in (PEER, OTHER):
        sessions.on_message(peer, replace(side.hello, role="device"), 0)
    return sessions


def fetch(session: int, form: Form = "text", documents: int = 4) -> Fetch:
    return Fetch(session, QUESTION, documents, form)


def free(sessions: Sessions) -> bool:
    return not sessions._sessions


def test_texts_the_most_similar_first_and_the_place_is_free(sessions: Sessions, wire: Wire) -> None:
    sessions.on_message(PEER, fetch(5), 0)
    wait_until(lambda: free(sessions), "all is sent")
    fetched = [message for message in wire.sent if isinstance(message, Fetched)]
    assert [message.index for message in fetched] == [0, 1, 2, 3]
    assert {message.payload.decode() for message in fetched} < set(ENTRIES.values())
    assert fetched[0].payload.decode() == ENTRIES["horror"]
    assert sorted((message.similarity for message in fetched), reverse=True) == [each.similarity for each in fetched]


def test_keys_and_values_are_the_documents(sessions: Sessions, side: SideRuntime, wire: Wire) -> None:
    sessions.on_message(PEER, fetch(5, "kv", documents=1), 0)
    wait_until(lambda: free(sessions), "all is sent")
    parts = [message for message in wire.sent if isinstance(message, Fetched)]
    body = b"".join(message.payload for message in parts)
    tokens, states = unpack_states(body, side.decoder.layout, side.decoder.vocabulary, 1024)
    assert side.tokenizer.decode(tokens).strip() == ENTRIES["horror"]
    assert states[0][0].shape[1] == len(tokens)


def test_the_engine_knows_whose_documents_they_are(
    sessions: Sessions, side: SideRuntime, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections get a device no more of the passes."""
    peers = list[object]()
    submit = side.decoding.submit

    def noting(job: Job) -> None:
        peers.append(job.tenant)
        submit(job)

    monkeypatch.setattr(side.decoding, "submit", noting)
    for peer in (Peer(3, "laptop"), Peer(4, "laptop"), Peer(5, "telephone")):
        sessions.on_message(peer, replace(side.hello, role="device"), 0)
        sessions.on_message(peer, fetch(5, "kv", documents=1), 0)
        wait_until(lambda: free(sessions), "all is sent")
    assert peers == ["laptop", "laptop", "telephone"]


def test_a_slow_reader_waits_and_is_forgotten_in_the_end(sessions: Sessions, wire: Wire) -> None:
    wire.waiting = 2**30
    sessions.on_message(PEER, fetch(5), 0)
    (sender,) = sessions._sessions.values()
    assert isinstance(sender, FetchCloud)
    wait_until(lambda: not sender._parts.empty, "a document is prepared")
    now = time.monotonic()
    sessions.tick(now)
    assert wire.of(Fetched) == []
    assert not free(sessions)
    sessions.tick(now + IDLE + 1)
    assert free(sessions)


def test_what_the_link_drops_is_sent_again(sessions: Sessions, wire: Wire) -> None:
    wire.full = True
    sessions.on_message(PEER, fetch(5), 0)
    (sender,) = sessions._sessions.values()
    assert isinstance(sender, FetchCloud)
    wait_until(lambda: not sender._parts.empty, "a document is prepared")
    wire.full = False

    def pumped() -> bool:
        sessions.tick(time.monotonic())
        return free(sessions)

    wait_until(pumped, "all is sent")
    assert len(wire.of(Fetched)) == 4


@pytest.mark.parametrize("how", ["cancelled", "gone"])
def test_a_place_is_one_of_all_devices_and_is_freed_at_once(sessions: Sessions, wire: Wire, how: str) -> None:
    wire.waiting = 2**30
    sessions.on_message(PEER, fetch(5), 0)
    sessions.on_message(OTHER, fetch(6), 0)
    assert [type(message) for message in wire.sent[-1:]] == [Busy]
    if how == "cancelled":
        sessions.on_message(PEER, Cancel(5), 0)
    else:
        sessions.on_gone(PEER)
    assert free(sessions)
    wire.waiting = 0
    sessions.on_message(OTHER, fetch(6), 0)
    wait_until(lambda: free(sessions), "all is sent")
    assert {message.session for message in wire.sent if isinstance(message, Fetched)} == {6}


@pytest.mark.parametrize("request_", [fetch(5, documents=5), Fetch(5, " ", 1, "text"), Fetch(5, "q" * 9000, 1, "kv")])
def test_what_this_cloud_does_not_allow(sessions: Sessions, wire: Wire, request_: Fetch) -> None:
    sessions.on_message(PEER, request_, 0)
    (error,) = [message for message in wire.sent if isinstance(message, Error)]
    assert (error.session, error.code) == (5, "unservable")
    assert free(sessions)


def test_nobody_gets_documents_before_the_handshake(sessions: Sessions, wire: Wire) -> None:
    sessions.on_message(Peer(3, None), fetch(5), 0)
    (error,) = [message for message in wire.sent if isinstance(message, Error)]
    assert error.code == "no-handshake"
