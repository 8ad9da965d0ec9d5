"""Embedding models and cross-encoders made to harm: nothing of theirs runs, and nothing is taken from elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5EncoderModel

from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import EmbedderError
from common.scoring.relevance import load_relevance_model
from tests.common.scoring.tiny_encoders import make_bi_encoder, make_cross_encoder
from tests.support.json_files import change

DENSE = "sentence_transformers.models.Dense"
TANH = "torch.nn.modules.activation.Tanh"
WIDTH, OUT = 32, 8


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bi_encoder(tmp_path_factory.mktemp("sound") / "bi")


@pytest.fixture(scope="module")
def sound_cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cross_encoder(tmp_path_factory.mktemp("sound") / "cross")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "model")


@pytest.fixture
def ran(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that appears when code from the folder runs, wherever it is looked for: it can even be imported."""
    marker = tmp_path / "ran"
    code = f"import torch\nopen({str(marker)!r}, 'w')\nclass Evil(torch.nn.Module): pass\n"
    for place in (folder, tmp_path / "importable"):
        place.mkdir(exist_ok=True)
        (place / "evilcode.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path / "importable"))
    return marker


def add_module(folder: Path, kind: str, place: str) -> None:
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    added = {"idx": len(modules), "name": str(len(modules)), "path": place, "type": kind}
    path.write_text(json.dumps([*modules, added]))


def add_dense(folder: Path, **settings: object) -> Path:
    place = folder / "2_Dense"
    place.mkdir()
    known = {"in_features": WIDTH, "out_features": OUT, "bias": True, "activation_function": TANH}
    change(place / "config.json", **(known | settings))
    generator = torch.Generator().manual_seed(3)
    weights = {"linear.weight": torch.rand(OUT, WIDTH, generator=generator) - 0.5, "linear.bias": torch.zeros(OUT)}
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    add_module(folder, DENSE, "2_Dense")
    return place


def remove_vocabulary(folder: Path) -> None:
    for path in [*folder.glob("tokenizer*"), *folder.glob("vocab*")]:
        path.unlink()


def refused(folder: Path, text: str) -> None:
    with pytest.raises(EmbedderError, match=text) as refusal:
        SentenceTransformerEmbedder(str(folder)).encode(["x"])
    assert "\n" not in str(refusal.value)


class TestKnownModules:
    def test_a_projection_and_unit_length(self, folder: Path, sound: Path) -> None:
        plain = SentenceTransformerEmbedder(str(sound)).encode(["horror game"])
        add_dense(folder)
        add_module(folder, "sentence_transformers.models.Normalize", "3_Normalize")
        vectors = SentenceTransformerEmbedder(str(folder)).encode(["horror game"])
        assert (plain.shape, vectors.shape) == ((1, WIDTH), (1, OUT))
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)

    def test_as_earlier_releases_spelled_them(self, folder: Path, sound: Path) -> None:
        kinds = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"]
        places = ["", "1_Pooling"]
        modules = [{"idx": n, "name": str(n), "path": places[n], "type": kind} for n, kind in enumerate(kinds)]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40, "do_lower_case": false}')
        (folder / "config_sentence_transformers.json").write_text('{"__version__": {}}')
        found = [SentenceTransformerEmbedder(str(path)).encode(["horror game"]) for path in (folder, sound)]
        np.testing.assert_allclose(found[0], found[1], atol=1e-6)


class TestCode:
    @pytest.mark.parametrize(
        "kind",
        [
            "evilcode.Evil",
            "sentence_transformers.evilcode.Evil",
            "sentence_transformers.base.modules.Router",
            "sentence_transformers.models.WordEmbeddings",
            "sentence_transformers.models.Transformer.Transformer",
            "torch.nn.Linear",
            "os.system",
            "",
            None,
            ["sentence_transformers.models.Pooling"],
        ],
    )
    def test_a_module_of_another_kind(self, folder: Path, ran: Path, kind: Any) -> None:
        add_module(folder, kind, "")
        refused(folder, r"modules\.json: names the module .*, and modules are code; known are Transformer, Pooling")
        assert not ran.exists()

    @pytest.mark.parametrize("name", ["evilcode.Evil", "torch.hub.load", "torch.nn.modules.activation.Nothing", 5])
    def test_a_function_of_a_projection(self, folder: Path, ran: Path, name: object) -> None:
        add_dense(folder, activation_function=name)
        refused(folder, r"2_Dense/config\.json: names the function .*, which is not a known activation")
        assert not ran.exists()

    def test_code_for_transformers(self, folder: Path, ran: Path) -> None:
        change(folder / "config.json", auto_map={"AutoModel": "evilcode.Evil"})
        refused(folder, r"names code that comes with the model \(auto_map\)")
        assert not ran.exists()

    def test_without_a_vocabulary_every_text_would_be_the_same(self, folder: Path) -> None:
        remove_vocabulary(folder)
        refused(folder, r"no tokenizer \(tokenizer\.json\)")

    def test_weights_that_are_missing_would_be_others_at_every_start(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        weights = load_file(path)
        name = next(name for name in weights if name.endswith("layer.0.output.dense.weight"))
        save_file(weights | {name: weights[name][:3].clone()}, path, {"format": "pt"})
        refused(folder, r"weights of another shape: .*layer\.0\.output\.dense\.weight")
        del weights[name]
        save_file(weights, path, {"format": "pt"})
        refused(folder, r"missing weights: .*layer\.0\.output\.dense\.weight")

    def test_weights_that_no_vector_is_made_with_may_be_missing(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        without = {name: weight for name, weight in load_file(path).items() if not name.startswith("pooler.")}
        save_file(without, path, {"format": "pt"})
        expected = SentenceTransformerEmbedder(str(folder)).encode(["x"])
        assert np.array_equal(SentenceTransformerEmbedder(str(folder)).encode(["x"]), expected)
        described: dict[str, Any] = {
            "vocab_size": 160,
            "d_model": WIDTH,
            "d_kv": 16,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 2,
        }
        T5EncoderModel(T5Config(**described)).save_pretrained(folder)
        assert SentenceTransformerEmbedder(str(folder)).encode(["x"]).shape == (1, WIDTH)

    def test_pickled_weights_of_a_module(self, folder: Path, tmp_path: Path) -> None:
        class Harm:
            def __reduce__(self) -> tuple[Any, ...]:
                return open, (str(tmp_path / "ran"), "w")

        place = add_dense(folder)
        (place / "model.safetensors").unlink()
        torch.save({"linear.weight": Harm()}, place / "pytorch_model.bin")
        refused(folder, r"2_Dense: no safetensors weights \(model\.safetensors\); pickled weights are not read")
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("modality_config", {"text": {"method": "save_pretrained", "method_output_name": None}}),
            ("modality_config", {"image": {"method": "forward", "method_output_name": "last_hidden_state"}}),
            ("tokenizer_name_or_path", "somebody/else"),
            ("model_args", {"attn_implementation": "sdpa"}),
            ("model_kwargs", {"device_map": "auto", "gguf_file": "x"}),
            ("tokenizer_args", {"tokenizer_file": "/etc/passwd"}),
            ("transformer_task", "text-generation"),
            ("backend", "onnx"),
        ],
    )
    def test_settings_that_name_methods_files_or_models(self, folder: Path, name: str, value: object) -> None:
        change(folder / "sentence_bert_config.json", **{name: value})
        refused(folder, f"{name} is set to what may load or run something else")

    def test_a_model_that_would_be_converted(self, folder: Path) -> None:
        change(folder / "config_sentence_transformers.json", model_type="SparseEncoder")
        refused(folder, "describes no model that gives one vector for a text")


