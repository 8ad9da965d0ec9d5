"""Drafts that a device shows while it waits for a cloud that is far away: before the first token, none for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from device.interface import Finished, Provisional, TokenEvent
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.cloud.town import Resident, Town

QUESTION = "What is the best-selling horror game?"
FAR = Line(delay=0.1)  # seconds, one way: the device has drafted by then
SAMPLED: dict[str, Any] = {"temperature": 0.7, "max_tokens": 12}
# An eager verifier may have told the first token before anything is drafted.
WAITING: tuple[dict[str, Any], ...] = (
    {"sources": "both"},
    {"sources": "both", "placement": "mirrored"},
    {"sources": "both", "placement": "cloud"},
    {"method": "token-wise"},
    {"method": "coupled", "eager": False},
    {"method": "dssd"},
)


@pytest.fixture(scope="module")
def device(fresh_data: Callable[[], Path]) -> Iterator[Resident]:
    with (
        Town(fresh_data(), emulate_decode_ms=20.0) as town,
        FaultyProxy(int(town.link.address.rpartition(":")[2]), up=FAR, down=FAR) as proxy,
    ):
        yield town.device("laptop", proxy.address)


def told(device: Resident, **fields: Any) -> tuple[list[Provisional | TokenEvent], str]:
    """Drafts and tokens in the order in which they were shown, and the whole text."""
    *events, last = device.begin(QUESTION, **(SAMPLED | fields))
    assert isinstance(last, Finished)
    return [event for event in events if isinstance(event, Provisional | TokenEvent)], last.text


@pytest.mark.parametrize("fields", WAITING)
def test_drafts_come_first_and_change_nothing(device: Resident, fields: dict[str, Any]) -> None:
    plain, text = told(device, **fields)
    assert not any(isinstance(event, Provisional) for event in plain)
    events, shown = told(device, provisional=True, **fields)
    assert shown == text
    first = next(place for place, event in enumerate(events) if isinstance(event, TokenEvent))
    drafts = [event.text for event in events[:first] if isinstance(event, Provisional)]
    assert first == len(drafts) > 0
    assert all(later.startswith(earlier) for earlier, later in pairwise(drafts))


def test_nothing_is_drafted_where_the_cloud_answers_alone(device: Resident) -> None:
    events, text = told(device, provisional=True, sources="cloud")
    assert text and not any(isinstance(event, Provisional) for event in events)


@pytest.mark.parametrize("unmatched", ["refuse", "warn"])
def test_what_may_be_refused_or_begin_anew_is_not_shown(device: Resident, unmatched: str) -> None:
    """The sentence that comes before the answer, or in its place, would not be the first thing that its reader sees."""
    events, _ = told(device, provisional=True, unmatched=unmatched, sources="both")
    assert isinstance(events[0], TokenEvent)
