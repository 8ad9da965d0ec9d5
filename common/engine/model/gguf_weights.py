"""Reads a model's weights from its GGUF file: stored codes, or plain numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from common.engine.model.errors import ModelError
from common.engine.model.files import StoredWeights
from common.engine.model.gguf import InFile, WeightSource, unread_type
from common.engine.model.quantised import (
    CODED,
    GroupCodes,
    Matrix,
    can_hold,
    damage_of,
    fits,
    laid_out,
    put,
    stored_codes,
    users_of,
)
from common.engine.streaming import make_empty

_READING = min(4, os.cpu_count() or 1)  # threads that unpack and lay out; these kernels release Python's lock


@dataclass(frozen=True, slots=True)
class _Reader:
    """Takes tensors from a mapping of the file. Kept tensors are copies."""

    source: WeightSource
    content: np.memmap[Any, Any]
    processor: Any  # Transformers' rule for the architecture: some rows have another order in the file

    def stored(self, tensor: InFile) -> Any:
        """The tensor's bytes, `[rows, bytes]`."""
        rows = int(np.prod(tensor.shape[:-1])) if tensor.shape else 1
        return self.content[tensor.first : tensor.last].reshape(rows, -1)

    def codes(self, tensor: InFile) -> GroupCodes | None:
        """None if no codes are near enough. Raises `ModelError` for damage."""
        order = self._order(tensor)
        codes = None if order is None else stored_codes(tensor.kind, self.stored(tensor))
        if codes is None:
            return None
        if (row := damage_of(codes)) is not None:
            raise ModelError(f"{self.source.path}: {tensor.name} is damaged in row {row}; get the file again")
        return codes if bool((order[:-1] < order[1:]).all()) else codes.rows(order)

    def numbers(self, tensor: InFile) -> torch.Tensor:
        """Float32. Raises `ModelError` for an unsupported type or damage."""
        from gguf import GGMLQuantizationType, dequantize

        try:
            plain = dequantize(self.stored(tensor), GGMLQuantizationType[tensor.kind])
        except NotImplementedError:
            raise ModelError(unread_type(self.source.path, tensor.name, tensor.kind)) from None
        plain = self.processor.process(plain.reshape(tensor.shape), tensor.name).weights
        numbers = torch.from_numpy(np.array(plain, dtype=np.float32))
        if not bool(torch.isfinite(numbers).all()):
            raise ModelError(f"{self.source.path}: {tensor.name} is damaged; get the file again")
        return numbers

    def _order(self, tensor: InFile) -> Any:
        """The file's rows in the model's order, or None if more differs."""
        rows = tensor.shape[0]
        made = self.processor.process(np.arange(rows, dtype=np.float64)[:, None], tensor.name).weights
        order = made.reshape(-1).astype(np.int64)
        return order if made.shape == (rows, 1) and np.array_equal(np.sort(order), np.arange(rows)) else None


def sizes_of(source: WeightSource) -> StoredWeights:
    """The sizes for the check of a model's configuration."""
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    numbers = sum(int(np.prod(shape)) for shape in shapes.values())
    return StoredWeights(numbers, max((size for shape in shapes.values() for size in shape), default=0), shapes)


def bytes_of(source: WeightSource, dtype: torch.dtype, coded: bool) -> int:
    """Approximate memory of the weights."""
    total = 0
    for tensor in source.tensors.values():
        numbers = int(np.prod(tensor.shape))
        bits = 8 * dtype.itemsize
        if coded and tensor.kind in CODED:
            bits = 5 if tensor.kind.startswith("Q4") else 10
        total += numbers * bits // 8
    return total


def read_source(
    config: PreTrainedConfig, source: WeightSource, dtype: torch.dtype, attention: str, coded: bool
) -> tuple[PreTrainedModel, Mapping[str, bytes]]:
    """The model of `config` with a GGUF file's weights, and samples of coded ones.

    Without `coded` all become numbers of type `dtype`. Raises `ModelError` for a file that does not fit, has changed,
    or is damaged.
    """
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

    model: Any = make_empty(config, dtype, attention)
    kind: Any = TENSOR_PROCESSORS.get(source.architecture, TensorProcessor)
    reader = _Reader(source, source.mapped(), kind(config=config.to_dict()))
    users, samples = users_of(model), dict[str, bytes]()
    weights = dict(model.named_parameters())

    @torch.inference_mode()
    def read(name: str) -> tuple[Matrix, bytes] | nn.Parameter:
        """The weight `name`: laid out codes with their sample, or numbers."""
        tensor, weight = source.tensors.get(name), weights[name]
        if tensor is None or tensor.shape != tuple(weight.shape):
            raise ModelError(f"{source.path}: has no {name} of the shape {tuple(weight.shape)}; import it again")
        codes = None
        if coded and tensor.kind in CODED and fits(weight.shape) and can_hold(users[id(weight)]):
            codes = reader.codes(tensor)
        if codes is not None:
            return laid_out(codes), codes.sample()
        numbers = reader.numbers(tensor)
        if tuple(numbers.shape) != tensor.shape:
            raise ModelError(f"{source.path}: {tensor.name} has another shape than the model's {name}")
        return nn.Parameter(numbers.to(weight.dtype), requires_grad=False)

    with torch.inference_mode(), ThreadPoolExecutor(_READING) as pool:
        try:
            for (name, weight), made in zip(weights.items(), pool.map(read, weights), strict=True):
                using = users[id(weight)]
                if isinstance(made, nn.Parameter):
                    for user in using:
                        for attribute, own in [*user._parameters.items()]:
                            if own is weight:
                                user._parameters[attribute] = made
                else:
                    matrix, samples[name] = made
                    put(matrix, using)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return model, samples
