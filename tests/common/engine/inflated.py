"""A checkpoint of any size that computes what a small one computes: for models that are larger than a memory budget.

Layers are put between those of the model whose two projections back into the residual stream are zero, and feed-forward
parts get wider by columns that are zero there. All else that is added is random: it has to be read and multiplied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

SHARD_BYTES: Final = 2**26
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.*)")
_BACK: Final = ("self_attn.o_proj.weight", "mlp.down_proj.weight")  # of a layer of Llama's or Qwen's kind
_SCALE: Final = 0.02
_SEED: Final = 5


def inflate(source: Path, folder: Path, layers: int, inner: int | None = None) -> Path:
    """Write the model in `source` (of Llama's or Qwen2's kind) with `layers` layers to `folder`, with feed-forward
    parts `inner` wide where given. No more than a shard is in memory.

    What is added to a sum is exactly zero: logits differ by the order of summation at most. Raises `ValueError` for
    fewer layers or less width than the model has.
    """
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    own, width = config["num_hidden_layers"], config["intermediate_size"]
    inner = width if inner is None else inner
    if layers < own or inner < width:
        raise ValueError(f"the model has {own} layers of width {width}, and can't be made smaller")
    config |= {"num_hidden_layers": layers, "intermediate_size": inner}
    if "layer_types" in config:
        config["layer_types"] = ["full_attention"] * layers
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if (source / "generation_config.json").exists():
        (folder / "generation_config.json").write_text((source / "generation_config.json").read_text())
    _write(_tensors(source / "model.safetensors", own, layers, inner), folder)
    return folder


def _tensors(path: Path, own: int, layers: int, inner: int) -> Iterator[tuple[str, Tensor]]:
    """The model's own layers are spread evenly, the last one comes last."""
    generator = torch.Generator().manual_seed(_SEED)
    places = {(layer + 1) * layers // own - 1: layer for layer in range(own)}
    with safe_open(path, "pt") as file:
        parts: list[str] = []
        for name in sorted(file.keys()):
            found = _LAYER.fullmatch(name)
            if found is None:
                yield name, file.get_tensor(name)
            elif int(found[1]) == 0:
                parts.append(found[2])
        for place in range(layers):
            for part in parts:
                weight = file.get_tensor(f"model.layers.{places.get(place, 0)}.{part}")
                yield f"model.layers.{place}.{part}", _part(part, weight, inner, place in places, generator)


def _part(part: str, weight: Tensor, inner: int, own: bool, generator: torch.Generator) -> Tensor:
    shape = list(weight.shape)
    if part.startswith("mlp."):
        shape = [shape[0], inner] if part == "mlp.down_proj.weight" else [inner, *shape[1:]]
    if part in _BACK:
        made = torch.zeros(shape, dtype=weight.dtype)
    else:
        made = (torch.randn(shape, generator=generator) * _SCALE).to(weight.dtype)
    if own:
        made[tuple(slice(size) for size in weight.shape)] = weight
    return made


def _write(tensors: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    shard: dict[str, Tensor] = {}
    where: dict[str, str] = {}
    total = size = 0

    def save() -> None:
        name = f"model-{len(set(where.values())) + 1:05}.safetensors"
        save_file(shard, folder / name, {"format": "pt"})
        where.update(dict.fromkeys(shard, name))
        shard.clear()

    for name, tensor in tensors:
        count = tensor.numel() * tensor.itemsize
        if shard and size + count > SHARD_BYTES:
            save()
            size = 0
        shard[name] = tensor
        size += count
        total += count
    save()
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
