"""The header of a safetensors file, checked against the file's size. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from common.engine.model.errors import ModelError

_HEADER_BYTES = 2**25  # a thousand tensors have some 100 KB
_MOST_DIMENSIONS = 8  # of a tensor; models have up to five, of convolutions over time and space
_LARGEST = 2**40  # of a dimension, where others are nought


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's numbers are the bytes from `first` to before `last` of its file."""

    dtype: str  # as safetensors name it: F32, BF16, ...
    shape: tuple[int, ...]
    first: int
    last: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, each of bytes of its own, which are all that the file has. Raises `ModelError` for one
    that is none, or cut off.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _HEADER_BYTES:
                raise ModelError(f"{path}: is no safetensors file, or its header is too long")
            header = file.read(length)
            end = file.seek(0, 2)
        if len(header) < length:
            raise ModelError(f"{path}: is no safetensors file, or hardly begun; get it again")
        content: Any = json.loads(header)
        tensors = {name: _stored(tensor, 8 + length) for name, tensor in content.items() if name != "__metadata__"}
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: is no safetensors file") from error
    place = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.first, tensor.last)):
        if tensor.first != place:  # several of the same bytes would take any memory
            raise ModelError(f"{path}: is no safetensors file")
        place = tensor.last
    if place != end:
        raise ModelError(f"{path}: is cut off, or is no safetensors file; get it again")
    return tensors


def _stored(tensor: Any, start: int) -> StoredTensor:
    shape, (first, last) = tuple(tensor["shape"]), tensor["data_offsets"]
    if len(shape) > _MOST_DIMENSIONS or any(type(number) is not int for number in (*shape, first, last)):
        raise ValueError("a shape or a place is none")
    # Two numbers of four bits to a byte at most: a shape can't promise what the file does not hold.
    sizes = all(0 <= size < _LARGEST for size in shape)
    if not sizes or not 0 <= first <= last or prod(shape) > 2 * (last - first):
        raise ValueError("a shape does not fit its data")
    return StoredTensor(str(tensor["dtype"]), shape, start + first, start + last)
