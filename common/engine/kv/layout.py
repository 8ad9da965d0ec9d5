"""Layout of a model's KV cache: shapes of keys and values, and the states of one document."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DocumentStates = tuple[tuple[Tensor, Tensor], ...]  # per layer: keys, values, [kv_heads, tokens, dim]


def states_bytes(states: DocumentStates) -> int:
    """Bytes that a document's keys and values take."""
    return sum(part.numel() * part.itemsize for layer in states for part in layer)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A layer's KV cache per token: keys `[kv_heads, key_dim]` and values `[kv_heads, value_dim]`. A token attends to
    the last `window` tokens, itself included, or to all.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, type and place of a model's KV cache."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    torch_device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes that one token of one row takes in all layers."""
        numbers = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in self.layers)
        return numbers * self.dtype.itemsize
