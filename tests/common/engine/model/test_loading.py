"""Models that can't be served are refused at load time, in a sentence that says why."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from common.engine.model import loading, packed
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.packed import PackedPass
from tests.common.engine.model.driving import all_columns
from tests.common.engine.model.tiny_models import (
    DEMO,
    byte_level_tokenizer,
    make_model,
    wide_tokenizer,
)
from tests.support.json_files import change


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model("llama", tmp_path / "model")


def refused(name: str | Path, text: str, **options: Any) -> None:
    with pytest.raises(ModelError, match=text):
        Decoder.load(str(name), **options)


def add_tensors(folder: Path, added: dict[str, torch.Tensor]) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | added, path, {"format": "pt"})


class TestRefused:
    def test_no_such_folder(self, tmp_path: Path) -> None:
        refused(tmp_path / "nowhere", "no such folder")

    def test_a_file(self, folder: Path) -> None:
        refused(folder / "config.json", "is a file")

    def test_not_a_model(self, tmp_path: Path) -> None:
        refused(tmp_path, "no safetensors")

    def test_only_pickled_weights(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(weights, folder / "pytorch_model.bin")
        refused(folder, "no safetensors")

    def test_no_configuration(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        refused(folder, "configuration can't be read")

    @pytest.mark.parametrize("name", ["llama", "qwen2", "opt"])  # of the second and third one would be made, of nothing
    def test_no_tokenizer(self, name: str, tmp_path: Path) -> None:
        folder = make_model(name, tmp_path)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (folder / file).unlink()
        refused(folder, "no tokenizer")

    def test_code_that_the_checkpoint_brings_is_not_run(self, folder: Path, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        config = json.loads((folder / "config.json").read_text())
        config["model_type"] = "own"
        config["auto_map"] = {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "code.py").write_text(f"open({str(ran)!r}, 'w')")
        refused(folder, "names code that comes with the model")
        assert not ran.exists()

    @pytest.mark.parametrize("ignored", ["positions", "mask"])
    def test_models_that_ignore_what_they_are_given(
        self, ignored: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = PackedPass.__init__

        def without_positions(made: PackedPass, *arguments: Any) -> None:
            start(made, *arguments)
            made.positions = torch.zeros_like(made.positions)

        if ignored == "positions":
            monkeypatch.setattr(PackedPass, "__init__", without_positions)
        else:
            monkeypatch.setattr(packed, "chain_sight", all_columns)
        refused(folder, "LlamaForCausalLM can't be served: its logits in a packed pass differ from a fresh pass")

    def test_missing_weights(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        del weights["model.layers.1.mlp.up_proj.weight"]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        refused(folder, r"missing weights: model\.layers\.1\.mlp\.up_proj\.weight")

    def test_biases_that_the_configuration_does_not_mention(self, tmp_path: Path) -> None:
        folder = make_model("qwen2", tmp_path)
        change(folder / "config.json", model_type="llama", architectures=["LlamaForCausalLM"])
        refused(folder, r"k_proj\.bias, .* would not be used; the checkpoint belongs to another configuration")

    def test_numbers_stored_in_a_way_that_nobody_knows(self, folder: Path) -> None:
        change(folder / "config.json", quantization_config={"quant_method": "somebodys"})
        add_tensors(folder, {"model.layers.0.mlp.up_proj.scales": torch.ones(2)})
        refused(folder, "its weights are quantised as somebodys, which dragon does not read")
        change(folder / "config.json", quantization_config=None)
        refused(folder, r"up_proj\.scales \(1 in all\) would not be used")

    def test_tensors_of_parts_that_are_not_the_decoder_s(self, folder: Path) -> None:
        tensors = ("vision_tower.layer.weight", "model.layers.9.norm.weight", "model.layers.0.self_attn.masked_bias")
        add_tensors(folder, {name: torch.ones(2) for name in tensors})
        Decoder.load(str(folder)).close()

    def test_weights_of_another_shape(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"] = torch.zeros(7)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        refused(folder, "weights of another shape: .*model.norm.weight")

    def test_tokenizer_larger_than_the_embedding(self, folder: Path, tmp_path: Path) -> None:
        wide_tokenizer().save_pretrained(tmp_path / "wide")
        (folder / "tokenizer.json").unlink()
        refused(folder, "151665 ids.* only 3", tokenizer=str(tmp_path / "wide"))

    def test_another_tokenizer_than_the_model_s_own(self, folder: Path, tmp_path: Path) -> None:
        byte_level_tokenizer(words=300).save_pretrained(tmp_path / "other")
        refused(folder, "not the one", tokenizer=str(tmp_path / "other"))
        byte_level_tokenizer().save_pretrained(tmp_path / "same")
        Decoder.load(str(folder), tokenizer=str(tmp_path / "same"))

    @pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens without a GPU")
    def test_cuda_without_a_gpu(self, folder: Path) -> None:
        refused(folder, "no usable GPU", torch_device="cuda")


class TestLoaded:
    def test_demo_model(self) -> None:
        decoder = Decoder.load(str(DEMO / "target"), tokenizer=str(DEMO / "tokenizer"))
        assert (decoder.vocabulary, decoder.max_context, decoder.eos) == (2048, 1024, frozenset({1}))
        assert decoder.dtype == torch.float32

    def test_eos_of_generation_configuration_and_tokenizer(self, folder: Path) -> None:
        path = folder / "generation_config.json"
        change(path, eos_token_id=[5, 9])
        assert Decoder.load(str(folder)).eos == {1, 5, 9}

    def test_identity_is_of_the_numbers_not_of_the_place(self, folder: Path, tmp_path: Path) -> None:
        first = Decoder.load(str(folder)).identity
        shutil.copytree(folder, tmp_path / "copy")
        assert Decoder.load(str(tmp_path / "copy")).identity == first
        weights = load_file(folder / "model.safetensors")
        weights["model.layers.2.mlp.up_proj.weight"] *= 1.001
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        assert Decoder.load(str(folder)).identity != first

    def test_nothing_is_written_to_the_terminal(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        Decoder.load(str(folder))
        assert capfd.readouterr() == ("", "")

    def test_a_local_model_asks_nobody(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[object] = []

        def connect(_: socket.socket | None, address: object) -> None:
            asked.append(address)
            raise OSError("no network in this test")

        monkeypatch.setattr(socket.socket, "connect", connect)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **_: connect(None, address))
        Decoder.load(str(folder))
        Decoder.load(str(DEMO / "target"), tokenizer=str(DEMO / "tokenizer"))
        assert asked == []

    def test_threads(self, folder: Path) -> None:
        Decoder.load(str(folder), threads=1)
        assert torch.get_num_threads() == 1


class TestAutomaticType:
    @pytest.mark.parametrize(
        ("stored", "bfloat16", "expected"),
        [
            (torch.float32, True, torch.float32),
            (None, True, torch.float32),
            (torch.bfloat16, True, torch.bfloat16),
            (torch.float16, True, torch.bfloat16),
            (torch.bfloat16, False, torch.float32),
            (torch.float16, False, torch.float32),
        ],
    )
    def test_on_a_cpu(
        self,
        stored: torch.dtype | None,
        bfloat16: bool,
        expected: torch.dtype,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(loading, "cpu_has_bfloat16", lambda: bfloat16)
        assert loading.resolve_dtype("auto", stored, torch.device("cpu")) == expected

    def test_on_a_gpu_the_checkpoint_decides(self) -> None:
        assert loading.resolve_dtype("auto", torch.float16, torch.device("cuda")) == torch.float16

    def test_as_asked(self) -> None:
        names: tuple[loading.DtypeName, ...] = ("float32", "bfloat16")
        for name in names:
            chosen = loading.resolve_dtype(name, torch.float16, torch.device("cpu"))
            assert chosen == getattr(torch, name)
