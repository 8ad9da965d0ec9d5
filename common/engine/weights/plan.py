"""Division of a model within a memory budget: what stays, what is read in every pass. Pure.

Every pass reads all layers in the same order, so of layers that take turns in memory none is there when its turn comes:
a cache of the last ones used keeps nothing. The leading layers stay instead, as many as fit, and the others are read in
every pass into two buffers, one of which is filled while the other is computed with (EdgeLLM §III-D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.engine.model.errors import ModelError

BUFFERS = 2
CHUNK_BYTES = 2**20  # of a file, read at once on the way to a buffer
ALIGNMENT = 64  # bytes; a cache line, and all that vector instructions ask for


@dataclass(frozen=True, slots=True)
class Streaming:
    """The holding of a model that is larger than its budget, all in bytes.

    `reserved_bytes` of the budget are for what else there is, such as a draft model. For experiments, layers are read
    at `bytes_per_second` at most, and without `read_ahead` only when they are needed.
    """

    budget_bytes: int
    reserved_bytes: int = 0
    bytes_per_second: float | None = None
    read_ahead: bool = True

    def __post_init__(self) -> None:
        if self.bytes_per_second is not None and not self.bytes_per_second > 0:
            raise ValueError(f"bytes_per_second must be positive, not {self.bytes_per_second}")

    def beside(self, others: int) -> Streaming:
        """The same, with `others` bytes more that are not for weights."""
        return replace(self, reserved_bytes=self.reserved_bytes + others)


@dataclass(frozen=True, slots=True)
class Residence:
    """Number of leading layers that stay in memory, and the bytes of each of the buffers for the others."""

    layers: int
    buffer_bytes: int


def aligned(size: int) -> int:
    """Bytes that a tensor of `size` bytes takes in a buffer."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def residence(ends: int, layers: Sequence[int], budget: int, reserved: int) -> Residence:
    """As many resident layers as fit. `ends` are the bytes of what is outside of the `layers`: embeddings, output
    layer, norms; `reserved` those of what is not the model. Raises `ModelError` with the smallest budget that works.
    """
    needs = [ends + reserved + _layer_bytes(layers, resident) for resident in range(len(layers) + 1)]
    for resident in range(len(layers), -1, -1):
        if needs[resident] <= budget:
            return Residence(resident, max(layers[resident:], default=0))
    raise ModelError(
        f"a memory budget of {budget} bytes is too small, the smallest is {min(needs)}: {ends} for embeddings, output"
        f" layer and norms, {reserved} for what is not the model, and the rest for {BUFFERS} buffers of a layer each"
    )


def _layer_bytes(layers: Sequence[int], resident: int) -> int:
    """Bytes for layers if the first `resident` of them stay."""
    streamed = layers[resident:]
    return sum(layers[:resident]) + (BUFFERS * max(streamed) + CHUNK_BYTES if streamed else 0)