class TestPlaces:
    @pytest.mark.parametrize("place", ["../elsewhere", "/etc", "1_Pooling/../../elsewhere", "..", "..\\elsewhere", 5])
    def test_a_module_out_of_the_folder(self, folder: Path, place: Any) -> None:
        add_module(folder, DENSE, place)
        refused(folder, "names a module's folder that is not below the model's own")

    def test_a_linked_module(self, folder: Path, tmp_path: Path) -> None:
        place = add_dense(folder)
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        refused(folder, "2_Dense: a link out of the model's folder")

    def test_a_module_that_is_missing(self, folder: Path) -> None:
        add_module(folder, DENSE, "7_Dense")
        refused(folder, "names the module folder '7_Dense', which is missing")

    @pytest.mark.parametrize("text", ["{}", "[]", "[1]", "5", "[" * 10**6, '[{"type": "x"}]'])
    def test_lists_that_are_none(self, folder: Path, text: str) -> None:
        (folder / "modules.json").write_text(text)
        refused(folder, r"modules\.json")


class TestSizes:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("hidden_size", 10**9),
            ("num_hidden_layers", 10**6),
            ("max_position_embeddings", 10**9),
            ("num_labels", 10**9),
        ],
    )
    def test_of_the_language_model(self, folder: Path, name: str, value: int) -> None:
        change(folder / "config.json", **{name: value})
        refused(folder, f"{name} is {value}, more than this model's weights can fill")

    def test_of_a_projection(self, folder: Path) -> None:
        add_dense(folder, in_features=10**6, out_features=10**6)
        refused(folder, "in_features and out_features differ from the weights beside it")

    def test_of_the_pooling(self, folder: Path) -> None:
        change(folder / "1_Pooling" / "config.json", embedding_dimension=10**12)
        refused(folder, "embedding_dimension is 1000000000000, more than")


class TestCrossEncoder:
    @pytest.fixture
    def cross(self, sound_cross: Path, tmp_path: Path) -> Path:
        return shutil.copytree(sound_cross, tmp_path / "cross")

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            (
                {"auto_map": {"AutoModelForSequenceClassification": "evilcode.Evil"}},
                "names code that comes with the model",
            ),
            ({"sentence_transformers": {"activation_fn": "evilcode.Evil"}}, "names the function 'evilcode.Evil'"),
            ({"hidden_size": 10**9}, "hidden_size is 1000000000"),
            ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000"),
            ({"num_labels": 10**9}, "num_labels is 1000000000"),
        ],
    )
    def test_is_refused(self, cross: Path, ran: Path, changes: dict[str, Any], text: str) -> None:
        change(cross / "config.json", **changes)
        (cross / "evilcode.py").write_text((ran.parent / "importable" / "evilcode.py").read_text())
        with pytest.raises(ValueError, match=f"^scorer_model: .*{text}"):
            load_relevance_model(str(cross), SentenceTransformerEmbedder(), "cpu")
        assert not ran.exists()

    def test_without_a_vocabulary_every_text_would_be_the_same(self, cross: Path) -> None:
        remove_vocabulary(cross)
        with pytest.raises(ValueError, match=r"^scorer_model: .*no tokenizer"):
            load_relevance_model(str(cross), SentenceTransformerEmbedder(), "cpu")

    def test_a_known_function_is_fine(self, cross: Path) -> None:
        change(cross / "config.json", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
        load_relevance_model(str(cross), SentenceTransformerEmbedder(), "cpu")
