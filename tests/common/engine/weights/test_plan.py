"""As many leading layers stay as the budget holds, beside all else that counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.engine.model.errors import ModelError
from common.engine.streaming import CHUNK_BYTES, Residence, Streaming, aligned, residence

MIB = 2**20


def needed(ends: int, layers: list[int], reserved: int, resident: int) -> int:
    """The rule once more, as the documentation has it: what stays, what is not the model, two buffers and a chunk."""
    buffers = [layers[place] for place in range(resident, len(layers))]
    return (
        ends
        + reserved
        + sum(layers[place] for place in range(resident))
        + (2 * max(buffers) + CHUNK_BYTES if buffers else 0)
    )


def test_a_model_of_thirteen_layers() -> None:
    layers = [10 * MIB] * 13
    assert residence(5 * MIB, layers, 135 * MIB, 0) == Residence(13, 0)
    assert residence(5 * MIB, layers, 135 * MIB - 1, 0) == Residence(10, 10 * MIB)
    assert residence(5 * MIB, layers, 66 * MIB, 0) == Residence(4, 10 * MIB)
    assert residence(5 * MIB, layers, 66 * MIB, 7 * MIB) == Residence(3, 10 * MIB)
    assert residence(5 * MIB, layers, 26 * MIB, 0) == Residence(0, 10 * MIB)
    with pytest.raises(ModelError, match=f"budget of {26 * MIB - 1} bytes is too small, the smallest is {26 * MIB}:"):
        residence(5 * MIB, layers, 26 * MIB - 1, 0)


def test_a_large_layer_that_stays_needs_no_large_buffers() -> None:
    layers = [50 * MIB, *[10 * MIB] * 5]
    assert residence(0, layers, 80 * MIB + CHUNK_BYTES, 0) == Residence(2, 10 * MIB)


@given(
    ends=st.integers(0, 5 * MIB),
    layers=st.lists(st.integers(1, 5 * MIB), min_size=1, max_size=12),
    reserved=st.integers(0, 5 * MIB),
    budget=st.integers(1, 80 * MIB),
)
def test_no_more_would_fit_and_the_smallest_budget_does(
    ends: int, layers: list[int], reserved: int, budget: int
) -> None:
    needs = [needed(ends, layers, reserved, resident) for resident in range(len(layers) + 1)]
    if budget < min(needs):
        with pytest.raises(ModelError, match=f"the smallest is {min(needs)}:"):
            residence(ends, layers, budget, reserved)
        budget = min(needs)
    plan = residence(ends, layers, budget, reserved)
    assert plan.layers == max(resident for resident, need in enumerate(needs) if need <= budget)
    assert plan.buffer_bytes == max(layers[plan.layers :], default=0)
    assert len(layers) - plan.layers not in (1, 2)  # two buffers would hold them all the time


def test_sizes() -> None:
    assert [aligned(size) for size in (0, 1, 64, 65)] == [0, 64, 64, 128]
    assert Streaming(100, 7).beside(5) == Streaming(100, 12)
    with pytest.raises(ValueError, match="bytes_per_second must be positive"):
        Streaming(100, bytes_per_second=0)
