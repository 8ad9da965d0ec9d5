"""A model of which only part is in memory: the leading layers stay, the others come and go with every pass."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, initialization

from common.engine.model.architecture import check_places
from common.engine.model.errors import ModelError
from common.engine.weights.file import Place, ReadCounters, Wanted, WeightFiles
from common.engine.weights.plan import BUFFERS, Streaming, aligned, residence
from common.engine.weights.store import Interrupt, StoreCounters, Waiting, WeightStore

# Numbers of every weight tensor that enter a model's identity: enough to tell two checkpoints apart, few
# enough to read in no time.
_IDENTITY_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter that is to be filled, with all modules that use it and the names that they have for it."""

    empty: nn.Parameter
    users: tuple[tuple[nn.Module, str], ...]
    name: str
    place: Place

    @property
    def bytes(self) -> int:
        return aligned(self.empty.numel() * self.empty.itemsize)

    def put(self, parameter: nn.Parameter) -> None:
        for module, attribute in self.users:
            module._parameters[attribute] = parameter


_Views = Sequence[nn.Parameter]  # a layer's parameters in a buffer


class StreamedLayers:
    """The layers from `first` on, whose weights are in a buffer while they run. For the thread that runs the model."""

    def __init__(
        self,
        store: WeightStore,
        files: WeightFiles,
        first: int,
        layers: Sequence[Sequence[_Weight]],
        views: Sequence[Sequence[_Views]],
    ) -> None:
        """`views` are, for each of the `layers` and for each buffer, the parameters in it."""
        self.first = first
        self._store, self._files = store, files
        self._layers, self._views = layers, views
        self._inside: Sequence[_Weight] = ()
        self._sampled: dict[int, dict[str, bytes]] = {}  # by layer

    @property
    def counters(self) -> StoreCounters:
        """Costs of streaming; the passes that loading takes count, too."""
        return self._store.counters

    @property
    def read(self) -> ReadCounters:
        """All that was read from the files, the resident weights included."""
        return self._files.counters

    @property
    def direct(self) -> bool:
        """Whether reading bypasses the system's page cache."""
        return self._files.direct

    def enter(self, layer: int, interrupt: Interrupt | None, waiting: Waiting | None) -> None:
        """Give `layer` of the model its weights. Raises as `WeightStore.take` does."""
        streamed = layer - self.first
        views = self._views[streamed][self._store.take(streamed, interrupt, waiting)]
        self._inside = self._layers[streamed]
        for weight, view in zip(self._inside, views, strict=True):
            weight.put(view)
        if streamed not in self._sampled:
            self._sample(streamed, views)

    def leave(self) -> None:
        """Take the weights from the layer that has them."""
        for weight in self._inside:
            weight.put(weight.empty)
        self._inside = ()
        self._store.give_back()

    def rewind(self) -> None:
        """Be ready for a pass, after one that did not end."""
        self.leave()
        self._store.rewind()

    def samples(self) -> Mapping[str, bytes]:
        """Samples for the model's identity of every weight that is not resident. Reads the layers that have taken no
        part in a pass yet.
        """
        for layer in range(len(self._layers)):
            if layer not in self._sampled:
                self._sample(layer, self._views[layer][self._store.take(layer)])
                self._store.give_back()
        return {name: sample for each in self._sampled.values() for name, sample in each.items()}

    def _sample(self, layer: int, views: _Views) -> None:
        weights = self._layers[layer]
        self._sampled[layer] = {weight.name: weight_sample(view) for weight, view in zip(weights, views, strict=True)}

    def close(self) -> None:
        """End the thread that reads."""
        self._store.close()


def weight_sample(weight: Tensor) -> bytes:
    """Evenly spaced numbers of a weight."""
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _IDENTITY_SAMPLE)].float().cpu().numpy().tobytes()


