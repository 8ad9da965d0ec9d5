"""Rounds of an answer as a policy is told of them."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import pytest

from common.draft_policy.policy import Goodput, PositionAcceptance
from common.methods.drafted.lengths import PolicyLengths, RoundHistory
from proto.messages import Propose, Verdict
from tests.common.draft_policy.rounds_of import outcome
from tests.common.methods.drafted.schemes import scheme_and_request
from tests.common.methods.drafted.slow_link import SlowLink, answer

DRAFTER = np.array([0.4, 0.3, 0.2, 0.1])
VERIFIER = np.array([0.3, 0.3, 0.2, 0.2])


def test_what_follows_a_rejected_token_was_not_judged() -> None:
    """Of three proposals that were sent ahead and judged together, the second has the token that was rejected."""
    history = RoundHistory.expecting(0.005, 0.032, 0.1)
    policy = Goodput(history.sizes_of({None: 2.0}), ahead=True, acceptance=history.acceptance)
    lengths = PolicyLengths(policy, history, lambda: 0.1, lambda: 0.0)
    lengths.plan([])
    for number in range(3):
        lengths.proposed(Propose(1, number + 1, 2 * number, (), (), (7, 8), b""), [0.5, 0.5], [0.005, 0.005])
    lengths.judged(Verdict(1, 3, 0, 3, (9,), 0, b""), [2, 1, 0], 3, True)
    told = PositionAcceptance()
    told.observe(outcome(2, 2))
    told.observe(outcome(2, 1))
    assert history.acceptance.overall == told.overall


def proposals_and_seconds(policy: str) -> tuple[list[int], float]:
    """Lengths of all proposals of forty answers whose distributions, and so confidences, are everywhere alike."""
    link = SlowLink(0.02, 1e6, 0.1)
    history, lengths = link.history(), list[int]()
    for seed in range(40):
        scheme, request = scheme_and_request("dssd", 4, 60, draft_policy=policy, seed=seed, top_k=0)
        lengths += answer(scheme, request, lambda path: DRAFTER, lambda path: VERIFIER, link, history)[1]
    return [length for length in lengths if length], link.now


def test_ended_by_confidences_that_tell_nothing_proposals_are_as_long_as_otherwise() -> None:
    """From the first to the last; and no step is made whose position is not proposed."""
    (usual, usual_seconds), (found, seconds) = (proposals_and_seconds(policy) for policy in ("goodput", "confidence"))
    assert fmean(usual) > 4
    assert fmean(found) == pytest.approx(fmean(usual), rel=0.15)
    assert seconds == pytest.approx(usual_seconds, rel=0.05)


# On this link the sides take turns, so that drafting ahead takes longer than it does.
SYNCHRONOUS: list[tuple[str, dict[str, Any]]] = [("dssd", {}), ("qsv", {}), ("coupled", {"ahead": False})]


@pytest.mark.parametrize(("method", "fields"), SYNCHRONOUS, ids=["dssd", "qsv", "coupled"])
@pytest.mark.parametrize("poor", [{"one_way": 0.3}, {"draft": 0.1}, {}], ids=["link", "device", "agreement"])
def test_drafting_comes_back_when_what_was_poor_is_good_again(
    method: str, fields: dict[str, Any], poor: dict[str, float]
) -> None:
    """A device that comes home, whose user's video call ends, or who asks about something else, within a minute."""
    link = SlowLink(0.005, 5000.0)
    history, good = link.history(), {name: getattr(link, name) for name in poor}
    verifier = VERIFIER

    def share(seed: int) -> float:
        """Share of an answer's tokens that were left to the verifier."""
        scheme, request = scheme_and_request(method, 4, 100, draft_policy="goodput", seed=seed, **fields)
        proposals = answer(scheme, request, lambda path: DRAFTER, lambda path: verifier, link, history)[1]
        return proposals.count(0) / 100

    assert max(share(seed) for seed in range(3)) < 0.1
    for name, seconds in poor.items():
        setattr(link, name, seconds)
    if not poor:
        verifier = np.array([0.0, 0.05, 0.05, 0.9])
    assert min([share(seed) for seed in range(3, 13)][-3:]) > 0.5
    for name, seconds in good.items():
        setattr(link, name, seconds)
    verifier, begun = VERIFIER, link.now
    while share(int(1e6 * link.now)) > 0.1:
        assert link.now < begun + 60.0


def test_a_first_step_that_takes_long_does_not_tell_what_steps_take() -> None:
    """The first one of a process, or one that reads what was decided while nothing was drafted."""
    history = RoundHistory.expecting(0.005, 0.032, 0.1)
    policy = Goodput(history.sizes_of({None: 2.0}), acceptance=history.acceptance)
    lengths = PolicyLengths(policy, history, lambda: 0.1, lambda: 0.0)
    lengths.plan([])
    lengths.proposed(Propose(1, 1, 0, (), (), (7, 8, 9), b""), [0.5] * 3, [0.4, 0.006, 0.006])
    lengths.judged(Verdict(1, 1, 0, 3, (9,), 0, b""), [3], 1, True)
    assert history.estimates.times().draft == pytest.approx(0.006)
