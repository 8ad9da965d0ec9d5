"""Predicted times of answers beside those of a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from common.draft_policy.times import RoundTimes
from common.methods.drafted.device import predicted_seconds
from common.methods.drafted.drafting import RoundsConfig, RoundsCounters
from tests.common.methods.drafted.pump import Length
from tests.common.methods.drafted.schemes import scheme_of
from tests.common.methods.drafted.slow_link import DRAFT, VERIFY, SlowLink, SlowPair
from tests.common.methods.drafted.test_faults import DRAFTER, VERIFIER, VOCABULARY

WAY = 0.05  # seconds
TIMES = RoundTimes(draft=DRAFT, verify=VERIFY, rtt=2 * WAY)


def measured_and_predicted(tokens: int, seed: int, lengths: Any, **fields: Any) -> tuple[float, float]:
    """Seconds per token behind the first."""
    scheme = scheme_of("dssd", VOCABULARY, tokens, seed=seed, **fields)
    pair = SlowPair(scheme, DRAFTER, VERIFIER, lengths, link=SlowLink(WAY, 1e12))
    pair.run(until=1)
    first = pair.now
    pair.run()
    seconds = (pair.now - first) / (tokens - 1)
    return seconds, predicted_seconds(scheme.config, pair.device.counters, tokens, TIMES, 0.0)


@pytest.mark.parametrize("tokens", [4, 8, 16, 64])
def test_rounds_of_answers_of_all_lengths(tokens: int) -> None:
    """The first and the last round are told from others: short answers took 1.1 to 1.4 times what formulas said."""
    found = [measured_and_predicted(tokens, seed, Length(4)) for seed in range(30)]
    measured, predicted = (sum(each) for each in zip(*found, strict=True))
    assert predicted == pytest.approx(measured, rel=0.05)


def test_an_answer_that_was_left_to_the_verifier() -> None:
    config = RoundsConfig(1, frozenset(), 32, VOCABULARY, defers=True)
    counters = RoundsCounters(bonus=32, deferred=32)
    assert predicted_seconds(config, counters, 32, TIMES, 2.0) == pytest.approx(VERIFY)


def test_a_part_of_it() -> None:
    """64 tokens are left, then two are proposed at a time."""
    config = RoundsConfig(1, frozenset(), 128, VOCABULARY, defers=True)
    counters = RoundsCounters(rounds=32, proposed=64, accepted=32, rejected=16, bonus=80, deferred=64)
    seconds = 31 * (2 * DRAFT + VERIFY + 2 * WAY) + 64 * VERIFY
    assert predicted_seconds(config, counters, 128, TIMES, 0.0) == pytest.approx(seconds / 127)


def test_an_eager_verifier_is_never_slower_than_alone() -> None:
    config = RoundsConfig(1, frozenset(), 32, VOCABULARY, bonus=False, ahead=64, eager=True)
    for accepted in (0, 10, 20, 30):
        counters = RoundsCounters(rounds=8, proposed=32, accepted=accepted, rejected=8)
        assert predicted_seconds(config, counters, 32, TIMES, 2.0) <= VERIFY
    assert predicted_seconds(config, RoundsCounters(), 32, TIMES, 2.0) == VERIFY


def test_without_any_round() -> None:
    """The verifier was away for the whole answer."""
    config = RoundsConfig(1, frozenset(), 32, VOCABULARY)
    assert predicted_seconds(config, RoundsCounters(), 32, TIMES, 2.0) == 0.0


def test_nothing_behind_the_first_token() -> None:
    config = RoundsConfig(1, frozenset(), 1, VOCABULARY)
    assert predicted_seconds(config, RoundsCounters(rounds=1, proposed=1, accepted=1), 1, TIMES, 2.0) == 0.0
