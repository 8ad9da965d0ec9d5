"""One document's keys and values as a safetensors file, which says what they are of and proves that they are whole."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from common.model.slab import DocumentStates, Layout

_FORMAT = "1"
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}  # as the format spells them


class DamagedFile(Exception):
    """The file is not what was written, or is of something else: it must not be used."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a file is of."""

    key: str  # content address, hexadecimal
    source: str  # what computed it, see `common/model/source.py`


def save_states(path: Path, states: DocumentStates, label: Label) -> None:
    """Write `states`. Raises `OSError` or `SafetensorError`; then `path` may hold anything."""
    parts = {name: part.contiguous().cpu() for name, part in _named(states).items()}
    sums = " ".join(f"{_checksum(part):08x}" for part in parts.values())
    tokens = str(states[0][0].shape[1])
    metadata = {"format": _FORMAT, "key": label.key, "source": label.source, "tokens": tokens, "crc32": sums}
    save_file(parts, path, metadata)
    path.chmod(0o600)


def load_states(path: Path, layout: Layout, label: Label) -> DocumentStates:
    """What was written to `path` for `label`, on `layout`'s torch device.

    The numbers are copied out of the memory-mapped file and the *copy* is what is checked: whatever happens to the
    file later doesn't matter. Raises `DamagedFile`, and `OSError` where the file can't be opened.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            told = {name: metadata.get(name) for name in ("format", "key", "source")}
            if told != {"format": _FORMAT, "key": label.key, "source": label.source}:
                raise DamagedFile("it is of another document or model")
            shapes = _shapes(layout, int(metadata.get("tokens", "")))
            if set(file.keys()) != set(shapes):
                raise DamagedFile("its layers are not the model's")
            parts = []
            for name, shape in shapes.items():
                header = file.get_slice(name)
                if tuple(header.get_shape()) != shape or _DTYPES.get(header.get_dtype()) != layout.dtype:
                    raise DamagedFile("its shapes are not the model's")
                parts.append(file.get_tensor(name).clone())
    except (SafetensorError, ValueError) as error:
        raise DamagedFile(str(error)) from error
    if metadata.get("crc32") != " ".join(f"{_checksum(part):08x}" for part in parts):
        raise DamagedFile("a checksum is wrong")
    placed = [part.to(layout.torch_device) for part in parts]
    return tuple(zip(placed[::2], placed[1::2], strict=True))


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
    return zlib.crc32(part.reshape(-1).view(torch.uint8).numpy().data)
