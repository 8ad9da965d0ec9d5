"""Rounds of an answer as a policy is told of them."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from common.draft_policy.acceptance import PositionAcceptance
from common.draft_policy.goodput import Goodput
from common.methods.drafted.history import RoundHistory
from common.methods.drafted.lengths import PolicyLengths
from proto.rounds import Propose, Verdict
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
        lengths.proposed(Propose(1, number + 1, 2 * number, (), (), (7, 8), b""), [0.5, 0.5], 0.01)
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
