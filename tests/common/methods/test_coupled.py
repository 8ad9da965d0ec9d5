"""Coupled drafting through both daemons' parts, over real sockets: the verifier's tokens, whatever is drafted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from device.interface import Finished, TokenEvent
from tests.cloud.town import Resident, Town

QUESTION = "What is the best-selling horror game?"
LENGTH = 40
TARGET = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), **TARGET) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("drafting", **TARGET, draft_model=str(EMBEDDED_DRAFT))


def tokens_of(device: Resident, **fields: Any) -> tuple[list[int], Finished]:
    *events, last = device.begin(QUESTION, max_tokens=LENGTH, **fields)
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, TokenEvent)], last


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("ahead", [True, False])
def test_the_verifiers_own_tokens(device: Resident, temperature: float, ahead: bool) -> None:
    alone, _ = tokens_of(device, sources="cloud", temperature=temperature)
    for length in (1, 5):
        tokens, last = tokens_of(device, method="coupled", ahead=ahead, temperature=temperature, draft_length=length)
        assert tokens == alone
        assert last.report.degraded == ()
        assert last.report.notes == ()
