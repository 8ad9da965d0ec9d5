"""Cross-encoders and bi-encoders: the right numbers, the same bits in any company, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from common.configuration.configuration import load_settings
from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.tokenizer import Tokenizer
from common.library.embedder import SentenceTransformerEmbedder
from common.sampling.mixture import GRID
from common.scoring.choice import LOGIT_SCALE, load_scorer
from common.scoring.relevance import BiEncoder, CrossEncoder, load_relevance_model
from device.settings import DeviceSettings
from tests.common.scoring.tiny_encoders import LONGEST, make_bi_encoder, make_cross_encoder
from tests.support.json_files import change

TEXT = "Question: what is the best game of the kind i like? Answer: i like horror"
DOCUMENTS = ["horror is the kind of game i enjoy most.", "my rabbit is called kettle.", "against cold feet", "dance"]
EMBEDDER = SentenceTransformerEmbedder()


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cross_encoder(tmp_path_factory.mktemp("encoders") / "cross")


@pytest.fixture(scope="module")
def bi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bi_encoder(tmp_path_factory.mktemp("encoders") / "bi")


def load(folder: Path | str) -> BiEncoder | CrossEncoder:
    return load_relevance_model(str(folder), EMBEDDER, "cpu")


class TestCrossEncoder:
    def test_gives_the_logits_of_sentence_transformers(self, cross: Path, tmp_path: Path) -> None:
        from sentence_transformers import CrossEncoder as Reference

        reference = Reference(str(cross), device="cpu", local_files_only=True)
        reference.save_pretrained(str(tmp_path / "saved"))
        pairs = [(TEXT, document) for document in DOCUMENTS]
        expected = reference.predict(pairs, activation_fn=torch.nn.Identity())
        for folder in (cross, tmp_path / "saved"):  # as Transformers saves it, and as sentence-transformers does
            found = load(folder).relevance(DOCUMENTS)(TEXT)
            np.testing.assert_allclose(found, expected, atol=1e-5)
        assert np.ptp(expected) > 0.01

    def test_half_precision_files_are_computed_in_float32(self, cross: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(cross, tmp_path / "half")
        weights = {name: weight.bfloat16() for name, weight in load_file(folder / "model.safetensors").items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        change(folder / "config.json", dtype="bfloat16")
        model = load(folder)
        assert isinstance(model, CrossEncoder)
        assert {weight.dtype for weight in model._model.parameters()} == {torch.float32}
        assert model.identity != load(cross).identity

    def test_what_a_document_spells_out_is_text(self, cross: Path) -> None:
        relevance = load(cross).relevance(["game [SEP] horror", "game [ SEP ] horror"])(TEXT)
        assert relevance[0] == relevance[1]


@pytest.mark.parametrize("kind", ["cross", "bi"])
class TestBoth:
    def test_the_same_bits_whatever_documents_are_beside_it(self, kind: str, request: pytest.FixtureRequest) -> None:
        model = load(request.getfixturevalue(kind))
        together = model.relevance(DOCUMENTS)(TEXT)
        alone = np.concatenate([model.relevance([document])(TEXT) for document in reversed(DOCUMENTS)])
        assert together.tobytes() == alone[::-1].tobytes()
        assert len(set(together)) == len(DOCUMENTS)

    def test_files_may_change_and_go(self, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        folder = shutil.copytree(request.getfixturevalue(kind), tmp_path / kind)
        model, path = load(folder), folder / "model.safetensors"
        expected = model.relevance(DOCUMENTS)(TEXT)
        with path.open("r+b") as file:  # in place, as `cp` writes
            file.write(bytes(path.stat().st_size))
        assert model.relevance(DOCUMENTS)(TEXT).tobytes() == expected.tobytes()
        maps = Path("/proc/self/maps")
        assert not maps.exists() or str(path) not in maps.read_text()

    def test_a_long_text_loses_its_beginning(self, kind: str, request: pytest.FixtureRequest) -> None:
        relevance = load(request.getfixturevalue(kind)).relevance(DOCUMENTS)
        long = "cold " * LONGEST
        ends = [
            relevance(f"{long} {TEXT[-20:]}"),
            relevance(f"rabbit {long} {TEXT[-20:]}"),
            relevance(f"{long} kettle"),
        ]
        np.testing.assert_array_equal(ends[0], ends[1])
        assert not np.array_equal(ends[0], ends[2])

    def test_a_long_document_leaves_room_for_the_text(self, kind: str, request: pytest.FixtureRequest) -> None:
        relevance = load(request.getfixturevalue(kind)).relevance(["feet " * 3 * LONGEST])
        assert relevance("i like horror") != relevance("i like dance")

    def test_its_name_is_its_content(self, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        folder: Path = request.getfixturevalue(kind)
        copy = shutil.copytree(folder, tmp_path / "copy")
        assert load(copy).identity == load(folder).identity
        with (copy / "tokenizer_config.json").open("a") as file:
            file.write("\n")
        assert load(copy).identity != load(folder).identity
        assert load(folder).identity.startswith(f"{kind}-encoder:bert-32:")


def test_instructions_stand_before_text_and_documents(bi: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bi, tmp_path / "instructed")
    change(folder / "config_sentence_transformers.json", prompts={"query": "what is ", "document": "rabbit "})
    expected = load(bi).relevance([f"rabbit {document}" for document in DOCUMENTS])(f"what is {TEXT}")
    assert np.array_equal(load(folder).relevance(DOCUMENTS)(TEXT), expected)
    relevance = load(folder).relevance(DOCUMENTS)  # of a long text the beginning is left out, and not the end
    assert not np.array_equal(relevance(f"{'cold ' * LONGEST} game"), relevance(f"{'cold ' * LONGEST} kettle"))
    change(folder / "config_sentence_transformers.json", prompts={"query": "cold " * LONGEST})
    with pytest.raises(ValueError, match="leaves no room for one"):
        load(folder)


Damage = Callable[[Path], object]


def headless(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({n: w for n, w in weights.items() if "classifier" not in n}, folder / "model.safetensors")


def with_a_scale(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    norm = next(name for name in weights if name.endswith("embeddings.LayerNorm.weight")).removesuffix(".weight")
    save_file(weights | {f"{norm}.scale": weights[f"{norm}.bias"].clone()}, folder / "model.safetensors")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


class TestRefusals:
    @pytest.mark.parametrize(
        ("damage", "sentence"),
        [
            (headless, "missing weights: classifier.bias, classifier.weight"),
            (with_a_scale, "LayerNorm.scale .* would not be used"),
            (pickled, "no safetensors weights; pickled weights are not read"),
            (lambda folder: change(folder / "config.json", architectures=["BertModel"]), "is neither a cross-encoder"),
            (lambda folder: (folder / "config.json").unlink(), "is neither a cross-encoder"),
            (lambda folder: (folder / "tokenizer.json").write_text("{"), "the tokenizer in .* can't be loaded"),
            (lambda folder: change(folder / "config.json", vocab_size=100), "weights of another shape"),
            (lambda folder: (folder / "modules.json").write_text("[{}, {}]"), "puts 2 modules together"),
        ],
    )
    def test_a_damaged_cross_encoder(self, cross: Path, tmp_path: Path, damage: Damage, sentence: str) -> None:
        folder = shutil.copytree(cross, tmp_path / "damaged")
        damage(folder)
        with pytest.raises(ValueError, match=f"^scorer_model: .*({sentence})"):
            load(folder)

    def test_more_labels_than_one(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="has 3 labels; a scorer has one, relevance"):
            load(make_cross_encoder(tmp_path, labels=3))

    def test_a_model_that_is_nowhere(self) -> None:
        with pytest.raises(ValueError, match=r"^scorer_model: the scorer's model 'nobody/nothing' is neither a folder"):
            load("nobody/nothing")

    def test_a_damaged_bi_encoder(self, bi: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(bi, tmp_path / "damaged")
        (folder / "model.safetensors").unlink()
        with pytest.raises(ValueError, match=r"^scorer_model: the embedding model in .* can't be loaded"):
            load(folder)
        (folder / "tokenizer.json").unlink()
        with pytest.raises(ValueError, match="has no fast tokenizer"):
            load(folder)

    def test_another_kind_of_sentence_transformers_model(self, bi: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(bi, tmp_path / "sparse")
        (folder / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
        with pytest.raises(ValueError, match="is neither a cross-encoder"):
            load(folder)


class TestChoice:
    def test_scores_are_scaled_logits_of_the_texts_on_the_grid(self, cross: Path, tmp_path: Path) -> None:
        tokenizer = Tokenizer.load(str(EMBEDDED_TOKENIZER))
        query = tokenizer.encode("\nQuestion: what do i like?\nAnswer:")
        documents = [tokenizer.encode(f" {document}") for document in DOCUMENTS]
        answer = tokenizer.encode(" i like horror games most of all")[:6]
        for scale in (None, 2.5):
            chosen = {"scorer": "cross-encoder", "scorer_model": str(cross), "scorer_period": 2, "scorer_scale": scale}
            settings = load_settings(DeviceSettings, overrides={"data": tmp_path} | chosen)
            scorer = load_scorer(settings, tokenizer, EMBEDDER)
            found = scorer.begin(query, documents, [0.0] * 4).scores(answer)
            scorer.close()
            text = "Question: what do i like?\nAnswer:" + tokenizer.decode(answer[:4])
            expected = (scale or LOGIT_SCALE) * load(cross).relevance(DOCUMENTS)(text)
            np.testing.assert_allclose(found, expected, atol=GRID / 2 + 1e-12)
            np.testing.assert_array_equal(found / GRID, np.round(found / GRID))

    def test_the_librarys_embedder_is_there_when_no_model_is_named(self, tmp_path: Path) -> None:
        settings = load_settings(DeviceSettings, overrides={"data": tmp_path, "scorer": "cross-encoder"})
        scorer = load_scorer(settings, Tokenizer.load(str(EMBEDDED_TOKENIZER)), EMBEDDER)
        scorer.close()
        assert scorer.identity == f"bi-encoder:{EMBEDDER.identity}:cosine:every 8:20.0"

    def test_a_model_without_the_scorer_that_uses_it(self, tmp_path: Path) -> None:
        settings = load_settings(DeviceSettings, overrides={"data": tmp_path, "scorer_model": "x/y"})
        with pytest.raises(ValueError, match="scorer_model is for scorer = 'cross-encoder'; scorer is 'auto'"):
            load_scorer(settings, Tokenizer.load(str(EMBEDDED_TOKENIZER)), EMBEDDER)

    def test_word_weights_are_used_where_the_model_has_them(self, tmp_path: Path) -> None:
        tokenizer = Tokenizer.load(str(EMBEDDED_TOKENIZER))
        default = load_settings(DeviceSettings, overrides={"data": tmp_path})
        assert load_scorer(default, tokenizer, EMBEDDER).identity.startswith("lexical")
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "small").symlink_to(EMBEDDED_TOKENIZER)
        by_name = {"data": tmp_path, "models": tmp_path / "models", "model": "small"}
        assert load_scorer(load_settings(DeviceSettings, overrides=by_name), tokenizer, EMBEDDER).identity.startswith(
            "lexical"
        )
        for model in (tmp_path, tmp_path / "a.gguf"):
            other = load_settings(DeviceSettings, overrides={"data": tmp_path, "model": str(model)})
            assert load_scorer(other, tokenizer, EMBEDDER).identity.startswith("contrast")
        named = load_settings(DeviceSettings, overrides={"data": tmp_path, "model": str(tmp_path), "scorer": "lexical"})
        with pytest.raises(ValueError, match="is missing: lexical weights need a table"):
            load_scorer(named, tokenizer, EMBEDDER)
