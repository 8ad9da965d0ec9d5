"""Checks, before memory is taken, that a model's configuration asks for no more than its weights can fill.

Reads JSON and the headers of safetensors files; needs no torch. What is left to the imagination of a configuration
whose every number is bounded, `loading.check_numbers` counts on a model without storage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from common.engine.model.errors import ModelError
from common.engine.model.model_files import named_values, read_settings
from common.engine.model.safetensors_header import read_header
from common.engine.model.weight_files import weight_files

DECODER_POSITIONS = 2**24
ENCODER_POSITIONS = 2**18

_MOST_LAYERS = 1024
_MOST_PARTS = 4096  # heads, experts, labels
_MOST_MODULES = 2**17  # experts of all layers together
_LARGEST = 2**24
_WRITTEN = 1e300  # what is below it can be told in digits
_SPARE = 4  # times the largest dimension of any tensor: projections may be stored in parts

_LAYERS = re.compile(r"(^|_)(layers?|blocks|depths?)$")
_EXPERTS = re.compile(r"(^|_)experts$")
_PARTS = re.compile(r"(^(num|n)_|(^|_)(heads|labels)$)")
_POSITIONS = re.compile(r"^(n_positions|n_ctx|max_position_embeddings|max_seq(uence)?_len(gth)?|seq_length)$")
_SIZES = re.compile(r"(sizes?|dims?|dimension|features|channels|width|rank)$|^(n_embd|n_inner|d_model|d_ff|d_kv)$")
_NO_DIMENSION = re.compile(r"window|chunk|block|image|patch|batch|cache")  # sizes of what is in no weight


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Tensor sizes as the headers of safetensors files state them."""

    numbers: int
    largest: int  # dimension of any tensor
    shapes: dict[str, tuple[int, ...]]


def stored_weights(folder: Path) -> StoredWeights:
    """The tensors of the model in `folder`. Raises `ModelError` for a file that is none."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        shapes |= {name: tensor.shape for name, tensor in read_header(path).items()}
    numbers = sum(prod(shape) for shape in shapes.values())
    return StoredWeights(numbers, max((size for shape in shapes.values() for size in shape), default=0), shapes)


def check_sizes(path: Path, stored: StoredWeights | None, positions: int) -> None:
    """Look at the numbers in a `config.json`; `positions` is the longest context that may be asked for.

    `stored` is None for a module without weights. Raises `ModelError`, one sentence that names the number.
    """
    settings = read_settings(path)
    layers = experts = 1
    for key, value in named_values(settings):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        most = _most(key, stored, positions)
        if most is not None and not -_LARGEST <= value <= most:  # also true for NaN
            told = "beyond counting" if abs(value) >= _WRITTEN else f"{value:.15g}"
            raise ModelError(f"{path}: {key} is {told}, more than this model's weights can fill or any model has")
        layers = max(layers, int(value)) if _LAYERS.search(key) else layers
        experts = max(experts, int(value)) if _EXPERTS.search(key) else experts
    if layers * experts > _MOST_MODULES:
        raise ModelError(f"{path}: {layers} layers of {experts} experts are more than any model has")


def _most(key: str, stored: StoredWeights | None, positions: int) -> int | None:
    """The highest value that a setting of this name may have; None where it is no size."""
    if _POSITIONS.search(key):
        return positions
    if _LAYERS.search(key):
        return _MOST_LAYERS
    if _SIZES.search(key):
        dimension = stored is not None and not _NO_DIMENSION.search(key)
        return _SPARE * stored.largest if dimension and stored is not None else _LARGEST
    return _MOST_PARTS if _PARTS.search(key) or _EXPERTS.search(key) else None
