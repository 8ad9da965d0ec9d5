"""Predictions by the formulas of rounds: from the true link, both models alone, an answer's acceptance and lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from common.draft_policy.times import ahead_seconds, expected_tokens, round_seconds
from common.draft_policy.values import RoundTimes
from scripts.bench.asking import Mode
from scripts.bench.methods.measure import Answered, Drafted
from scripts.bench.methods.plan import DRAFT, TARGET, Plan, ahead

ENCRYPTED: Final = 33  # bytes more of a message that CurveZMQ carries: command's name, nonce, authenticator, flags


@dataclass(frozen=True, slots=True)
class Steps:
    """Milliseconds per token of each model alone: its floor, and what there is to do beside it."""

    draft: float
    verify: float

    @classmethod
    def of(cls, answers: Sequence[Answered], plan: Plan) -> Steps:
        """As they were measured, each by its own answers; the floor where there are none."""
        drafts, passes = ([one.per_token for one in answers if one.mode == mode.name] for mode in (DRAFT, TARGET))
        return cls(median(drafts or [plan.draft_ms]), median(passes or [plan.verify_ms]))


def predicted(answer: Answered, mode: Mode, steps: Steps) -> float:
    """Milliseconds per token between the first and the last.

    The tokens of the first verdict arrive with the first token, so that what follows it has fewer to wait for.
    """
    if mode == DRAFT:
        return steps.draft
    if mode == TARGET or not answer.rounds:
        return steps.verify
    alpha = answer.held or 0.0
    messages = max(1, answer.proposals)
    length = chunk(answer, mode)
    times = RoundTimes(
        draft=steps.draft / 1e3,
        verify=steps.verify / 1e3,
        rtt=2 * answer.network.delay / 1e3,
        up_rate=answer.network.bytes_per_second,
    )
    token_bytes = (answer.sent / messages + ENCRYPTED) / length
    short, long = math.floor(length), math.ceil(length)
    part = length - short  # of the rounds that are `long`, as if there were no other lengths
    rounds = ((short, 1.0 - part), (long, part))
    if ahead(mode):
        seconds = sum(share * ahead_seconds(times, alpha, each, token_bytes) for each, share in rounds)
        first = sum(share * (expected_tokens(alpha, each) - alpha**each) for each, share in rounds)
    else:
        first = sum(share * expected_tokens(alpha, each) for each, share in rounds)
        seconds = sum(share * round_seconds(times, alpha, each, token_bytes) for each, share in rounds) / first
    left = _left_to_target(answer, mode)
    behind = max(0.0, answer.tokens - left - first)
    return (1e3 * seconds * behind + steps.verify * left) / (answer.tokens - 1)


def per_second(answer: Drafted, mode: Mode) -> float:
    """Tokens per second, of those behind the first verdict. Its own arrive with the first token, as many as a verdict
    brings on the average.
    """
    first = (answer.tokens - _left_to_target(answer, mode)) / answer.rounds if answer.rounds else 1.0
    return 1e3 * (answer.tokens - first) / (answer.whole - answer.ttft)


def _left_to_target(answer: Drafted, mode: Mode) -> int:
    """Tokens of no round. Without drafting ahead a round has one behind those that were accepted, which counts as
    undrafted, too, where all were.
    """
    return answer.undrafted if ahead(mode) else max(0, answer.tokens - answer.accepted - answer.rounds)


def chunk(answer: Answered, mode: Mode) -> float:
    """Mean tokens of a proposal."""
    return max(1.0, answer.drafted / max(1, answer.proposals) if ahead(mode) else answer.proposed)
