"""The reach of a layer: how far back it looks, read off the mask that Transformers would make for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

MaskFunction = Callable[[Any, Any, Tensor, Tensor], Tensor]

OTHERWISE = -1  # what a mask says that hides in another way

_NEAR = 64  # places on both sides of an edge that are looked at one by one
_SPREAD = 1024


def reach_mask(
    *,
    mask_function: MaskFunction,
    q_length: int,
    kv_length: int,
    config: Any,
    local_size: int | None = None,
    device: torch.device | None = None,
    **kwargs: Any,
) -> Tensor:
    """A mask that doesn't hide: every number `[1, 1, query, keys]` is how many tokens a token sees, itself included, 0
    for all, or `OTHERWISE`. Transformers calls it where a model asks for a mask, also for one that no layer takes.
    """
    longest = getattr(config, "max_position_embeddings", None) or 2 * (local_size or 1)
    window = None if local_size is None or local_size >= longest else local_size
    places = [0, 1, 2, *(edge + step for edge in _edges(longest, window) for step in (-1, 0, 1, 2))]
    as_said = all(_sees(mask_function, place, window, device) for place in places if 0 <= place < longest)
    said = (window or 0) if as_said else OTHERWISE
    return torch.full((1, 1, q_length, kv_length), said, dtype=torch.int64, device=device)


def _edges(longest: int, window: int | None) -> Sequence[int]:
    return [longest // 2, longest - 1] if window is None else [window, 2 * window, longest // 2, longest - 1]


def _sees(mask_function: MaskFunction, place: int, window: int | None, device: torch.device | None) -> bool:
    """Whether the token at `place` sees exactly the last `window` tokens, or all."""
    oldest = 0 if window is None else max(0, place - window + 1)
    columns, only = _columns(place, oldest).to(device), torch.zeros((), dtype=torch.int64, device=device)
    seen = mask_function(only, only, only + place, columns).expand(columns.shape)
    return torch.equal(seen, (columns >= oldest) & (columns <= place))


def _columns(place: int, oldest: int) -> Tensor:
    """All near both ends of what is to be seen, and some between and before them."""
    near = [torch.arange(edge - _NEAR, edge + _NEAR) for edge in (oldest, place)]
    spread = torch.linspace(0, place, _SPREAD, dtype=torch.float64).long()
    columns = torch.cat([*near, spread])
    return columns[columns >= 0]
