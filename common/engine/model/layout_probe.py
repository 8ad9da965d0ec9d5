"""Finds the layout of a model's KV cache, and how far its layers look back, by running the model once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from common.engine.kv.layout import LayerShape, Layout
from common.engine.model.attention import PROBED_ATTENTION, attention_of
from common.engine.model.errors import ModelError
from common.engine.model.loading import LoadedModel
from common.engine.model.packed import Expand
from common.engine.model.reach import OTHERWISE
from common.engine.model.scores import Scores


class _LayoutProbe(Cache):
    """A cache that keeps nothing but the shapes it was given."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}
        self.dtype = torch.float32

    def update(  # type: ignore[override]
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[_ProbedStates, _ProbedStates]:
        self.shapes[layer_idx] = LayerShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        self.dtype = key_states.dtype
        states = _ProbedStates(self, layer_idx, key_states, value_states)
        return states, states

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0

    def note_window(self, layer: int, window: int | None) -> None:
        """Take down what a layer that reads the keys of `layer` sees of them."""
        if window == OTHERWISE:
            raise ModelError(
                "a layer's tokens see neither all earlier tokens nor a window of the last ones (attention in chunks or"
                " in both directions)"
            )
        if self.windows.setdefault(layer, window) != window:
            raise ModelError(f"layers that share the keys of layer {layer} look back over windows of several lengths")


@dataclass(frozen=True, slots=True)
class _ProbedStates:
    """Stands for a layer's keys and values in a pass of one token, whose attention is its own value."""

    probe: _LayoutProbe
    layer: int
    key: Tensor
    value: Tensor

    def expanded(self, expand: Expand) -> tuple[_ProbedStates, _ProbedStates]:
        states = replace(self, value=expand(self.key, self.value)[1])
        return states, states

    def attend(self, query: Tensor, scores: Scores, mask: Tensor | None) -> Tensor:
        self.probe.note_window(self.layer, None if mask is None else int(mask.reshape(-1)[0]) or None)
        heads = query.shape[1] // self.value.shape[1]
        return self.value.repeat_interleave(heads, 1).transpose(1, 2)


@torch.inference_mode()
def find_layout(loaded: LoadedModel, run: Callable[[Tensor, Cache], object]) -> Layout:
    """Layout of the KV cache, seen from `run`: a pass over tokens `[1, 1]` at position 0. Raises `ModelError`."""
    probe, layers, name = _LayoutProbe(), len(loaded.layers), type(loaded.model).__name__
    try:
        with attention_of(loaded.model, PROBED_ATTENTION):
            run(torch.zeros((1, 1), dtype=torch.int64, device=loaded.torch_device), probe)
    except ModelError as error:
        raise ModelError(f"{name} can't be served: {error}") from error
    except (AttributeError, TypeError) as error:
        raise ModelError(
            f"{name} can't be served: it computes masks or attention by itself, not through Transformers' interfaces"
        ) from error
    except (IndexError, KeyError, RuntimeError, ValueError) as error:
        raise ModelError(f"{name} doesn't run in a packed pass: {error}") from error
    shared = layers - len(probe.shapes)  # the last layers may read the keys of earlier ones (Gemma 3n)
    if not probe.shapes or sorted(probe.shapes) != list(range(layers - shared)):
        raise ModelError(
            f"{name} can't be served: it keeps keys and values for {len(probe.shapes)} of its {layers} layers; only"
            " models with attention in every layer are supported"
        )
    shapes = tuple(replace(probe.shapes[layer], window=probe.windows.get(layer)) for layer in sorted(probe.shapes))
    return Layout(shapes, probe.dtype, loaded.torch_device)
