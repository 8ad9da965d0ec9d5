"""Prediction of the time that a finished answer took per token, from its rounds and the formulas of their times."""

from __future__ import annotations

from common.draft_policy.times import (
    ahead_seconds,
    eager_seconds,
    round_seconds,
    undrafted_seconds,
)
from common.draft_policy.values import RoundTimes
from common.methods.drafted.machine.values import RoundsConfig, RoundsCounters


def predicted_seconds(
    config: RoundsConfig, counters: RoundsCounters, tokens: int, times: RoundTimes, token_bytes: float
) -> float:
    """Seconds per token behind the first, of an answer of `tokens`; `token_bytes` are of a proposed one.

    The first round is not part of it: what comes with the first token was there with it. Nor has the last one to be
    whole: it costs what a whole one does. 0 where nothing came behind the first token.
    """
    alone = undrafted_seconds(times)
    judged = counters.accepted + counters.rejected
    acceptance = counters.accepted / judged if judged else 0.0
    length = max(1, round(counters.proposed / counters.rounds)) if counters.rounds else 1
    behind = tokens - 1
    if behind < 1:
        return 0.0
    if config.eager:
        return eager_seconds(times, acceptance, length, token_bytes) if judged else alone
    drafted = tokens - counters.deferred
    left = max(0, counters.deferred - (not counters.rounds))
    if not config.ahead:
        seconds = max(0, counters.rounds - 1) * round_seconds(times, acceptance, length, token_bytes)
    else:
        at_once = min(drafted, round(acceptance * min(length, drafted)) or 1)  # that came with the first verdict
        seconds = (drafted - at_once) * ahead_seconds(times, acceptance, length, token_bytes)
    return (seconds + left * alone) / behind
