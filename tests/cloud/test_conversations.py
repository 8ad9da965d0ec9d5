"""Conversations: what was read at earlier turns is not read again, and changes no token."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.daemon.side import SideRuntime
from common.engine.model.prompt import Conversation, Turn
from common.methods.catalog import METHODS
from device.interface import Finished
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.town import AT_ONCE, Resident, Town, finished
from tests.daemons.streaming import wait_until
from tests.support.generations import Iterated

SAID = (
    ("Where is my dance class?", "It is in the hall by the river, every second week."),
    ("Who teaches it?", "Nobody has written that down."),
    ("What could help me with my health problem?", "A walk, and a doctor who has time."),
    ("When does it begin?", "In the evening."),
    ("And where is that again?", ""),
)
WAYS: tuple[dict[str, Any], ...] = (
    *({"placement": each} for each in ("device", "cloud", "greedy", "mirrored")),
    {"method": "token-wise"},
    {"aggregation": "blocks"},
    {"aggregation": "context"},
)
ALONE: tuple[dict[str, Any], ...] = ({"sources": "cloud"}, {"method": "coupled"})
LAW: dict[str, Any] = {"temperature": 0.8, "seed": 7, "max_tokens": 12, "wait": True}


def conversation(turns: int, instructions: tuple[str, ...] = ()) -> Conversation:
    told = [turn for asked, answer in SAID[:turns] for turn in (Turn("user", asked), Turn("assistant", answer))]
    return Conversation(tuple(told[:-1]), instructions)


def ask(device: Resident, turns: int, instructions: tuple[str, ...] = (), **fields: Any) -> Finished:
    """The answer to a conversation's last question."""
    query = device.engine.put(conversation(turns, instructions))
    chosen: dict[str, Any] = {"privacy": "balanced", "unmatched": "answer"} | LAW | fields
    texts: dict[str, Any] = {"question": SAID[turns - 1][0], "prompt": query.text, "documents_at": query.documents_at}
    kind = METHODS[chosen.get("method", "speculative")].request
    return finished(Iterated(device.engine, kind(**texts, **chosen)))


def forget(*sides: SideRuntime) -> None:
    """Frees all that the sides keep of conversations."""
    for side in sides:
        for tenant in {entry.tenant for entry in side.decoder.document_cache._entries.values()}:
            side.forget_conversations(tenant)
        wait_until(partial(nothing_kept, side), "they are forgotten", AT_ONCE)


def nothing_kept(side: SideRuntime) -> bool:
    return side.decoder.document_cache.counters.conversations == 0


def work(side: SideRuntime) -> int:
    return side.decoding.done.tokens


@pytest.fixture(scope="module")
def device(town: Town, proxy: FaultyProxy) -> Resident:
    return town.device("talkative", address=proxy.address)


@pytest.mark.parametrize("ways", [WAYS, ALONE], ids=["both sides", "the cloud alone"])
def test_every_way_gives_the_same_tokens(town: Town, device: Resident, proxy: FaultyProxy, ways: Any) -> None:
    """By turns and at once, warm, cold, and after a cut, for all five turns."""
    sides = device.side, town.cloud
    for way in ways:
        forget(*sides)
        warm = [ask(device, turns, **way).text for turns in range(1, len(SAID) + 1)]
        if way is ways[0] or way.get("aggregation", "output") != "output":
            expected = warm  # another aggregation has another law
        assert warm == expected
        assert ask(device, len(SAID), **way).text == warm[-1]
        forget(*sides)
        assert ask(device, len(SAID), **way).text == warm[-1]
        proxy.cut()
        assert ask(device, len(SAID), **way).text == warm[-1]


def test_a_later_turn_costs_both_sides_little(town: Town, device: Resident) -> None:
    forget(device.side, town.cloud)
    told = ("Be kind. " * 60,)
    costs = []
    for turns in (2, 2, 3):
        before = work(device.side), work(town.cloud)
        ask(device, turns, told, max_tokens=1)
        costs.append((work(device.side) - before[0], work(town.cloud) - before[1]))
    for first, again, later in zip(*costs, strict=True):
        assert again < first - 100
        assert later < first - 60


def test_a_cloud_forgets_a_device_that_leaves(town: Town) -> None:
    forget(town.cloud)
    device, kept = town.device("leaving"), town.cloud.decoder.document_cache
    ask(device, 3)
    assert kept.counters.conversations == 1
    status = device.engine.status()
    assert (status.conversations, status.conversation_bytes) == (1, kept.counters.conversation_bytes)
    device.vanish()
    wait_until(partial(nothing_kept, town.cloud), "the conversation is forgotten", AT_ONCE)
    assert kept.counters.conversation_bytes == 0


def test_nothing_of_a_conversation_is_on_disk(town: Town, device: Resident) -> None:
    for side in (device.side, town.cloud):
        side.decoder.document_cache.flush()
    before = [side.decoder.document_cache.counters.disk.written for side in (device.side, town.cloud)]
    ask(device, 4, documents=0)
    for side, written in zip((device.side, town.cloud), before, strict=True):
        side.decoder.document_cache.flush()
        assert side.decoder.document_cache.counters.disk.written == written


@settings(max_examples=8, deadline=None)
@given(order=st.lists(st.integers(2, len(SAID)), min_size=1, max_size=4), told=st.sampled_from([(), ("Be kind.",)]))
def test_any_order_of_turns_gives_the_same_tokens(device_alone: Resident, order: list[int], told: Any) -> None:
    alone = partial(ask, device_alone, instructions=told, sources="device", max_tokens=5)
    forget(device_alone.side)
    texts = [alone(turns).text for turns in order]
    for turns, text in zip(order, texts, strict=True):
        forget(device_alone.side)
        assert alone(turns).text == text


@pytest.fixture(scope="module")
def device_alone(town: Town) -> Resident:
    return town.device("alone")
