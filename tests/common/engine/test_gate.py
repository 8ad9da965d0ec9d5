"""One of several threads computes at a time; who waits lends its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from common.engine.gate import Gate
from common.engine.loop import Worker
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from tests.common.engine.greedy_client import GreedyClient, RaceDrafter, job
from tests.common.engine.test_worker import LENGTH, QUERY, alone, documents, load

WAIT = 20.0


@contextmanager
def thread(run: Callable[[], None]) -> Iterator[None]:
    started = threading.Thread(target=run)
    started.start()
    yield
    started.join(WAIT)
    assert not started.is_alive()


def test_one_at_a_time_in_turn() -> None:
    gate, inside, order = Gate(), [0], list[str]()
    busy = threading.Event()

    def work(name: str) -> None:
        for _ in range(50):
            with gate.turn(name):
                inside[0] += 1
                assert inside == [1]
                order.append(name)
                inside[0] -= 1
            busy.set()

    with thread(lambda: work("one")), thread(lambda: work("two")):
        pass
    assert len(order) == 100


def test_a_guest_has_one_turn_and_the_lender_goes_on() -> None:
    gate, order = Gate(), list[str]()
    waiting = threading.Event()

    def guest() -> None:
        for turn in range(2):
            waiting.set()
            with gate.turn("guest"):
                order.append(f"guest {turn}")
        gate.rests("guest")

    with gate.turn("owner"):
        with thread(guest):
            assert waiting.wait(WAIT)
            while not gate.lend():
                pass
            order.append("owner")
            assert order == ["guest 0", "owner"]
            assert gate.lend()  # it comes back at once
            assert order == ["guest 0", "owner", "guest 1"]
        assert not gate.lend()
    assert order == ["guest 0", "owner", "guest 1"]


def test_others_wait_until_the_owner_is_done() -> None:
    gate, order = Gate(), list[str]()

    def other() -> None:
        with gate.turn("other"):
            order.append("other")

    with gate.turn("owner"):
        assert not gate.lend()
        order.append("owner")
    with thread(other):
        pass
    assert order == ["owner", "other"]


def test_a_guest_does_not_lend() -> None:
    gate, lent = Gate(), list[bool]()
    waiting = threading.Event()

    def guest() -> None:
        waiting.set()
        with gate.turn("guest"):
            lent.append(gate.lend())
        gate.rests("guest")

    with gate.turn("owner"), thread(guest):
        assert waiting.wait(WAIT)
        while not gate.lend():
            pass
    assert lent == [False]


def test_an_error_inside_lets_the_next_one_in() -> None:
    gate = Gate()
    with pytest.raises(RuntimeError), gate.turn("one"):
        raise RuntimeError
    with gate.turn("two"):
        pass


def test_passes_of_two_models_never_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders, gate, inside = [load(), load()], Gate(), set[int]()
    forward = Decoder.forward

    def watched(decoder: Decoder, feeds: Sequence[Feed], *others: Any) -> torch.Tensor:
        assert not inside
        inside.add(id(decoder))
        logits = forward(decoder, feeds, *others)
        inside.remove(id(decoder))
        return logits

    expected = [alone(decoders[0], seed) for seed in range(4)]
    monkeypatch.setattr(Decoder, "forward", watched)
    workers = [Worker(decoder, 0.003, gate=gate) for decoder in decoders]
    clients = [GreedyClient(LENGTH) for _ in expected]
    for seed, client in enumerate(clients):
        worker = workers[seed % 2]
        drafter = RaceDrafter(worker.decoder.vocabulary, seed)
        worker.submit(job(worker.decoder, client, documents(seed), QUERY, drafter=drafter))
    assert [client.wait() for client in clients] == expected
    for worker in workers:
        worker.close()
