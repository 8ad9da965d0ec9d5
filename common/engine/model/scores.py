"""Attention of rows over their keys, with what classes of models do to its scores.

Queries of heads that share a key are folded into the query axis, so that no key is repeated for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class View:
    """The keys that are read, from column `first` on, and which of them each token sees."""

    first: int
    mask: Tensor | None = None  # additive, [rows, 1, query, columns]
    causal: bool = False  # queries and columns are the same tokens: the kernel masks by itself


@dataclass(frozen=True, slots=True)
class Scores:
    """The rule by which a layer makes weights of the products of queries and keys."""

    scaling: float | None = None  # None: one over the square root of the key's dimension
    softcap: float | None = None  # scores are bent into (-softcap, softcap) (Gemma 2)
    sinks: Tensor | None = None  # [heads]: the score of a key without a value (gpt-oss)

    @property
    def written_out(self) -> bool:
        """Whether PyTorch's kernel can't do it."""
        return self.softcap is not None or self.sinks is not None


def attend(query: Tensor, keys: Tensor, values: Tensor, view: View, scores: Scores) -> Tensor:
    """Attention of `query` `[rows, heads, query, dim]` over `[rows, kv_heads, columns, dim]`; `[rows, heads, query,
    value_dim]`.
    """
    rows, heads, count, dim = query.shape
    shared = keys.shape[1]
    folds = heads // shared
    if view.causal:
        return scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=scores.scaling, enable_gqa=heads != shared
        )
    folded = query.reshape(rows, shared, folds * count, dim)
    mask = view.mask
    if mask is not None and folds > 1 and count > 1:
        mask = mask.repeat(1, 1, folds, 1)
    if scores.written_out:
        output = _written_out(folded, keys, values, mask, scores, count)
    else:
        output = scaled_dot_product_attention(folded, keys, values, mask, scale=scores.scaling)
    return output.view(rows, heads, count, -1)


def _written_out(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scores: Scores, count: int
) -> Tensor:
    """`query` `[rows, kv_heads, folds * count, dim]`."""
    scaling = query.shape[-1] ** -0.5 if scores.scaling is None else scores.scaling
    weights = (query @ keys.transpose(-1, -2)) * scaling
    if scores.softcap is not None:
        weights = torch.tanh(weights / scores.softcap) * scores.softcap
    if mask is not None:
        weights = weights + mask
    columns = weights.shape[-1]
    if scores.sinks is not None:
        by_query = scores.sinks.view(keys.shape[1], -1).repeat_interleave(count, 1)
        weights = torch.cat([weights, by_query[None, :, :, None].expand(len(weights), -1, -1, -1)], -1)
    weights = torch.softmax(weights, -1, dtype=torch.float32).to(values.dtype)
    return weights[..., :columns] @ values
