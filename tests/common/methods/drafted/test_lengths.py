"""Rounds of an answer as a policy is told of them."""

from __future__ import annotations

from common.draft_policy.acceptance import PositionAcceptance
from common.draft_policy.goodput import Goodput
from common.methods.drafted.history import RoundHistory
from common.methods.drafted.lengths import PolicyLengths
from proto.rounds import Propose, Verdict
from tests.common.draft_policy.rounds_of import outcome


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
