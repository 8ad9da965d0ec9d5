"""The latency analysis of quantize-sample-verify (Zhang et al. 2025), equation by equation.

Bits, bits per second, seconds. Its T_SLM is `draft`, T_LLM is `verify`, L^t a round's length, b^t its `index_bits`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.draft_policy.times import bits_to_tell, expected_tokens


def uplink_seconds(length: int, index_bits: int, vocabulary: int, rate: float) -> float:
    """T_u, Eq. 7: each token costs ceil(log2 V) bits for itself and `index_bits` for its distribution."""
    return length * (bits_to_tell(vocabulary) + index_bits) / rate


def downlink_seconds(length: int, vocabulary: int, rate: float) -> float:
    """T_d, Eq. 8, with one value more than the paper's: 0 to L tokens are accepted."""
    return (bits_to_tell(length + 1) + bits_to_tell(vocabulary)) / rate


def iteration_seconds(
    length: int,
    index_bits: int,
    vocabulary: int,
    draft: float,
    verify: float,
    up_rate: float,
    down_rate: float = math.inf,
) -> float:
    """T^t, Eq. 9."""
    up = uplink_seconds(length, index_bits, vocabulary, up_rate)
    return length * draft + up + verify + downlink_seconds(length, vocabulary, down_rate)


def decoding_seconds(iterations: Sequence[float]) -> float:
    """T, Eq. 10: of an answer, from its iterations' seconds; they end by Eq. 11, at the limit or a token that ends."""
    return math.fsum(iterations)


def throughput(acceptance: float, length: int, seconds: float) -> float:
    """Tokens per second of equal iterations in the long run, Eq. 12."""
    return expected_tokens(acceptance, length) / seconds


def summed_reward(acceptance: float, length: int, seconds: float, tokens: int) -> float:
    """Eq. 13 summed over an answer of so many tokens: what undiscounted learning would maximise.

    Each iteration earns E / T, and there are tokens / E of them: their sum is tokens / T, which the shortest iteration
    makes largest, whatever it decides.
    """
    expected = expected_tokens(acceptance, length)
    return tokens / expected * (expected / seconds)
