"""The attention function that Transformers models call on a packed pass."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from common.model.packed import LayerStates

PACKED_ATTENTION = "dragon_packed"


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | LayerStates,
    value: Tensor | LayerStates,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` `[1, heads, tokens, dim]` over what `PackedPass.update` gave back.

    The result is `[1, tokens, heads, dim]`. Keys that are tensors belong to a pass without a cache.
    """
    if isinstance(key, LayerStates):
        return key.attend(query, scaling), None
    if isinstance(value, LayerStates):
        raise TypeError("keys and values must belong to the same pass")
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)


def register_packed_attention() -> str:
    """Make `packed_attention` known to Transformers and give its name. Calling it again changes nothing.

    Transformers builds no masks for a name that only the attention interface knows.
    """
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    return PACKED_ATTENTION
