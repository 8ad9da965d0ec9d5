"""Model folders made to harm: refused with a sentence before anything runs, hangs or takes memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.files import SETTINGS_BYTES, TOKENIZER_BYTES
from common.engine.model.tokenizer import Tokenizer
from tests.common.engine.model.tiny_models import make_model
from tests.support.json_files import change

MEMORY = 2**28  # bytes that a refusal may take at most; every one of these folders asks for far more


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("llama", tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "model")


def refused(name: str | Path, text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match=text) as refusal:
        Decoder.load(str(name))
    assert "\n" not in str(refusal.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY // 1024


class TestCode:
    @pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json", "other.json"])
    def test_that_comes_with_the_model(self, folder: Path, tmp_path: Path, name: str) -> None:
        ran = tmp_path / "ran"
        (folder / "code.py").write_text(f"open({str(ran)!r}, 'w')\nclass C: pass\n")
        change(folder / name, deep=[{"auto_map": {"AutoTokenizer": ["code.C", "code.C"], "AutoConfig": "code.C"}}])
        refused(folder, rf"{name}: names code that comes with the model \(auto_map\), and dragon never runs it")
        assert not ran.exists()

    def test_that_transformers_has_itself_is_not_needed(self, folder: Path, tmp_path: Path) -> None:
        """As in the folders of Phi-3 and DeepSeek-V3 that came before Transformers had these classes."""
        ran = tmp_path / "ran"
        (folder / "code.py").write_text(
            f"open({str(ran)!r}, 'w')\nclass LlamaConfig: pass\nclass LlamaForCausalLM: pass\nclass C: pass\n"
        )
        classes = {"AutoConfig": "code.LlamaConfig", "AutoModelForCausalLM": "code.LlamaForCausalLM"}
        change(folder / "config.json", auto_map=classes | {"AutoModel": "code.LlamaModel"})
        change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.C", "code.C"]})
        decoder = Decoder.load(str(folder))
        assert type(decoder._model).__module__.startswith("transformers.")
        assert decoder.fresh_logits([1, 2]).shape == (decoder.vocabulary,)
        assert not ran.exists()

    @pytest.mark.parametrize(
        "changed",
        [
            {"auto_map": {"AutoModelForCausalLM": "code.MyLlamaForCausalLM"}},
            {"auto_map": {"AutoConfig": "code.MyConfig"}},
            {"auto_map": {"AutoModel": "code.BidirectionalEncoder"}},
            {"auto_map": "code.LlamaForCausalLM"},
            {"auto_map": {"AutoModelForCausalLM": "code.C"}, "model_type": "own"},
            {"auto_map": {"AutoModelForCausalLM": "code.C"}, "model_type": ["llama"]},
        ],
    )
    def test_that_is_not_transformers_own(self, folder: Path, changed: dict[str, Any]) -> None:
        change(folder / "config.json", **changed)
        refused(folder, "names code that comes with the model")

    def test_that_makes_a_tokenizer_for_want_of_a_file(self, folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.C", "code.C"]})
        refused(folder, r"tokenizer_config\.json: names code that comes with the model")

    def test_an_empty_map_names_none(self, folder: Path) -> None:
        change(folder / "tokenizer_config.json", auto_map={})
        Decoder.load(str(folder))

    def test_a_kernel_from_elsewhere(self, folder: Path) -> None:
        change(folder / "config.json", attn_implementation="somebody/kernel")
        refused(folder, "names code from elsewhere")

    def test_an_adapter_that_names_its_base_model(self, folder: Path) -> None:
        change(folder / "adapter_config.json", base_model_name_or_path="somebody/else")
        refused(folder, "has an adapter")


class TestFiles:
    @pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
    def test_links_out_of_the_folder(self, folder: Path, tmp_path: Path, name: str) -> None:
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        refused(folder, f"{name}: a link out of the model's folder")

    def test_a_folder_linked_from_elsewhere(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (folder / "part").symlink_to(tmp_path / "elsewhere")
        refused(folder, "part: a link out of the model's folder")

    def test_links_within_it_are_fine(self, folder: Path) -> None:
        (folder / "config.json").rename(folder / "settings")
        (folder / "config.json").symlink_to("settings")
        Decoder.load(str(folder))

    @pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "more.safetensors"])
    def test_a_pipe_that_never_gives_anything(self, folder: Path, name: str) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        refused(folder, f"{name}: not an ordinary file")

    @pytest.mark.parametrize(
        ("name", "most"),
        [
            ("config.json", SETTINGS_BYTES),
            ("chat_template.jinja", SETTINGS_BYTES),
            ("tokenizer.json", TOKENIZER_BYTES),
            ("vocab.json", TOKENIZER_BYTES),
            ("tokenizer.model", TOKENIZER_BYTES),
        ],
    )
    def test_too_long(self, folder: Path, name: str, most: int) -> None:
        with (folder / name).open("ab") as file:
            file.truncate(most + 1)
        refused(folder, f"{name}: has {most + 1} bytes; at most {most} are read")

    def test_nested_too_deep_to_be_parsed(self, folder: Path) -> None:
        (folder / "config.json").write_text("[" * 10**6)
        refused(folder, "config.json: is not JSON that can be read")

    @pytest.mark.parametrize("shard", ["../secret.safetensors", "/tmp/secret.safetensors", "weights.bin"])
    def test_weights_named_beyond_the_folder(self, folder: Path, shard: str) -> None:
        change(folder / "model.safetensors.index.json", weight_map={"model.norm.weight": shard})
        refused(folder, "names weights that are no safetensors file beside it")

    @pytest.mark.parametrize(
        "content",
        [b"", b"weights", (2**60).to_bytes(8, "little") + b"{}", (2**20).to_bytes(8, "little") + b"{}"],
    )
    def test_weights_that_are_none(self, folder: Path, content: bytes) -> None:
        (folder / "model.safetensors").write_bytes(content)
        refused(folder, r"model\.safetensors: is no safetensors file")

    def test_weights_that_are_cut_off(self, folder: Path) -> None:
        with (folder / "model.safetensors").open("rb+") as file:
            file.truncate(file.seek(0, 2) - 1)
        refused(folder, r"model\.safetensors: is cut off")

    def test_weights_that_promise_more_than_they_hold(self, folder: Path) -> None:
        header = json.dumps({"x": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}}).encode()
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"0000")
        refused(folder, r"model\.safetensors: is no safetensors file")


class TestSizes:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("hidden_size", 10**9),
            ("hidden_size", 1e9),
            ("intermediate_size", 10**7),
            ("num_hidden_layers", 10**6),
            ("num_attention_heads", 10**9),
            ("num_labels", 10**9),
            ("vocab_size", 10**9),
            ("head_dim", 10**8),
            ("max_position_embeddings", 10**12),
            ("num_hidden_layers", float("nan")),
            ("num_hidden_layers", float("-inf")),
            ("num_experts", 10**400),
            ("text_config", {"num_hidden_layers": 10**8}),
        ],
    )
    def test_absurd_numbers(self, folder: Path, name: str, value: Any) -> None:
        change(folder / "config.json", **{name: value})
        refused(folder, r"config\.json: \w+ is .*, more than this model's weights can fill or any model has")

    def test_layers_and_experts_that_are_too_many_together(self, folder: Path) -> None:
        change(folder / "config.json", num_hidden_layers=1000, num_local_experts=1000)
        refused(folder, "1000 layers of 1000 experts")

    def test_more_numbers_than_the_files_hold(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file(weights | {"x": torch.zeros(1, 10**5)}, folder / "model.safetensors", {"format": "pt"})
        change(folder / "config.json", hidden_size=10**5, num_attention_heads=4, num_key_value_heads=2)
        refused(folder, r"describes a model of \d{9,} numbers, and its files have \d{6};")

    def test_values_of_another_type(self, folder: Path) -> None:
        values: tuple[Any, ...] = ("many", [], {}, None, -1)
        for value in values:
            change(folder / "config.json", hidden_size=value)
            refused(folder, "the configuration can't be read: .*hidden[_ ]size")

    def test_a_token_with_an_absurd_id(self, folder: Path) -> None:
        described = json.loads((folder / "tokenizer.json").read_text())
        described["model"]["vocab"]["far"] = 2**32 - 1
        (folder / "tokenizer.json").write_text(json.dumps(described))
        with pytest.raises(ModelError, match="a token has the id 4294967295"):
            Tokenizer.load(str(folder))


class TestHub:
    """A model that was downloaded once: its files are links to blobs in the Hub's cache."""

    @pytest.fixture
    def downloaded(self, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
        repository = tmp_path / "hub" / "models--somebody--small"
        taken = repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
        for part in (taken, repository / "blobs", repository / "refs"):
            part.mkdir(parents=True)
        (repository / "refs" / "main").write_text(taken.name)
        for file in sound.iterdir():
            shutil.copy(file, repository / "blobs" / f"blob-{file.name}")
            (taken / file.name).symlink_to(Path("../../blobs") / f"blob-{file.name}")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        return lambda: taken

    def test_is_loaded_and_named_by_its_content(self, downloaded: Callable[[], Path], sound: Path) -> None:
        assert Decoder.load("somebody/small").identity == Decoder.load(str(sound)).identity

    def test_passes_the_same_checks(self, downloaded: Callable[[], Path], tmp_path: Path) -> None:
        change(downloaded() / "config.json", auto_map={"AutoConfig": "code.C"})
        refused("somebody/small", "names code that comes with the model")
        change(downloaded() / "config.json", auto_map=None, num_hidden_layers=10**6)
        refused("somebody/small", "num_hidden_layers is 1000000")
        (tmp_path / "secret.json").write_text("{}")
        (downloaded() / "other.json").symlink_to(tmp_path / "secret.json")
        refused("somebody/small", "other.json: a link out of the model's folder")

    def test_that_is_nowhere(self) -> None:
        refused(
            "nobody/nothing",
            "nobody/nothing: no folder here, and not available from the Hub: it is not completely on",
        )
