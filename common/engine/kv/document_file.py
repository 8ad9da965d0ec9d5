"""One document's keys and values as a safetensors file, which says what they are of and proves that they are whole."""

from __future__ import annotations

import json
import math
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from common.engine.kv.layout import DocumentStates, Layout

_FORMAT = "1"
_HEADER_BYTES = 2**24  # some hundred for every layer
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}  # as the format spells them


class DamagedFile(Exception):
    """The file is not what was written, or is of something else: it must not be used."""


@dataclass(frozen=True, slots=True)
class Label:
    """Identity of a file's content: the document and the model that it is of."""

    key: str  # content address, hexadecimal
    source: str  # what computed it, see `common/engine/model/source.py`


def save_states(path: Path, states: DocumentStates, label: Label) -> None:
    """Write `states`. Raises `OSError` or `SafetensorError`; then `path` may hold anything."""
    parts = {name: part.contiguous().cpu() for name, part in _named(states).items()}
    sums = " ".join(f"{_checksum(part):08x}" for part in parts.values())
    tokens = str(states[0][0].shape[1])
    metadata = {"format": _FORMAT, "key": label.key, "source": label.source, "tokens": tokens, "crc32": sums}
    save_file(parts, path, metadata)
    path.chmod(0o600)


def load_states(path: Path, layout: Layout, label: Label, most_bytes: int) -> DocumentStates:
    """Read the states that were written to `path` for `label`, on `layout`'s torch device.

    The numbers are read, never mapped: a mapping kills the process when somebody cuts the file off meanwhile. What
    was read is what is checked, whatever happens to the file later. Raises `DamagedFile`, also for a file of more than
    `most_bytes`, and `OSError` where the file can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # nor wait at a pipe
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise DamagedFile("it is no file of this store")
        metadata, offsets, start = _header(descriptor, status.st_size, layout, label)
        parts = {}
        for name, shape in offsets.shapes.items():
            parts[name] = torch.empty(shape, dtype=layout.dtype)
            _fill(descriptor, _bytes_of(parts[name]), start + offsets.first[name])
    finally:
        os.close(descriptor)
    if metadata.get("crc32") != " ".join(f"{_checksum(part):08x}" for part in parts.values()):
        raise DamagedFile("a checksum is wrong")
    placed = [part.to(layout.torch_device) for part in parts.values()]
    return tuple(zip(placed[::2], placed[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Shape of each tensor, and its offset behind the header."""

    shapes: dict[str, tuple[int, int, int]]
    first: dict[str, int]


def _header(descriptor: int, size: int, layout: Layout, label: Label) -> tuple[dict[str, Any], _Offsets, int]:
    """The file's metadata, its tensors' offsets, and the offset of the data. Raises `DamagedFile`."""
    length = int.from_bytes(_read(descriptor, 8, 0), "little")
    if length > min(size, _HEADER_BYTES):
        raise DamagedFile("its header is too long")
    try:
        content: dict[str, Any] = json.loads(_read(descriptor, length, 8))
        metadata: dict[str, Any] = content.pop("__metadata__")
        told = {name: metadata.get(name) for name in ("format", "key", "source")}
        if told != {"format": _FORMAT, "key": label.key, "source": label.source}:
            raise DamagedFile("it is of another document or model")
        tokens = int(metadata["tokens"])
        start = 8 + length
        if tokens < 1 or start + tokens * layout.token_bytes != size:
            raise DamagedFile("it is longer or shorter than what was written")
        shapes = _shapes(layout, tokens)
        if content.keys() != shapes.keys():
            raise DamagedFile("its layers are not the model's")
        first = {name: _first(content[name], shape, layout, size - start) for name, shape in shapes.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedFile("its header can't be read") from error
    return metadata, _Offsets(shapes, first), start


def _first(tensor: dict[str, Any], shape: tuple[int, ...], layout: Layout, size: int) -> int:
    """Offset of a tensor in the `size` bytes behind the header. Raises `DamagedFile`, and what odd types do."""
    first, end = tensor["data_offsets"]
    if tuple(tensor["shape"]) != shape or _DTYPES.get(tensor["dtype"]) != layout.dtype:
        raise DamagedFile("its shapes are not the model's")
    if end - first != math.prod(shape) * layout.dtype.itemsize or first < 0 or end > size:
        raise DamagedFile("its tensors are not where they should be")
    return int(first)


def _read(descriptor: int, length: int, start: int) -> bytes:
    buffer = bytearray(length)
    _fill(descriptor, memoryview(buffer), start)
    return bytes(buffer)


def _fill(descriptor: int, buffer: memoryview, start: int) -> None:
    while buffer:
        count = os.preadv(descriptor, [buffer], start)
        if count == 0:
            raise DamagedFile("it is cut off")
        buffer, start = buffer[count:], start + count


def _named(states: DocumentStates) -> dict[str, Tensor]:
    named = {}
    for number, (keys, values) in enumerate(states):
        named[f"{number}.keys"], named[f"{number}.values"] = keys, values
    return named


def _shapes(layout: Layout, tokens: int) -> dict[str, tuple[int, int, int]]:
    """Shape of every tensor of a document of `tokens` tokens, in the order of `_named`."""
    shapes = {}
    for number, layer in enumerate(layout.layers):
        shapes[f"{number}.keys"] = (layer.kv_heads, tokens, layer.key_dim)
        shapes[f"{number}.values"] = (layer.kv_heads, tokens, layer.value_dim)
    return shapes


def _checksum(part: Tensor) -> int:
    # CRC-32 of each tensor by itself: no single burst of errors passes, and it is several times as fast as a
    # cryptographic hash. Whoever may write into the folder owns the documents anyway.
    return zlib.crc32(_bytes_of(part))


def _bytes_of(part: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return part.reshape(-1).view(torch.uint8).numpy().data