def make_empty(config: PreTrainedConfig, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """The model of a configuration with all of its buffers and none of its weights. No other may be built meanwhile."""
    make: Any = AutoModelForCausalLM
    with init_empty_weights(include_buffers=False), initialization.no_init_weights():
        model: PreTrainedModel = make.from_config(
            copy.deepcopy(config), dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )
    model.tie_weights()
    return model


def fill(
    model: PreTrainedModel, layers: Sequence[nn.Module], paths: Sequence[Path], streaming: Streaming
) -> StreamedLayers | None:
    """Give a model without weights those that stay, of the files at `paths`, and prepare the others; None if all of its
    `layers` stay.

    Raises `ModelError` for a budget that is too small, and for files that can't be read or lack something.
    """
    files, folder = WeightFiles(paths), paths[0].parent
    try:
        named = (name for stored in files.places for name in (stored, f"{model.base_model_prefix}.{stored}"))
        check_places(str(folder), model, named)
        return _fill(model, layers, files, folder, streaming)
    except BaseException:
        files.close()
        raise


def _fill(
    model: PreTrainedModel, layers: Sequence[nn.Module], files: WeightFiles, folder: Path, streaming: Streaming
) -> StreamedLayers | None:
    ends, by_layer = _weights(model, layers, files.places, folder)
    plan = residence(
        sum(weight.bytes for weight in ends),
        [sum(weight.bytes for weight in weights) for weights in by_layer],
        streaming.budget_bytes,
        streaming.reserved_bytes,
    )
    for weights in (ends, *by_layer[: plan.layers]):
        _materialise(weights, files)
    persistent = set(model.state_dict())
    files.read(
        [
            (files.places[name], buffer.view(-1))
            for name, buffer in model.named_buffers()
            if name in persistent and name in files.places
        ]
    )
    if plan.layers == len(layers):
        files.close()
        return None
    streamed = by_layer[plan.layers :]
    views, wanted = _in_buffers(streamed, plan.buffer_bytes)
    store = WeightStore(files, wanted, streaming.bytes_per_second, streaming.read_ahead)
    return StreamedLayers(store, files, plan.layers, streamed, views)


def _weights(
    model: PreTrainedModel, layers: Sequence[nn.Module], places: Mapping[str, Place], folder: Path
) -> tuple[list[_Weight], list[list[_Weight]]]:
    """The weights outside of the layers, or shared by several, and those of each layer."""
    layer_of = {id(part): index for index, layer in enumerate(layers) for part in layer.modules()}
    users: dict[int, list[tuple[nn.Module, str, str]]] = {}
    for prefix, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                users.setdefault(id(parameter), []).append((module, attribute, f"{prefix}.{attribute}"))
    ends: list[_Weight] = []
    by_layer: list[list[_Weight]] = [[] for _ in layers]
    for name, parameter in model.named_parameters():
        using = users[id(parameter)]
        place = _place([known for _, _, known in using], parameter, model.base_model_prefix, places, folder)
        weight = _Weight(parameter, tuple((module, attribute) for module, attribute, _ in using), name, place)
        owners = {layer_of.get(id(module)) for module, _, _ in using}
        owner = owners.pop() if len(owners) == 1 else None
        (ends if owner is None else by_layer[owner]).append(weight)
    return ends, by_layer


def _place(
    names: Sequence[str], parameter: nn.Parameter, prefix: str, places: Mapping[str, Place], folder: Path
) -> Place:
    """Finds a parameter in the files under one of its names, with or without the base model's prefix."""
    known = [*names, *(name.removeprefix(f"{prefix}.") for name in names)]
    place = next((places[name] for name in known if name in places), None)
    if place is None:
        raise ModelError(
            f"{folder}: holds no {names[0]} in float32, float16 or bfloat16; only models whose files have the weights"
            " as they are computed with can be streamed"
        )
    if place.shape != tuple(parameter.shape):
        raise ModelError(
            f"{folder}: {names[0]} has the shape {place.shape}, and config.json describes {tuple(parameter.shape)};"
            " they don't belong together"
        )
    return place


def _materialise(weights: Sequence[_Weight], files: WeightFiles) -> None:
    wanted = []
    for weight in weights:
        (full,) = _views([weight], torch.empty(weight.bytes, dtype=torch.uint8))
        weight.put(full)
        wanted.append((weight.place, full.data.view(-1)))
    files.read(wanted)


def _in_buffers(layers: Sequence[Sequence[_Weight]], size: int) -> tuple[list[list[_Views]], list[list[Wanted]]]:
    """For each layer and buffer, its parameters as views of the buffer, and what is to be read to where."""
    buffers = [torch.empty(size, dtype=torch.uint8) for _ in range(BUFFERS)]
    views: list[list[_Views]] = [[_views(weights, buffer) for buffer in buffers] for weights in layers]
    wanted: list[list[Wanted]] = [
        [[(weight.place, view.data.view(-1)) for weight, view in zip(weights, each, strict=True)] for each in by_buffer]
        for weights, by_buffer in zip(layers, views, strict=True)
    ]
    return views, wanted


def _views(weights: Sequence[_Weight], buffer: Tensor) -> _Views:
    views, start = [], 0
    for weight in weights:
        size = weight.empty.numel() * weight.empty.itemsize
        numbers = buffer[start : start + size].view(weight.empty.dtype).view(weight.empty.shape)
        views.append(nn.Parameter(numbers, requires_grad=False))
        start += weight.bytes
    return views
