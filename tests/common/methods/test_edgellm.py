"""Method `edgellm` through a device's parts: its tokens are those of the verifier alone, whatever drafts for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from device.interface import Finished, TokenEvent
from tests.cloud.town import Resident, Town

QUESTION = "What is my rabbit called?"
LENGTH = 40
TARGET: dict[str, Any] = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), **TARGET) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("edge", **TARGET, draft_model=str(EMBEDDED_DRAFT))


def tokens_of(device: Resident, **fields: Any) -> tuple[list[int], Finished]:
    *events, last = device.begin(QUESTION, **{"max_tokens": LENGTH, "sources": "device"} | fields)
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, TokenEvent)], last


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("growth", ["adaptive", "chain", "width", "none"])
def test_tokens_are_the_models_alone(device: Resident, temperature: float, growth: str) -> None:
    alone, _ = tokens_of(device, temperature=temperature)
    tokens, last = tokens_of(device, method="edgellm", growth=growth, temperature=temperature)
    assert tokens == alone
    assert last.report.notes == ()
    print(growth, temperature, last.report.figures, last.report.device, last.text)
