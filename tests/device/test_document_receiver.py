"""Parts of fetched documents: put together in any order, refused where they could cost more than they may."""

from __future__ import annotations

import random

import pytest

from common.methods.handing import LARGEST_TOTAL, DocumentReceiver
from proto.errors import ProtocolError
from proto.framing import PAYLOAD_LIMIT
from proto.messages import Fetched

FULL = PAYLOAD_LIMIT
BODIES = (b"a" * (2 * FULL + 5), b"short", b"b" * FULL)


def part(index: int, number: int, parts: int, payload: bytes, count: int = 3) -> Fetched:
    return Fetched(1, index, count, number, parts, 0.5, f"title {index}", payload)


def is_complete(receiver: DocumentReceiver) -> bool:
    return receiver.complete


def messages() -> list[Fetched]:
    found = []
    for index, body in enumerate(BODIES):
        pieces = [body[at : at + FULL] for at in range(0, len(body), FULL)]
        found += [part(index, number, len(pieces), piece) for number, piece in enumerate(pieces)]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_any_order_and_twice(seed: int) -> None:
    order = messages() * 2
    random.Random(seed).shuffle(order)
    receiver = DocumentReceiver(4, 3 * FULL)
    missing = {(message.index, message.part) for message in order}
    for message in order:
        receiver.add(message)
        missing.discard((message.index, message.part))
        assert is_complete(receiver) == (not missing)
    assert [body.whole for body in receiver.bodies()] == list(BODIES)
    assert [body.title for body in receiver.bodies()] == ["title 0", "title 1", "title 2"]


def test_no_documents() -> None:
    receiver = DocumentReceiver(4, FULL)
    assert not is_complete(receiver)
    receiver.add(Fetched(1, 0, 0, 0, 0, 0.0, "", b""))
    assert is_complete(receiver)
    assert receiver.bodies() == []


@pytest.mark.parametrize(
    "hostile",
    [
        [part(0, 0, 1, b"x", count=5)],  # more documents than asked for
        [part(3, 0, 1, b"x")],
        [part(0, 0, 0, b"x")],
        [part(0, 1, 1, b"x")],
        [part(0, 0, 4, b"a" * FULL)],  # more than a document may have
        [part(0, 0, 65535, b"a" * FULL)],
        [part(0, 0, 2, b"small")],  # many small parts would cost more than their bytes
        [part(0, 0, 2, b"")],
        [part(0, 0, 1, b"")],
        [part(0, 0, 1, b"a" * (FULL + 1))],
        [part(0, 0, 2, b"a" * FULL), part(0, 1, 3, b"a" * FULL)],
        [part(0, 0, 2, b"a" * FULL), part(1, 0, 1, b"x", count=2)],
        [part(0, 0, 2, b"a" * FULL), part(0, 0, 0, b"", count=0)],
    ],
)
def test_hostile_parts(hostile: list[Fetched]) -> None:
    receiver = DocumentReceiver(4, 3 * FULL)
    with pytest.raises(ProtocolError):
        for message in hostile:
            receiver.add(message)


def test_all_documents_together_are_bounded() -> None:
    receiver = DocumentReceiver(255, LARGEST_TOTAL)
    payload = bytes(FULL)
    allowed = LARGEST_TOTAL // FULL
    for number in range(allowed):
        receiver.add(part(number // 4000, number % 4000, 4096, payload, count=4))
    with pytest.raises(ProtocolError):
        receiver.add(part(3, 0, 4096, payload, count=4))


def test_progress_counts_the_most_of_what_was_asked_for_several_times() -> None:
    receiver, sizes = DocumentReceiver(4, 3 * FULL), list[int]()
    for message in messages():
        receiver.add(message)
        sizes.append(receiver.progress)
    assert sizes == sorted(sizes) and sizes[-1] > 0
    receiver.restart()
    assert not is_complete(receiver) and receiver.progress == sizes[-1]
    receiver.add(messages()[0])
    assert receiver.progress == sizes[-1]
    for message in messages()[1:]:
        receiver.add(message)
    assert is_complete(receiver) and receiver.progress == sizes[-1]
