"""Draft-and-verify methods through both daemons' parts, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from common.configuration.configuration import ConfigurationError
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, DraftModel
from common.daemon.side import load_drafter
from common.process.lifetime import Startup
from common.tracing.analysis import CAUSES, steps
from device.interface import Finished, TokenEvent
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.cloud.town import Resident, Town
from tests.common.methods.drafted.schemes import SHARING
from tests.daemons.wordy_model import make_wordy_model

QUESTION = "What is the best-selling horror game?"
LENGTH = 24
WAY = 0.02  # seconds
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


@pytest.fixture(scope="module")
def distant(town: Town) -> Iterator[Resident]:
    """A device on a way longer than what the two clocks can differ by, so that every message has a time of its own."""
    way = Line(delay=WAY)
    with FaultyProxy(int(town.link.address.rpartition(":")[2]), up=way, down=way) as proxy:
        yield town.device("distant", proxy.address, **TARGET, draft_model=str(EMBEDDED_DRAFT))


@pytest.fixture(scope="module")
def alone(device: Resident) -> Callable[[float], list[int]]:
    """The verifier's own answer at a temperature, asked for once."""
    return cache(lambda temperature: tokens_of(device, sources="cloud", temperature=temperature)[0])


@pytest.mark.parametrize("method", SHARING)
@pytest.mark.parametrize("length", [1, 5])
def test_greedy_answers_are_the_verifiers(
    device: Resident, alone: Callable[[float], list[int]], method: str, length: int
) -> None:
    tokens, last = tokens_of(device, method=method, draft_length=length)
    assert tokens == alone(0.0)
    assert last.report.degraded == ()
    assert last.report.notes == ()


@pytest.mark.parametrize("temperature", [0.7, 1.5])
@pytest.mark.parametrize("ahead", [True, False])
def test_coupled_answers_are_the_verifiers(
    device: Resident, alone: Callable[[float], list[int]], temperature: float, ahead: bool
) -> None:
    for length in (1, 5):
        tokens, _ = tokens_of(device, method="coupled", ahead=ahead, temperature=temperature, draft_length=length)
        assert tokens == alone(temperature)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 4])
def test_who_draws_in_place_of_a_rejected_token_changes_nothing(device: Resident, seed: int, length: int) -> None:
    fields = {"temperature": 1.4, "top_k": 20, "seed": seed, "draft_length": length}
    tokens, last = tokens_of(device, method="dsd", **fields)
    split, split_last = tokens_of(device, method="dssd", **fields)
    assert tokens == split
    assert last.report.device.rollbacks == split_last.report.device.rollbacks
    assert last.report.attribution == split_last.report.attribution
    assert last.report.unattributed == split_last.report.unattributed == 0


@pytest.mark.parametrize("seed", range(2))
def test_the_shares_of_a_last_token_are_told_whoever_draws_it(device: Resident, seed: int) -> None:
    """Answers end at any token: by their length, or by a stop string."""
    fields = {"method": "dssd", "temperature": 1.4, "top_k": 20, "seed": seed, "draft_length": 4}
    tokens, whole = tokens_of(device, **fields)
    assert len(whole.report.attribution) == len(tokens)
    for length in range(1, 9):
        *_, cut = device.begin(QUESTION, max_tokens=length, **fields)
        *_, stopped = device.begin(QUESTION, max_tokens=LENGTH, stop=(whole.text[length : length + 3],), **fields)
        assert isinstance(cut, Finished) and isinstance(stopped, Finished)
        assert cut.report.unattributed == stopped.report.unattributed == 0
        assert min(map(sum, cut.report.attribution)) > 0


def spent_on(device: Resident, **fields: Any) -> dict[str, int]:
    """Nanoseconds of an answer by cause."""
    _, last = tokens_of(device, trace=True, **fields)
    assert last.report.trace is not None
    found = steps(last.report.trace)
    assert len(found) == last.report.tokens
    spent: dict[str, int] = {cause: sum(step.spent(cause) for step in found) for cause in CAUSES}
    assert spent["engine"] < 0.6 * sum(spent.values())
    return spent


def test_a_trace_says_what_the_time_went_into(device: Resident, distant: Resident) -> None:
    """Of `coupled` no draft is waited for, as a rule, nor what a distant cloud decodes while others are under way."""
    assert spent_on(device, method="coupled")["cloud decode"] > 0
    spent = spent_on(distant, method="dssd", temperature=1.2)
    assert min(spent[cause] for cause in ("device decode", "draft under way", "cloud decode", "target under way")) > 0


def test_a_draft_model_of_another_tokenizer_is_refused(town: Town, tmp_path: Path) -> None:
    wordy = make_wordy_model(tmp_path / "wordy")
    target = town.cloud.target
    settings = town.cloud.settings.model_copy(update={"tokenizer": None})
    with pytest.raises(ConfigurationError, match="have different tokenizers"):
        load_drafter(DraftModel(wordy), settings, target, None, Startup())
