"""The bytes that a report tells of an answer are those of its messages as a router on the way sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.methods.interface import LIFECYCLE
from proto.messages import Fetched, Message, Open, Probe, ProbeReply
from scripts.daemons import Pair, free_port
from tests.daemons.wire_tap import WireTap

QUESTION = "What is the best-selling horror game?"
LAW: dict[str, Any] = {"temperature": 1.2, "seed": 5, "max_tokens": 40, "documents": 2}
METHODS: dict[str, dict[str, Any]] = {
    "speculative": {"sources": "cloud"},
    "dsd": {"draft_length": 8, "top_k": 0},  # distributions that take more than 255 bytes
    "dssd": {},
    "qsv": {"resolution": 32},
    # Ahead: a proposal may be under way when the answer ends.
    "coupled": {"eager": False, "draft_policy": "fixed"},
    "left to the cloud": {"method": "coupled", "eager": False},  # some of it, or all
    "eager": {"method": "coupled"},
    "rapid": {"long_document": "horror", "retrieval_threshold": -1.0, "draft_length": 2},  # several rounds
}


@dataclass(frozen=True, slots=True)
class Tapped:
    """Two daemons whose connection can be read."""

    pair: Pair
    tap: WireTap


@pytest.fixture(scope="module")
def tapped(fresh_data: Callable[[], Path]) -> Iterator[Tapped]:
    port = free_port()
    with WireTap(port) as tap:
        device, cloud = {"curve": "off", "patience": 60.0}, {"curve": "off"}
        with Pair(fresh_data(), device, cloud, between=tap.port, cloud_port=port) as pair:
            yield Tapped(pair, tap)


def of_answers(seen: list[tuple[Message, int]]) -> list[tuple[Message, int]]:
    """All messages but those of the link."""
    return [(message, size) for message, size in seen if not isinstance(message, Probe | ProbeReply)]


@pytest.mark.parametrize("method", METHODS)
def test_reported_bytes_are_those_on_the_line(tapped: Tapped, method: str) -> None:
    tap = tapped.tap
    before = len(tap.up), len(tap.down)
    report = tapped.pair.complete(QUESTION, **{"method": method} | LAW | METHODS[method])["dragon"]
    up, down = (of_answers(seen[start:]) for seen, start in zip((tap.up, tap.down), before, strict=True))
    (session,) = [message.session for message, _ in up if isinstance(message, Open)]
    assert {getattr(message, "session", None) for message, _ in (*up, *down)} == {session}
    fetched = [size for message, size in down if isinstance(message, Fetched)]
    sent, received = ([each for each in seen if not isinstance(each[0], (*LIFECYCLE, Fetched))] for seen in (up, down))
    assert report["sent_bytes"] == sum(size for _, size in sent)
    assert report["received_bytes"] == sum(size for _, size in received)
    assert report["fetched_bytes"] == sum(fetched)
    assert report["degraded"] == []
    # Else nothing is shown. An eager verifier may have decided all before anything is proposed.
    assert len(received) > 2 and (len(fetched) > 0) == (method != "speculative")
    assert len(sent) > 2 or method in ("speculative", "eager", "left to the cloud")
    assert method != "dsd" or max(size for _, size in sent) > 255 + 2
