"""A report on a model before it is loaded: what can't be read is refused, and memory is told as it will be taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.filesize import decimal
from safetensors.torch import load_file, save_file

from cloud.settings import CloudSettings
from common.configuration.settings import Settings
from common.daemon.models import describe_fit
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from device.settings import DeviceSettings
from proto.messages import Side
from tests.common.engine.model.tiny_models import make_model
from tests.support.json_files import change


def told(folder: Path) -> list[str]:
    device = DeviceSettings(torch_device="cpu", dtype="float32")
    sides: dict[Side, Settings] = {"device": device, "cloud": CloudSettings()}
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return describe_fit("somebody/small", folder, stored, sides)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model("llama", tmp_path)


@pytest.mark.parametrize("stated", ["float32", "bfloat16", None])
def test_memory_is_that_of_the_numbers_in_the_files(folder: Path, stated: str | None) -> None:
    """Whatever the configuration says, or does not say, of their type."""
    path = folder / "model.safetensors"
    save_file({name: each.bfloat16() for name, each in load_file(path).items()}, path, {"format": "pt"})
    change(folder / "config.json", dtype=stated)
    taken = 4 * Decoder.load(str(folder), dtype="float32").parameters
    assert any(f"about {decimal(taken)} for its weights in float32" in line for line in told(folder))


def test_memory_before_the_weights_are_here(folder: Path) -> None:
    """Numbers of which nobody says the type are taken for halves, as most are."""
    change(folder / "config.json", dtype=None)
    (folder / "model.safetensors").write_bytes(b"")
    change(folder / "model.safetensors.index.json", weight_map={"x": "1.safetensors"})
    (folder / "model.safetensors").unlink()
    (folder / "other.safetensors").write_bytes(bytes(10**6))
    assert any("about 2.0 MB for its weights in float32" in line for line in told(folder))


@pytest.mark.parametrize(
    "described",
    [
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}},
        {"quant_method": "torchao"},
        {"quant_method": "somebodys"},
        {"quant_method": ["many"]},
    ],
    ids=json.dumps,
)
def test_weights_that_nothing_here_reads(folder: Path, described: dict[str, Any]) -> None:
    """Transformers reads most of these with a package that is not installed."""
    change(folder / "config.json", quantization_config=described)
    said = r"its weights are quantised as .+, which dragon does not read: use the plain safetensors, or a \.gguf file"
    with pytest.raises(ModelError, match=said):
        told(folder)
    with pytest.raises(ModelError, match=said):
        Decoder.load(str(folder))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there they are computed with as they are stored")
@pytest.mark.parametrize(("method", "numbers"), [("fp8", 1), ("mxfp4", 2)])
def test_quantised_weights_take_the_memory_of_plain_ones(folder: Path, method: str, numbers: int) -> None:
    """On a CPU, where Transformers makes such of them; a byte holds one number, or two."""
    change(folder / "config.json", quantization_config={"quant_method": method})
    stored = (folder / "model.safetensors").stat().st_size
    assert any(f"about {decimal(4 * numbers * stored)} for its weights in float32" in line for line in told(folder))
