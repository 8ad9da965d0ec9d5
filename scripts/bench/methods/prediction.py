"""Predictions by the formulas of rounds: from the true link, both models alone, an answer's acceptance and lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from common.draft_policy.times import RoundTimes, ahead_seconds, expected_tokens, round_seconds
from scripts.bench.methods.plan import DRAFT, TARGET, Plan
from scripts.bench.rows import Row, values, where

ENCRYPTED: Final = 33  # bytes more of a message that CurveZMQ carries: command's name, nonce, authenticator, flags


def foreseen(rows: Sequence[Row], plan: Plan) -> list[Row]:
    """The rows with their pace, the predicted milliseconds per token, and the measured ones over these."""
    draft, verify = steps(rows, plan)
    found = []
    for row in rows:
        expected = predicted(row, draft, verify)
        off = row["per_token"] / expected if expected > 0 else None  # None: all came with the first verdict
        found.append(row | {"per_second": per_second(row), "predicted": expected, "off": off, "chunk": chunk(row)})
    return found


def steps(rows: Sequence[Row], plan: Plan) -> tuple[float, float]:
    """Milliseconds per token of the draft model and of the target alone, as measured; their floors where they were not.

    They include what there is to do beside the models.
    """
    drafts, passes = (values(where(rows, mode=mode.name), "per_token") for mode in (DRAFT, TARGET))
    return median(drafts or [plan.draft_ms]), median(passes or [plan.verify_ms])


def predicted(row: Row, draft: float, verify: float) -> float:
    """Milliseconds per token between the first and the last.

    The tokens of the first verdict arrive with the first token, so that what follows it has fewer to wait for.
    """
    if row["mode"] == DRAFT.name:
        return draft
    if row["mode"] == TARGET.name or not row["rounds"]:
        return verify
    alpha, length, rate = row["held"] or 0.0, chunk(row), 125 * row["rate"]
    times = RoundTimes(draft=draft / 1e3, verify=verify / 1e3, rtt=2 * row["delay"] / 1e3, up_rate=rate)
    token_bytes = (row["sent"] / max(1, row["proposals"]) + ENCRYPTED) / length
    short, long = math.floor(length), math.ceil(length)
    part = length - short  # of the rounds that are `long`, as if there were no other lengths
    rounds = ((short, 1.0 - part), (long, part))
    if row["ahead"]:
        seconds = sum(share * ahead_seconds(times, alpha, each, token_bytes) for each, share in rounds)
        first = sum(share * (expected_tokens(alpha, each) - alpha**each) for each, share in rounds)
    else:
        first = sum(share * expected_tokens(alpha, each) for each, share in rounds)
        seconds = sum(share * round_seconds(times, alpha, each, token_bytes) for each, share in rounds) / first
    left = _left_to_target(row)
    behind = max(0.0, row["tokens"] - left - first)
    return float((1e3 * seconds * behind + verify * left) / (row["tokens"] - 1))


def per_second(row: Row) -> float:
    """Tokens per second, of those behind the first verdict. Its own arrive with the first token, as many as a verdict
    brings on the average.
    """
    first = (row["tokens"] - _left_to_target(row)) / row["rounds"] if row["rounds"] else 1.0
    return float(1e3 * (row["tokens"] - first) / (row["whole"] - row["ttft"]))


def _left_to_target(row: Row) -> int:
    """Tokens of no round. Without drafting ahead a round has one behind those that were accepted, which counts as
    undrafted, too, where all were.
    """
    return int(row["undrafted"] if row["ahead"] else max(0, row["tokens"] - row["accepted"] - row["rounds"]))


def chunk(row: Row) -> float:
    """Mean tokens of a proposal."""
    return float(max(1.0, row["drafted"] / max(1, row["proposals"]) if row["ahead"] else row["proposed"]))
