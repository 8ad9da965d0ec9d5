"""Quicker layers of the embedding model: the same directions as PyTorch's own, or none of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from common.engine.model.loading import DtypeName
from common.library import embedder as embedder_module
from common.library import packing
from common.library.embedder import SentenceTransformerEmbedder
from common.library.packing import PackedLinear, pack_layers
from tests.common.scoring.tiny_encoders import make_bi_encoder

TEXTS = [
    "The lock of the bicycle opens with the year in which the house was built.",
    "Guido van Rossum wrote the proposal about type hints.",
    "def area(radius: float) -> float:\n    return 3.14159 * radius**2",
    "short",
]
QUICK = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
needs_avx512 = pytest.mark.skipif(not QUICK, reason="layers are packed on CPUs with AVX-512")


def plain_vectors(texts: list[str]) -> NDArray[np.float32]:
    model = SentenceTransformer(str(SentenceTransformerEmbedder().folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(texts, batch_size=1, normalize_embeddings=True, show_progress_bar=False))


@needs_avx512
@pytest.mark.parametrize(("dtype", "least"), [("float32", 1 - 1e-6), ("bfloat16", 0.9999)])
def test_vectors_have_the_directions_of_pytorchs(dtype: DtypeName, least: float) -> None:
    made = SentenceTransformerEmbedder(dtype=dtype)
    vectors = made.encode(TEXTS)
    assert np.all(np.sum(vectors * plain_vectors(TEXTS), axis=1) > least)
    assert any(isinstance(layer, PackedLinear) for layer in made._model().modules())
    backwards = made.encode(TEXTS[::-1])[::-1]
    assert backwards.tobytes() == vectors.tobytes()


def test_number_types_are_one_model(embedder: SentenceTransformerEmbedder) -> None:
    assert SentenceTransformerEmbedder(dtype="float32").identity == embedder.identity


@needs_avx512
def test_a_layer_is_the_layer_that_it_replaces() -> None:
    torch.manual_seed(1)
    linear, inputs = nn.Linear(48, 96, bias=False), torch.randn(3, 7, 48)
    with torch.inference_mode():
        expected = linear(inputs)
        packed = PackedLinear(linear, torch.float32)(inputs)
        torch.testing.assert_close(packed, expected, atol=1e-5, rtol=1e-5)
        followed = PackedLinear(linear, torch.float32, gelu=True)(inputs)
        torch.testing.assert_close(followed, nn.functional.gelu(expected), atol=1e-5, rtol=1e-5)


@needs_avx512
def test_an_approximate_gelu_is_not_taken_for_the_exact_one() -> None:
    class Block(nn.Module):
        def __init__(self, activation: nn.Module) -> None:
            super().__init__()
            self.dense = nn.Linear(4, 4)
            self.intermediate_act_fn = activation

    exact, other = Block(nn.GELU()), Block(nn.GELU("tanh"))
    for block in (exact, other):
        packing._replace(nn.Sequential(block), torch.float32)
    assert isinstance(exact.intermediate_act_fn, nn.Identity)
    assert isinstance(other.intermediate_act_fn, nn.GELU)
    assert isinstance(other.dense, PackedLinear)


class TestModelsOfOtherKinds:
    """A replacement that breaks a model is noticed when that is loaded, and undone."""

    @pytest.mark.parametrize("harm", ["wrong numbers", "an error"])
    def test_the_model_stays_as_it_was(
        self, harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = make_bi_encoder(tmp_path / "bi")
        expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=1, normalize_embeddings=True)

        def forward(layer: PackedLinear, inputs: Tensor) -> Tensor:
            if harm == "an error":
                raise NotImplementedError("no such operator here")
            return torch.ones(*inputs.shape[:-1], layer._weight.shape[0])

        monkeypatch.setattr(PackedLinear, "forward", forward)
        monkeypatch.setattr(embedder_module, "_QUICK_CPUS", torch.backends.cpu.get_cpu_capability())
        vectors = SentenceTransformerEmbedder(str(folder)).encode(TEXTS)
        np.testing.assert_array_equal(vectors, expected)
        assert "can't be made quicker" in caplog.text

    def test_a_sound_one_is_packed(self, tmp_path: Path) -> None:
        model = SentenceTransformer(str(make_bi_encoder(tmp_path / "bi")), device="cpu")
        assert not QUICK or pack_layers(model[0], torch.float32, lambda texts: embedder_module._encode(model, texts))
