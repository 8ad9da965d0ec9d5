"""Bytes of proposed tokens: what was seen replaces what was believed, and corrects what was not seen."""

from __future__ import annotations

import pytest

from common.draft_policy.policy import Goodput
from common.draft_policy.times import RoundTimes, TokenSizes
from common.methods.drafted.lengths import RoundHistory
from tests.common.draft_policy.rounds_of import outcome

BELIEVED: dict[int | None, float] = {64: 16.0, 128: 18.0, 256: 20.0}


def test_what_was_seen_counts_at_once() -> None:
    sizes = TokenSizes(BELIEVED)
    assert [sizes.of(at) for at in sizes] == [16.0, 18.0, 20.0]
    sizes.observe(64, 48.0)
    assert sizes.of(64) == 48.0


def test_a_resolution_that_was_not_seen_is_off_as_the_nearest_one_that_was() -> None:
    sizes = TokenSizes(BELIEVED)
    sizes.observe(64, 48.0)
    assert sizes.of(256) == pytest.approx(60.0)
    sizes.observe(128, 72.0)
    assert sizes.of(256) == pytest.approx(80.0)
    assert sizes.of(64) == 48.0


def test_resolutions_that_are_not_there_are_ignored() -> None:
    sizes = TokenSizes({None: 2.0})
    sizes.observe(64, 48.0)
    assert sizes.of(None) == 2.0
    with pytest.raises(ValueError, match="resolution"):
        TokenSizes({})


def test_the_next_answer_knows_what_tokens_take() -> None:
    """Else each answer on a slow link would try the finest lattice again, whose index is longer than believed."""
    history = RoundHistory.expecting(0.005, 0.032, 0.05)
    believed: dict[int | None, float] = {64: 16.0, 256: 20.0}
    times = RoundTimes(draft=0.005, verify=0.032, rtt=0.05, up_rate=5_000.0)
    first, following = (
        Goodput(history.sizes_of(dict(believed)), acceptance=history.acceptance) for _ in ("first", "following")
    )
    for resolution, accepted, size in ((64, 2, 50), (256, 3, 200)) * 20:
        first.observe(outcome(4, accepted, resolution=resolution, size=size))
    assert first.plan([], times) == following.plan([], times)
    assert following.plan([], times).resolution == 64
    forgetful = Goodput(TokenSizes(believed), acceptance=history.acceptance)
    assert forgetful.plan([], times).resolution == 256
    assert history.sizes_of({64: 53.0}).of(64) == 53.0  # another index code
