"""Clouds that the device lets in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import pytest

from common.placement.estimators import DecodeLine
from common.runtime.handshake import changes
from common.runtime.profiler import Profiler
from common.runtime.side import SideRuntime
from common.transport.interface import Peer
from device.cloud_connection import CloudConnection
from proto.messages import Hello, Welcome

OWN = Hello("device", "model", "tokenizer", 10, "scorer", "embedder", ("race",), 0.01, 0.0, (), "")
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
    connection = CloudConnection(
        "tcp://cloud:1", cast(SideRuntime, Side(profiler)), lambda message, size: None, lambda: welcomed.append(hello)
    )
    peer = Peer(1, None)
    connection.on_message(peer, Welcome(CLOUD, 1, 1, 1), 0)
    assert connection.status().state == "connected"
    connection.on_gone(peer)
    connection.on_message(peer, Welcome(hello, 1, 1, 1), 0)
    assert (connection.welcome, len(welcomed)) == (None, 1)
    assert connection.status().state == "refused"
    assert said in connection.status().detail


def test_what_has_changed_is_named() -> None:
    assert changes(CLOUD, replace(CLOUD, decode_intercept=0.5, codecs=())) == []
    assert changes(CLOUD, replace(CLOUD, library="second")) == ["library"]
    assert changes(CLOUD, replace(CLOUD, model="other", library="second")) == ["model", "library"]
