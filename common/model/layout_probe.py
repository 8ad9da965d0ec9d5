"""Finds the layout of a model's KV cache by running the model once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from common.kv.layout import LayerShape, Layout
from common.model.errors import ModelError
from common.model.loading import LoadedModel


class _LayoutProbe(Cache):
    """A cache that keeps nothing but the shapes it was given."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: dict[int, LayerShape] = {}
        self.dtype = torch.float32

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.shapes[layer_idx] = LayerShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        self.dtype = key_states.dtype
        return key_states, value_states

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return 0


@torch.inference_mode()
def find_layout(loaded: LoadedModel, run: Callable[[Tensor, Cache], object]) -> Layout:
    """Layout of the KV cache, seen from `run`: a pass over tokens `[1, 1]` at position 0. Raises `ModelError`."""
    probe, layers, name = _LayoutProbe(), len(loaded.layers), type(loaded.model).__name__
    try:
        run(torch.zeros((1, 1), dtype=torch.int64, device=loaded.torch_device), probe)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"{name} doesn't run in a packed pass: {error}") from error
    if sorted(probe.shapes) != list(range(layers)):
        raise ModelError(
            f"{name} caches keys and values in {len(probe.shapes)} of {layers}"
            " layers; only models with full attention in every layer are supported"
        )
    shapes = tuple(probe.shapes[layer] for layer in range(layers))
    return Layout(shapes, probe.dtype, loaded.torch_device)
