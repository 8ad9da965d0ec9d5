"""Attention over slabs: PyTorch's fused kernel, called per session when several sessions share a pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from common.model.slab import SessionStates

SLAB_ATTENTION = "dragon_slab"


def slab_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | SessionStates,
    value: Tensor | SessionStates,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` `[rows, heads, q, dim]` over what `SlabPass.update` gave back.

    The result is `[rows, q, heads, dim]`. Every session's keys stay where they
    are: concatenating them would copy the whole cache in every layer.
    """
    if isinstance(key, Tensor) and isinstance(value, Tensor):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    outputs = []
    start = 0
    for session_key, session_value in zip(key, value, strict=True):
        stop = start + session_key.shape[0]
        mask = None if attention_mask is None else attention_mask[start:stop, ..., : session_key.shape[2]]
        output, _ = sdpa_attention_forward(module, query[start:stop], session_key, session_value, mask, **kwargs)
        outputs.append(output)
        start = stop
    return torch.cat(outputs), None


def register_slab_attention() -> str:
    """Make `slab_attention` known to Transformers and give its name. Calling it again changes nothing.

    Transformers builds no masks for a name that only the attention interface knows, so a pass without a mask
    costs nothing and a pass with one gets exactly the one it was given.
    """
    AttentionInterface.register(SLAB_ATTENTION, slab_attention)
    return SLAB_ATTENTION
