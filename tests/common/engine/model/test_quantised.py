"""Matrices of four and eight bits: what their codes stand for, their products, and the models that have them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from common.engine.model import loading
from common.engine.model import quantised as module
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.gguf import WEIGHTS, damaged_files, imported, source_of
from common.engine.model.gguf_conversion import convert
from common.engine.model.packed import Feed
from common.engine.model.quantised import (
    GROUP,
    GroupCodes,
    WeightsName,
    damage_of,
    has_kernel,
    laid_out,
    nearest_codes,
    put,
    stored_codes,
)
from common.engine.streaming import Streaming
from common.process.machine import Memory
from scripts.gguf_blocks import quantised
from tests.common.engine.model.gguf_file import WIDTH, write_gguf
from tests.common.engine.model.tiny_models import make_model, some_tokens

KINDS = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")
BITS = {kind: 4 if kind.startswith("Q4") else 8 for kind in KINDS}
PLAIN = ("F32", "F16", "BF16")
LARGE = 256  # numbers of a block of the types with K

with_kernel = pytest.mark.skipif(not has_kernel(), reason="this processor has no kernel for codes of four bits")


def numbers(rows: int, size: int, seed: int = 7) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, size)).astype(np.float32)


def stored(kind: str, rows: int, size: int) -> tuple[GroupCodes, NDArray[np.float32]]:
    """The codes of a random matrix, and what the `gguf` package makes of the same bytes."""
    content = quantised(numbers(rows, size), kind)
    codes = stored_codes(kind, content)
    assert codes is not None
    return codes, gguf.dequantize(content, gguf.GGMLQuantizationType[kind])


class TestCodes:
    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Q6_K"])
    def test_stand_for_what_the_file_does(self, kind: str) -> None:
        codes, expected = stored(kind, 5, 2 * LARGE)
        assert codes.bits == BITS[kind]
        np.testing.assert_allclose(codes.numbers(), expected, rtol=0, atol=1e-6 * np.abs(expected).max())

    def test_any_bytes_are_read_as_the_package_reads_them(self) -> None:
        """Also those that no quantiser writes."""
        random = np.random.default_rng(3)
        for kind in KINDS:
            size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
            blocks = random.integers(0, 256, (3, 4, size[1]), np.uint8)
            halves = (208,) if kind == "Q6_K" else (0, 2) if kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else (0,)
            for place in halves:
                blocks[..., place : place + 2] = random.random((3, 4, 1)).astype(np.float16).view(np.uint8)
            content = blocks.reshape(3, -1)
            expected = gguf.dequantize(content, gguf.GGMLQuantizationType[kind])
            codes = stored_codes(kind, content)
            assert codes is not None
            atol = (5e-3 if kind == "Q6_K" else 1e-6) * np.abs(expected).max()
            np.testing.assert_allclose(codes.numbers(), expected, rtol=0, atol=atol)

    def test_sixes_are_rounded_by_less_than_a_tenth_of_their_error(self) -> None:
        matrix = numbers(32, 4 * LARGE)
        content = quantised(matrix, "Q6_K")
        codes = stored_codes("Q6_K", content)
        assert codes is not None
        inside = gguf.dequantize(content, gguf.GGMLQuantizationType.Q6_K)
        assert ((codes.numbers() - inside) ** 2).mean() < 0.1 * ((inside - matrix) ** 2).mean()

    def test_sixes_that_would_be_rounded_by_more_are_none(self) -> None:
        """Every second group of 16 reaches far to both sides."""
        matrix = numbers(8, LARGE)
        matrix[:, ::GROUP], matrix[:, 1::GROUP] = 1000, -1000
        assert stored_codes("Q6_K", quantised(matrix, "Q6_K")) is None

    @pytest.mark.parametrize("bits", [4, 8])
    def test_rounding_is_to_the_nearest(self, bits: Any) -> None:
        """In steps that are hardly larger than they must be."""
        matrix = numbers(60, 3 * GROUP)
        groups = matrix.reshape(60, 3, GROUP)
        step = (groups.max(-1) - groups.min(-1)) / (2**bits - 1)
        wrong = np.abs(nearest_codes(matrix, bits).numbers() - matrix).reshape(groups.shape).max(-1)
        assert (wrong <= 0.505 * step).all()

    @pytest.mark.parametrize("bits", [4, 8])
    def test_equal_numbers_stay(self, bits: Any) -> None:
        matrix = np.repeat(np.array([[0.0], [0.5]], np.float32), GROUP, 1)
        np.testing.assert_allclose(nearest_codes(matrix, bits).numbers(), matrix, atol=1e-7)

    def test_a_scale_that_is_no_number_is_found(self) -> None:
        content = quantised(numbers(5, 2 * GROUP), "Q4_1")
        content[3, 20:22] = np.array([np.nan], np.float16).view(np.uint8)
        codes = stored_codes("Q4_1", content)
        assert codes is not None and damage_of(codes) == 3
        whole = stored_codes("Q4_1", quantised(numbers(5, 2 * GROUP), "Q4_1"))
        assert whole is not None and damage_of(whole) is None


@with_kernel
class TestMatrix:
    @pytest.mark.parametrize("rows", [1, 64, 100])
    @pytest.mark.parametrize("kind", KINDS)
    def test_multiplies_as_its_numbers(self, kind: str, rows: int) -> None:
        codes, expected = stored(kind, rows, LARGE)
        inputs = torch.from_numpy(numbers(9, LARGE, seed=2)).bfloat16()
        product = laid_out(codes).multiply(inputs)
        assert product.dtype == torch.bfloat16 and product.shape == (9, rows)
        exact = inputs.double() @ torch.from_numpy(expected).double().T
        assert float((product.double() - exact).abs().max()) < 8e-3 * float(exact.abs().max())

    @pytest.mark.parametrize("rows", [64, 100])
    @pytest.mark.parametrize("kind", KINDS)
    def test_gives_its_own_rows(self, kind: str, rows: int) -> None:
        codes, expected = stored(kind, rows, LARGE)
        ids = torch.tensor([[0, rows - 1, 63], [5, 5, 17]])
        taken = laid_out(codes).rows(ids)
        assert taken.shape == (2, 3, LARGE)
        wanted = torch.from_numpy(expected)[ids]
        assert float((taken.float() - wanted).abs().max()) < 6e-3 * float(wanted.abs().max())

    @pytest.mark.parametrize("bits", [4, 8])
    def test_a_row_has_the_same_bits_among_any_number_of_others(self, bits: Any) -> None:
        matrix = laid_out(nearest_codes(numbers(160, 96), bits))
        inputs = torch.from_numpy(numbers(70, 96, seed=5)).bfloat16()
        alone = torch.cat([matrix.multiply(row[None]) for row in inputs])
        for count in (2, 3, 4, 5, 8, 31, 64, 70):
            together = torch.cat([matrix.multiply(part) for part in inputs.split(count)])
            assert torch.equal(together, alone)

    def test_a_large_one_is_laid_out_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        codes = nearest_codes(numbers(300, 64), 8)
        whole = laid_out(codes)
        monkeypatch.setattr(module, "_AT_ONCE", 1)
        assert torch.equal(laid_out(codes).codes, whole.codes)

    def test_is_shared_by_its_users(self) -> None:
        embedding, head = nn.Embedding(64, GROUP, dtype=torch.bfloat16), nn.Linear(GROUP, 64, dtype=torch.bfloat16)
        matrix = nearest_codes(numbers(64, GROUP), 8)
        put(laid_out(matrix), [embedding, head])
        assert embedding.weight is head.weight and head.weight.is_meta and head.weight.shape == (64, GROUP)
        assert embedding._buffers["codes"] is head._buffers["codes"]
        token = embedding(torch.tensor([[3]]))
        exact = token.float() @ torch.from_numpy(matrix.numbers()).T + head.bias.float()
        assert torch.allclose(head(token).float(), exact, rtol=2e-2, atol=2e-2)


def file_of(kind: str, folder: Path, **others: Any) -> Path:
    """A model whose matrices are of one type."""
    large = kind.endswith("_K")
    sizes = {"width": LARGE, "inner": LARGE} if large else {"width": 2 * WIDTH, "inner": 4 * GROUP}
    write_gguf(folder / f"{kind}.gguf", kind=kind, **(sizes | others))
    return folder / f"{kind}.gguf"


def logits_of(decoder: Decoder, tokens: Sequence[int]) -> torch.Tensor:
    rows = decoder.memory.take(1, len(tokens))
    try:
        return decoder.forward([Feed(rows, tokens, len(tokens))])
    finally:
        decoder.memory.give_back(rows)


@with_kernel
@pytest.mark.parametrize(("kind", "architecture"), [(kind, "llama") for kind in (*KINDS, *PLAIN)] + [("Q4_1", "qwen2")])
def test_a_file_of_every_type_runs_as_it_is(kind: str, architecture: str, tmp_path: Path) -> None:
    """Exact, and nearly what its numbers give in float32. Biases are plain numbers beside codes."""
    folder = tmp_path / "made"
    convert(file_of(kind, tmp_path, architecture=architecture), folder)
    assert not list(folder.glob("*.safetensors"))
    decoder = Decoder.load(str(folder), torch_device="cpu", dtype="bfloat16" if kind in PLAIN else "auto")
    plain = Decoder.load(str(folder), torch_device="cpu", dtype="float32")
    try:
        assert decoder.exactness == "bit-exact"
        assert decoder.weights == ("bfloat16" if kind in PLAIN else f"int{BITS[kind]}")
        assert plain.weights == "float32" and plain.parameters == decoder.parameters
        assert plain.identity != decoder.identity
        tokens = some_tokens(decoder, 40, seed=3)
        expected, computed = logits_of(plain, tokens), logits_of(decoder, tokens)
        assert float((computed - expected).abs().max()) < 0.05 * float(expected.abs().max())
    finally:
        decoder.close()
        plain.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return file_of("Q4_1", tmp_path_factory.mktemp("downloads"))


@pytest.fixture(scope="module")
def folder(file: Path) -> Path:
    convert(file, file.parent / "made")
    return file.parent / "made"


@with_kernel
class TestFile:
    def test_nothing_of_it_is_kept_mapped(self, file: Path, folder: Path, tmp_path: Path) -> None:
        """Zeros that are written over the file change no number."""
        own = tmp_path / file.name
        shutil.copy(file, own)
        convert(own, tmp_path / "made")
        decoder = Decoder.load(str(tmp_path / "made"), torch_device="cpu")
        tokens = some_tokens(decoder, 20, seed=1)
        before = logits_of(decoder, tokens)
        own.write_bytes(bytes(own.stat().st_size))
        assert torch.equal(logits_of(decoder, tokens), before)
        decoder.close()

    def test_its_identity_is_of_its_numbers(self, folder: Path, tmp_path: Path) -> None:
        changed = {"blk.1.ffn_up.weight": 0.2 * numbers(4 * GROUP, 2 * WIDTH)}
        found = [loading.load_model(str(folder), None, "cpu", "auto").identity()]
        for name, others in (("same", {}), ("other", changed)):
            (tmp_path / name).mkdir()
            convert(file_of("Q4_1", tmp_path / name, changed=others), tmp_path / name / "made")
            found.append(loading.load_model(str(tmp_path / name / "made"), None, "cpu", "auto").identity())
        assert found[0] == found[1] != found[2]

    def test_a_file_that_is_moved_or_changed_is_noticed(self, file: Path, tmp_path: Path) -> None:
        models = tmp_path / "models"
        first, second = tmp_path / "first.gguf", tmp_path / "elsewhere" / "first.gguf"
        shutil.copy(file, first)
        folder = imported(first, models)
        second.parent.mkdir()
        first.rename(second)
        with pytest.raises(ModelError, match="put the file back, or give its new path"):
            Decoder.load(str(folder), torch_device="cpu")
        assert imported(second, models) == folder
        source = source_of(folder)
        assert source is not None and source.path == second
        assert damaged_files(folder) == []
        content = bytearray(second.read_bytes())
        content[-1] ^= 1
        second.write_bytes(content)
        assert damaged_files(folder) == [str(second)]
        second.write_bytes(content[:-1])
        with pytest.raises(ModelError, match="has changed since it was imported"):
            Decoder.load(str(folder), torch_device="cpu")

    def test_a_damaged_block_is_named(self, file: Path, tmp_path: Path) -> None:
        own = tmp_path / file.name
        shutil.copy(file, own)
        convert(own, tmp_path / "made")
        source = source_of(tmp_path / "made")
        assert source is not None
        tensor = source.tensors["model.layers.1.mlp.down_proj.weight"]
        content = bytearray(own.read_bytes())
        row = (tensor.last - tensor.first) // tensor.shape[0]
        content[tensor.first + 5 * row : tensor.first + 5 * row + 2] = np.array([np.inf], np.float16).tobytes()
        own.write_bytes(content)
        with pytest.raises(ModelError, match=r"blk\.1\.ffn_down\.weight is damaged in row 5; get the file again"):
            Decoder.load(str(tmp_path / "made"), torch_device="cpu")

    def test_places_outside_of_the_file_are_refused(self, folder: Path, tmp_path: Path) -> None:
        copy = tmp_path / folder.name
        shutil.copytree(folder, copy)
        stated = json.loads((copy / WEIGHTS).read_text())
        next(iter(stated["tensors"].values()))[4] = stated["size"] + 1
        (copy / WEIGHTS).write_text(json.dumps(stated))
        with pytest.raises(ModelError, match=r"is damaged; name the \.gguf file"):
            Decoder.load(str(copy), torch_device="cpu")

    def test_without_a_kernel_its_numbers_are_plain(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loading, "has_kernel", lambda: False)
        decoder = Decoder.load(str(folder), torch_device="cpu", dtype="bfloat16")
        assert (decoder.weights, decoder.exactness) == ("bfloat16", "bit-exact")
        decoder.close()

    def test_codes_are_not_streamed(self, folder: Path) -> None:
        with pytest.raises(ModelError, match="only plain weights are streamed"):
            Decoder.load(str(folder), torch_device="cpu", kv_bytes=2**20, streaming=Streaming(2**30))


def test_a_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", changed={"blk.0.attn_q.weight": np.zeros((WIDTH, WIDTH), np.int32)})
    said = r"x\.gguf: blk\.0\.attn_q\.weight is of type I32, which dragon does not read; get the model as Q4_K_M"
    with pytest.raises(ValueError, match=said):
        convert(tmp_path / "x.gguf", tmp_path / "made")


def test_more_than_fits_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model("llama", tmp_path)
    monkeypatch.setattr(loading, "memory", lambda: Memory(2**30, 1000))
    with pytest.raises(ModelError, match=r"its weights take about 0\.0 GiB of memory, and 0\.0 GiB are free"):
        Decoder.load(str(folder), torch_device="cpu")


@with_kernel
class TestRoundedAtLoading:
    @pytest.mark.parametrize("weights", ["int8", "int4"])
    @pytest.mark.parametrize("family", ["llama", "opt", "gemma2"])
    def test_is_exact(self, family: str, weights: WeightsName, tmp_path: Path) -> None:
        """Inner layers whose sizes are no whole groups stay as they are, and so do Gemma's embeddings."""
        decoder = Decoder.load(str(make_model(family, tmp_path)), torch_device="cpu", weights=weights)
        assert decoder.exactness == "bit-exact"
        assert weights in decoder.weights
        decoder.close()

    def test_each_is_another_model(self, tmp_path: Path) -> None:
        folder = str(make_model("llama", tmp_path))
        made = {
            weights: Decoder.load(folder, torch_device="cpu", dtype="bfloat16", weights=weights)
            for weights in ("stored", "int8", "int4")
        }
        assert len({decoder.identity for decoder in made.values()}) == 3
        assert len({decoder.parameters for decoder in made.values()}) == 1
        tokens = some_tokens(made["stored"], 40, seed=2)
        expected = logits_of(made["stored"], tokens)
        wrong = {name: float((logits_of(each, tokens) - expected).norm()) for name, each in made.items()}
        assert 0 == wrong["stored"] < wrong["int8"] < wrong["int4"] < float(expected.norm())

    def test_float32_stays_plain(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        decoder = Decoder.load(str(make_model("llama", tmp_path)), torch_device="cpu", dtype="float32", weights="int4")
        assert decoder.weights == "float32"
        assert "weights = int4" in caplog.text

    def test_stored_documents_are_of_the_codes(self, tmp_path: Path) -> None:
        """The name of a model's numbers covers what the kernel reads."""
        from common.engine.model.decoder import numbers_source

        loaded = loading.load_model(str(make_model("llama", tmp_path)), None, "cpu", "bfloat16", weights="int4")
        before = numbers_source(loaded.model, "x")
        assert before == numbers_source(loaded.model, "x")
        layer: Any = loaded.layers[1]
        with torch.inference_mode():
            layer.self_attn.q_proj._buffers["codes"][0, 0] ^= 1
        assert numbers_source(loaded.model, "x") != before
