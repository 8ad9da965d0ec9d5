"""A model in memory is its own: what becomes of its files afterwards, or lies beside them, changes no number."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.files import read_header
from common.engine.model.loading import DtypeName, load_model
from common.engine.streaming import ALIGNMENT
from tests.common.engine.model.architectures import configuration
from tests.common.engine.model.streamed_models import load
from tests.common.engine.model.tiny_models import byte_level_tokenizer, make_model, random_model
from tests.support.json_files import change

BLOCK = 128  # numbers of each side of what has a scale in FP8
TYPES: tuple[DtypeName, ...] = ("float32", "bfloat16")


def logits(decoder: Decoder) -> Tensor:
    return decoder.fresh_logits([5, 6, 7])


@pytest.mark.parametrize("dtype", TYPES)
def test_files_may_change_and_go(dtype: DtypeName, tmp_path: Path) -> None:
    """Also in place, as `cp` and `rsync --inplace` do it."""
    path = make_model("llama", tmp_path) / "model.safetensors"
    save_file({name: each.to(getattr(torch, dtype)) for name, each in load_file(path).items()}, path, {"format": "pt"})
    decoder = Decoder.load(str(tmp_path), dtype=dtype)
    expected = logits(decoder)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert torch.equal(logits(decoder), expected)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(path) not in maps.read_text()
    os.truncate(path, 0)
    assert torch.equal(logits(decoder), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_lie_where_kernels_like_them(dtype: DtypeName, tmp_path: Path) -> None:
    model = load_model(str(make_model("gpt2", tmp_path)), None, "cpu", dtype).model
    assert all(part.data_ptr() % ALIGNMENT == 0 for part in model.parameters())
    ends: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    assert ends[0].weight is ends[1].weight  # which are one in the file, too


def test_what_else_lies_in_the_folder_is_not_read(tmp_path: Path) -> None:
    """Shards of an earlier release, for example, by whichever way a model is loaded."""
    folder = make_model("llama", tmp_path)
    expected = logits(Decoder.load(str(folder)))
    weights = load_file(folder / "model.safetensors")
    stale = {name: torch.zeros_like(each) for name, each in weights.items()} | {"more": torch.ones(2)}
    save_file(stale, folder / "older-00001-of-00001.safetensors", {"format": "pt"})
    whole, part = Decoder.load(str(folder)), load(folder, 2**24)
    assert torch.equal(logits(whole), expected)
    assert torch.equal(logits(part), expected)
    part.close()


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    folder = make_model("llama", tmp_path)
    expected = logits(Decoder.load(str(folder)))
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    for number in (0, 1):
        save_file({name: weights[name] for name in names[number::2]}, folder / f"{number}.safetensors")
    shutil.copy(folder / "0.safetensors", folder / "2.safetensors")
    with pytest.raises(ModelError, match="no safetensors weights"):
        Decoder.load(str(folder))
    change(
        folder / "model.safetensors.index.json",
        weight_map={name: f"{number}.safetensors" for number in (0, 1) for name in names[number::2]},
    )
    assert torch.equal(logits(Decoder.load(str(folder))), expected)
    (folder / "1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"index\.json: lists 1\.safetensors \(1 in all\), which is missing; get it"):
        Decoder.load(str(folder))
    change(folder / "model.safetensors.index.json", weight_map=[])
    with pytest.raises(ModelError, match="lists no weights"):
        Decoder.load(str(folder))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it is computed with as it is stored")
@pytest.mark.parametrize("dtype", TYPES)
def test_quantised_numbers_become_the_model_s_type(dtype: DtypeName, tmp_path: Path) -> None:
    """FP8 is made bfloat16 by Transformers, which not every CPU has."""
    tokenizer = byte_level_tokenizer()
    config = configuration("llama", len(tokenizer) + 6)
    config.hidden_size, config.intermediate_size, config.head_dim = 2 * BLOCK, BLOCK, BLOCK // 2
    config.initializer_range = 0.08
    random_model(config).to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    expected = logits(Decoder.load(str(tmp_path), dtype=dtype))
    path = tmp_path / "model.safetensors"
    stored = {part: each for name, whole in load_file(path).items() for part, each in in_fp8(name, whole).items()}
    save_file(stored, path, {"format": "pt"})
    described = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    change(tmp_path / "config.json", quantization_config=described)
    decoder = Decoder.load(str(tmp_path), dtype=dtype)
    assert decoder.dtype == getattr(torch, dtype)
    assert (logits(decoder) - expected).abs().max() < 0.2 * expected.abs().max()


def test_tensors_of_the_same_bytes(tmp_path: Path) -> None:
    """However small the file, they would take any memory."""
    entry: dict[str, Any] = {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}
    for others in ({"a": entry, "b": entry}, {"a": entry, "b": entry | {"data_offsets": [4004, 8004]}}):
        header = json.dumps(others).encode()
        size = max(each["data_offsets"][1] for each in others.values())
        (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
        with pytest.raises(ModelError, match=r"x\.safetensors: is no safetensors file"):
            read_header(tmp_path / "x.safetensors")


def test_settings_for_answers_that_are_none(tmp_path: Path) -> None:
    folder = make_model("llama", tmp_path)
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"generation_config\.json"):
        Decoder.load(str(folder))


def in_fp8(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A weight as it is stored in FP8, with a scale for every block of a projection."""
    if "proj" not in name:
        return {name: weight}
    rows, columns = (size // BLOCK for size in weight.shape)
    blocks = weight.float().view(rows, BLOCK, columns, BLOCK)
    scales = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    scaled = (blocks / scales[:, None, :, None]).view(weight.shape)
    return {name: scaled.to(torch.float8_e4m3fn), f"{name}_scale_inv": scales}
