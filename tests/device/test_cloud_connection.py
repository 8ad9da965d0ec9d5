"""Clouds that the device lets in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import pytest

from common.answer.request import starting_message, stopping_message
from common.daemon.handshake import changes
from common.daemon.side import SideRuntime
from common.estimates.estimators import DecodeLine
from common.estimates.profiler import Profiler
from common.transport.sending import Peer
from device.cloud_connection import CloudConnection
from proto.errors import malformed
from proto.framing import PROTOCOL_VERSION
from proto.messages import Error, Hello, Welcome

OWN = Hello("device", "model", "tokenizer", 10, "scorer", "embedder", ("race",), 0.01, 0.0, (), "", "near")
CLOUD = replace(OWN, role="cloud", library="first")


@dataclass
class Side:
    """The part of the runtime that a connection needs."""

    profiler: Profiler
    hello: Hello = OWN


@pytest.fixture
def profiler() -> Iterator[Profiler]:
    profiler = Profiler("device", DecodeLine.of(0.0, 0.01, 256))
    yield profiler
    profiler.close()


def unheard(profiler: Profiler) -> CloudConnection:
    """A connection of which nobody wants to hear."""
    return CloudConnection(
        "tcp://cloud:1",
        cast(SideRuntime, Side(profiler)),
        lambda message, size: None,
        lambda: None,
        lambda reason: None,
    )


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (replace(CLOUD, tokenizer="other"), "the tokenizers differ"),
        (replace(CLOUD, scorer="other"), "the scorers differ"),
        (replace(CLOUD, embedder="other"), "the embedding models differ"),
        (OWN, "connect a device to a cloud"),
    ],
)
def test_one_that_came_back_as_another_is_refused(profiler: Profiler, hello: Hello, said: str) -> None:
    """The device refuses an incompatible cloud even if that cloud welcomes it."""
    welcomed: list[Hello] = []
    refused: list[str] = []
    connection = CloudConnection(
        "tcp://cloud:1",
        cast(SideRuntime, Side(profiler)),
        lambda message, size: None,
        lambda: welcomed.append(hello),
        refused.append,
    )
    peer = Peer(1, None)
    connection.on_message(peer, Welcome(CLOUD, 1, 1, 1), 0)
    assert connection.status().state == "connected"
    connection.on_gone(peer)
    connection.on_message(peer, Welcome(hello, 1, 1, 1), 0)
    assert (connection.welcome, len(welcomed)) == (None, 1)
    assert connection.status().state == "refused"
    assert said in connection.status().detail
    assert refused == [connection.status().detail]


def test_a_cloud_that_sends_nonsense_over_and_over_costs_a_few_lines(
    profiler: Profiler, caplog: pytest.LogCaptureFixture
) -> None:
    connection = unheard(profiler)
    peer = Peer(1, None)
    with caplog.at_level(logging.INFO):
        for _ in range(500):
            connection.on_invalid(peer, malformed("a header must be an array"))
            connection.on_message(peer, Error(0, "quota", "slow down"), 0)
            connection.on_message(peer, Welcome(CLOUD, 1, 1, 1), 0)
    assert 2 <= len(caplog.records) <= 20


def test_what_a_cloud_writes_freely_is_for_the_status_and_not_for_the_log(
    profiler: Profiler, caplog: pytest.LogCaptureFixture
) -> None:
    """It knows the questions: a line with one of them would be read by whoever reads logs."""
    words = "When is my test at Dr Weber's?"
    connection = unheard(profiler)
    peer = Peer(1, None)
    with caplog.at_level(logging.INFO):
        connection.on_message(peer, Welcome(replace(CLOUD, scorer=words), 1, 1, 1), 0)
        assert words in connection.status().detail
        connection.on_message(peer, Error(0, "quota", words), 0)
        assert connection.status().detail == words
        connection.on_message(peer, Error(0, words, words), 0)
        connection.on_message(peer, Welcome(CLOUD, 1, 1, 1), 0)
        connection.on_message(peer, Error(0, "quota", words), 0)
    assert caplog.messages == [
        "the cloud at tcp://cloud:1 is refused (mismatch); `dragon status` says why",
        "the cloud at tcp://cloud:1 refuses (quota); `dragon status` says why",
        "the cloud at tcp://cloud:1 refuses (of another kind); `dragon status` says why",
        "connected to the cloud at tcp://cloud:1",
        "the cloud at tcp://cloud:1 reports a fault (quota)",
    ]
    with caplog.at_level(logging.DEBUG):
        connection.on_message(peer, Error(0, "quota", words), 0)
    assert caplog.messages[-1] == f"The cloud's words: {words}"


def test_a_complaint_about_the_version_is_put_as_this_device_sees_it(profiler: Profiler) -> None:
    """In the cloud's own words "this side" is the cloud."""
    connection = unheard(profiler)
    text = (
        f"this side speaks protocol version {PROTOCOL_VERSION - 1}, the peer {PROTOCOL_VERSION}; update the older one"
    )
    connection.on_message(Peer(1, None), Error(0, "version", text), 0)
    status = connection.status()
    assert status.state == "refused"
    assert f"this device, which speaks version {PROTOCOL_VERSION}:" in status.detail
    assert f"speaks protocol version {PROTOCOL_VERSION - 1}" not in status.detail


def test_one_that_was_starting_is_so_no_more_when_it_has_welcomed(profiler: Profiler) -> None:
    """It may do so on the same connection: a gateway that was waiting for a worker."""
    connection = unheard(profiler)
    peer = Peer(1, None)
    connection.on_message(peer, starting_message("waiting for a worker"), 0)
    assert connection.status().detail == "The cloud at tcp://cloud:1 is starting: waiting for a worker."
    connection.on_message(peer, Welcome(CLOUD, 1, 1, 1), 0)
    assert connection.status().state == "connected"
    connection.on_message(peer, stopping_message(), 0)
    assert connection.status().detail == "Connecting to tcp://cloud:1."


def test_what_has_changed_is_named() -> None:
    assert changes(CLOUD, replace(CLOUD, decode_intercept=0.5, codecs=())) == []
    assert changes(CLOUD, replace(CLOUD, library="second")) == ["library"]
    assert changes(CLOUD, replace(CLOUD, model="other", library="second")) == ["model", "library"]
