"""Slab KV cache: preallocated keys and values with a length per row, so that a rollback is an assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from common.model.errors import ContextError

DocumentStates = tuple[tuple[Tensor, Tensor], ...]  # per layer: keys, values, [kv_heads, tokens, dim]


def states_bytes(states: DocumentStates) -> int:
    """Bytes that a document's keys and values take."""
    return sum(part.numel() * part.itemsize for layer in states for part in layer)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What a layer caches per token: keys `[kv_heads, key_dim]` and values `[kv_heads, value_dim]`."""

    kv_heads: int
    key_dim: int
    value_dim: int


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


class Slab:
    """Keys and values of one session's rows, `[rows, kv_heads, capacity, dim]` per layer.

    Row r holds `lengths[r]` tokens in columns 0 .. lengths[r]-1; what lies behind is never attended to and
    is overwritten by the next pass. Rows start at unequal lengths and then move together.
    """

    def __init__(self, layout: Layout, lengths: Sequence[int], capacity: int, maximum: int) -> None:
        """Room for `capacity` tokens per row, growing by doubling up to `maximum` tokens."""
        self.layout = layout
        self.maximum = maximum
        self.capacity = 0
        self.longest = max(lengths)
        self.uniform = min(lengths) == self.longest
        self.lengths = torch.tensor(lengths, dtype=torch.int64, device=layout.torch_device)
        self.rows = len(lengths)
        self.row_index = torch.arange(self.rows, device=layout.torch_device)[:, None]
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._allocate(max(capacity, self.longest))

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` tokens in the longest row. Raises `ContextError` beyond the maximum."""
        if tokens <= self.capacity:
            return
        if tokens > self.maximum:
            raise ContextError(
                f"the row would grow to {tokens} tokens, the model's context holds {self.maximum}",
                needed=tokens,
                limit=self.maximum,
            )
        self._allocate(min(self.maximum, max(tokens, 2 * self.capacity)))

    def fill(self, row: int, states: DocumentStates) -> None:
        """Copy a document's keys and values, `[kv_heads, tokens, dim]` per layer, to the start of a row."""
        for layer, (key, value) in enumerate(states):
            tokens = key.shape[1]
            self.keys[layer][row, :, :tokens].copy_(key)
            self.values[layer][row, :, :tokens].copy_(value)

    def write(self, layer: int, columns: Tensor, key: Tensor, value: Tensor) -> None:
        """Put new keys and values `[rows, kv_heads, q, dim]` at `columns` `[rows, q]`."""
        self.keys[layer][self.row_index, :, columns] = key.transpose(1, 2)
        self.values[layer][self.row_index, :, columns] = value.transpose(1, 2)

    def advance(self, tokens: int) -> None:
        """Every row becomes `tokens` longer; with a negative number, shorter (a rollback)."""
        self.lengths.add_(tokens)
        self.longest += tokens

    def _allocate(self, capacity: int) -> None:
        # Zeros, not empty memory: attention multiplies masked columns by 0, and 0 * NaN is NaN.
        old_keys, old_values = self.keys, self.values
        place: dict[str, Any] = {"dtype": self.layout.dtype, "device": self.layout.torch_device}
        self.keys, self.values = [], []
        for shape in self.layout.layers:
            self.keys.append(torch.zeros(self.rows, shape.kv_heads, capacity, shape.key_dim, **place))
            self.values.append(torch.zeros(self.rows, shape.kv_heads, capacity, shape.value_dim, **place))
        for old, new in zip(old_keys + old_values, self.keys + self.values, strict=bool(old_keys)):
            new[:, :, : self.longest].copy_(old[:, :, : self.longest])
        self.capacity = capacity


class SessionStates(tuple[Tensor, ...]):
    """Keys (or values) of several sessions for one layer, one slab view each; see `slab_attention`."""

    __slots__ = ()


class SlabPass(Cache):
    """One forward pass over the rows of one or more slabs, as the cache object that Transformers models call.

    `positions` is `[rows, q]`. `mask` is the additive attention mask `[rows, 1, q, longest]`, or None where
    the attention kernel needs none: all rows equally long, and one query token or an empty slab (causal).
    The slabs' lengths are left alone: they move when the whole pass has succeeded.
    """

    def __init__(self, slabs: Sequence[Slab], tokens: int) -> None:
        super().__init__(layers=[])
        self._slabs = slabs
        self._tokens = tokens
        steps = None
        if tokens > 1:
            steps = torch.arange(tokens, device=slabs[0].lengths.device)
        self._columns = [slab.lengths[:, None] if steps is None else slab.lengths[:, None] + steps for slab in slabs]
        self._ends = [slab.longest + tokens for slab in slabs]
        self.positions = self._columns[0] if len(slabs) == 1 else torch.cat(self._columns)
        self.mask = self._mask()

    def _mask(self) -> Tensor | None:
        first = self._slabs[0]
        if len(self._slabs) == 1 and first.uniform and (self._tokens == 1 or first.longest == 0):
            return None
        columns = torch.arange(max(self._ends), device=first.lengths.device)
        hidden = columns > self.positions[:, None, :, None]
        mask = torch.zeros(hidden.shape, dtype=first.layout.dtype, device=hidden.device)
        return mask.masked_fill_(hidden, float("-inf"))

    def update(  # type: ignore[override]  # several sessions give a tuple of views, read by `slab_attention`
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor] | tuple[SessionStates, SessionStates]:
        """Store `[rows, kv_heads, q, dim]`; gives all that the layer holds, `[rows, kv_heads, end, dim]`."""
        if len(self._slabs) == 1:
            slab, end = self._slabs[0], self._ends[0]
            slab.write(layer_idx, self._columns[0], key_states, value_states)
            return slab.keys[layer_idx][:, :, :end], slab.values[layer_idx][:, :, :end]
        counts = [slab.rows for slab in self._slabs]
        parts = zip(torch.split(key_states, counts), torch.split(value_states, counts), strict=True)
        for slab, columns, (key, value) in zip(self._slabs, self._columns, parts, strict=True):
            slab.write(layer_idx, columns, key, value)
        slabs = list(zip(self._slabs, self._ends, strict=True))
        return (
            SessionStates(slab.keys[layer_idx][:, :, :end] for slab, end in slabs),
            SessionStates(slab.values[layer_idx][:, :, :end] for slab, end in slabs),
        )

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        """Tokens in the longest row before this pass."""
        return max(self._ends) - self._tokens

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns that `update` gives back, and the first one's position."""
        return max(self._ends), 0
