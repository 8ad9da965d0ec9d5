"""A model whose layers come from disk in every pass computes the same bits as one that stays in memory."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from common.engine import streaming
from common.engine.kv.documents import StoreOptions
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError, Preempted
from common.engine.model.packed import Feed, PackedPass
from common.engine.streaming import Streaming, WeightStore
from tests.common.engine.inflated import inflate
from tests.common.engine.model.streamed_models import (
    KV,
    LAYERS,
    TOKENIZER,
    answer,
    budget,
    load,
    same,
    smallest_budget,
    streamed_of,
)
from tests.common.engine.model.test_interruption import AfterPolls
from tests.common.engine.model.tiny_models import DEMO, make_model

FAMILIES = ("llama", "qwen2", "opt", "gpt2", "mistral", "gemma2", "gemma4", "gpt-oss", "phi3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inflate(DEMO / "target", tmp_path_factory.mktemp("inflated"), LAYERS)


@pytest.fixture(scope="module")
def resident(folder: Path) -> Decoder:
    return Decoder.load(str(folder), tokenizer=TOKENIZER)


@pytest.fixture
def opened(folder: Path, resident: Decoder) -> Iterator[Callable[..., Decoder]]:
    """Loads the inflated model with some resident layers."""
    made: list[Decoder] = []

    def open_with(layers: int, **options: Any) -> Decoder:
        made.append(load(folder, budget(folder, layers), **options))
        return made[-1]

    yield open_with
    for decoder in made:
        decoder.close()


class TestSameBits:
    @pytest.mark.parametrize(("layers", "read_ahead"), [(0, True), (0, False), (1, True), (7, True)])
    def test_with_any_layers_resident(
        self, layers: int, read_ahead: bool, resident: Decoder, opened: Callable[..., Decoder]
    ) -> None:
        decoder = opened(layers, read_ahead=read_ahead)
        assert streamed_of(decoder).first == layers
        for _ in range(2):
            same(decoder, resident)
        assert decoder.identity == resident.identity
        assert (decoder.eos, decoder.max_context, decoder.dtype, decoder.parameters) == (
            resident.eos,
            resident.max_context,
            resident.dtype,
            resident.parameters,
        )
        assert torch.equal(decoder.fresh_logits([5, 6, 7]), resident.fresh_logits([5, 6, 7]))

    @pytest.mark.parametrize(("layers", "checks"), [(0, 16), (1, 8), (2, 0)])
    def test_loading_takes_one_pass(self, layers: int, checks: int, opened: Callable[..., Decoder]) -> None:
        """And some of the first two layers, if they are not resident."""
        decoder = opened(layers, read_ahead=False)
        assert streamed_of(decoder).counters.layers == LAYERS - layers + checks

    def test_a_budget_for_all_of_it_streams_nothing(
        self, resident: Decoder, folder: Path, opened: Callable[..., Decoder]
    ) -> None:
        decoder = opened(LAYERS)
        assert decoder.streamed is None
        same(decoder, resident)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_kind_of_model(self, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = make_model(family, tmp_path)
        whole = Decoder.load(str(folder))
        monkeypatch.setattr(streaming, "CHUNK_BYTES", streaming.BLOCK_BYTES)  # one is more than these models have
        part = load(folder, smallest_budget(folder))
        assert streamed_of(part).first == 0
        same(part, whole)
        assert (part.identity, part.eos) == (whole.identity, whole.eos)
        part.close()

    def test_files_of_a_base_model(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = make_model("gpt2", tmp_path)
        weights = load_file(folder / "model.safetensors")
        bare = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
        save_file(bare, folder / "model.safetensors", {"format": "pt"})
        whole = Decoder.load(str(folder))
        monkeypatch.setattr(streaming, "CHUNK_BYTES", streaming.BLOCK_BYTES)
        part = load(folder, smallest_budget(folder))
        same(part, whole)
        part.close()

    def test_another_type_than_the_file_s(self, folder: Path, resident: Decoder) -> None:
        part = load(folder, budget(folder, 3, 2), "bfloat16")
        assert (streamed_of(part).first, part.dtype) == (3, torch.bfloat16)
        whole = Decoder.load(str(folder), tokenizer=TOKENIZER, dtype="bfloat16")
        same(part, whole)
        assert part.identity == whole.identity
        part.close()

    def test_a_pass_over_a_layer_that_is_not_there_fails(
        self, opened: Callable[..., Decoder], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoder = opened(4)
        answer(decoder)
        layers: Any = decoder._model.get_submodule("model.layers")
        assert {part.device.type for part in layers[3].parameters()} == {"cpu"}
        assert {part.device.type for part in layers[4].parameters()} == {"meta"}
        for name in ("enter", "leave"):
            monkeypatch.setattr(streamed_of(decoder), name, lambda *_: None)
        with pytest.raises(RuntimeError, match="meta"):
            answer(decoder)


class TestPassesThatAreGivenUp:
    def test_in_the_middle_and_those_that_follow(self, resident: Decoder, opened: Callable[..., Decoder]) -> None:
        decoder = opened(3)
        rows, _ = answer(decoder)
        expected, _ = answer(resident)
        for layer in range(LAYERS):
            with pytest.raises(Preempted):
                decoder.step(rows, [4, 4], AfterPolls(layer))
            assert rows.answer == expected.answer
            assert torch.equal(decoder.step(rows, [layer]), resident.step(expected, [layer]))

    def test_while_a_layer_is_waited_for(self, resident: Decoder, opened: Callable[..., Decoder]) -> None:
        decoder = opened(7, bytes_per_second=8e6)  # .4 s for a layer: also on a busy machine it is computed sooner
        rows, _ = answer(decoder)
        expected, _ = answer(resident)
        polls = AfterPolls(LAYERS + 2)  # more than there are layers: the last ones come while waiting
        with pytest.raises(Preempted):
            decoder.step(rows, [4], polls)
        assert torch.equal(decoder.step(rows, [5]), resident.step(expected, [5]))

    def test_mutant_that_does_not_begin_anew(
        self, resident: Decoder, opened: Callable[..., Decoder], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoder = opened(3)
        rows, _ = answer(decoder)
        expected, _ = answer(resident)
        monkeypatch.setattr(WeightStore, "_seek", lambda store, layer: None)
        with pytest.raises(Preempted):
            decoder.step(rows, [4], AfterPolls(6))
        assert not torch.equal(decoder.step(rows, [5]), resident.step(expected, [5]))


class TestWaiting:
    def test_another_model_decodes_meanwhile(self, resident: Decoder, opened: Callable[..., Decoder]) -> None:
        decoder = opened(7, bytes_per_second=30e6)
        rows, _ = answer(decoder)
        expected, _ = answer(resident)
        drafting, _ = resident.open([[9] * 20], [5, 6], 50)
        checked, logits = resident.open([[9] * 20], [5, 6], 50)
        drafts: list[Tensor] = []

        def draft() -> bool:
            if len(drafts) == 50:
                return False
            drafts.append(resident.step(drafting, [int(drafts[-1].argmax()) if drafts else 5]))
            return True

        for token in range(3):
            assert torch.equal(
                decoder.forward([Feed(rows, [token])], None, draft), resident.forward([Feed(expected, [token])])
            )
        assert len(drafts) > 3
        token = 5
        for drafted in drafts:
            logits = resident.step(checked, [token])
            assert torch.equal(logits, drafted)
            token = int(logits.argmax())

    def test_what_fails_meanwhile_gives_the_pass_up(self, resident: Decoder, opened: Callable[..., Decoder]) -> None:
        decoder = opened(7, bytes_per_second=80e6)
        rows, _ = answer(decoder)
        expected, _ = answer(resident)

        def failing() -> bool:
            raise RuntimeError("no drafts today")

        with pytest.raises(RuntimeError, match="no drafts today"):
            for _ in range(20):  # a machine may be so slow that a pass finds its layers read
                decoder.forward([Feed(rows, [4])], None, failing)
                resident.step(expected, [4])
        assert torch.equal(decoder.step(rows, [5]), resident.step(expected, [5]))


class TestCounters:
    @pytest.mark.parametrize("layers", [0, 7])
    def test_a_pass_reads_every_streamed_layer_once(self, layers: int, opened: Callable[..., Decoder]) -> None:
        decoder = opened(layers, read_ahead=False)
        rows, _ = decoder.open([[5]], [6], 20)
        counters, read = streamed_of(decoder).counters, streamed_of(decoder).read
        before = counters.layers, read.bytes
        for _ in range(4):
            decoder.step(rows, [7])
        count = 4 * (LAYERS - layers)
        assert counters.layers - before[0] == count
        layer: Any = decoder._model.get_submodule("model.layers.9")
        stored = sum(4 * part.numel() for part in layer.parameters())
        assert 0 <= read.bytes - before[1] - count * stored <= count * 2 * 4096
        assert counters.dropped == 0


class TestRefused:
    def refused(self, folder: Path, text: str, **options: Any) -> None:
        settings: dict[str, Any] = {"kv_bytes": KV, "document_cache_bytes": 0, "streaming": Streaming(10**9)}
        with pytest.raises(ModelError, match=text):
            Decoder.load(str(folder), **{"tokenizer": TOKENIZER, **settings, **options})
        assert "weights" not in {thread.name for thread in threading.enumerate()}

    def test_too_small_a_budget_and_the_smallest(self, folder: Path, resident: Decoder) -> None:
        smallest = smallest_budget(folder)
        assert smallest == budget(folder, 0)
        load(folder, smallest).close()
        self.refused(folder, "too small", streaming=Streaming(smallest - 1))
        self.refused(folder, "too small", streaming=Streaming(smallest, reserved_bytes=1))
        self.refused(folder, "too small", streaming=Streaming(smallest), kv_bytes=KV + 1)
        self.refused(folder, "too small", streaming=Streaming(smallest), document_cache_bytes=1)

    def test_what_does_not_go_together(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused(folder, "kv_bytes", kv_bytes=None)
        self.refused(folder, "document_store_bytes", document_store=StoreOptions(tmp_path, 10**6))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        self.refused(folder, "streamed to a CPU only", torch_device="cuda")

    @pytest.mark.parametrize(("family", "missing"), [("mixtral", "mlp.gate"), ("deepseek-v3", "mlp.experts")])
    def test_weights_that_are_stored_otherwise(self, family: str, missing: str, tmp_path: Path) -> None:
        self.refused(make_model(family, tmp_path), f"has no .*{missing}", tokenizer=None)

    def test_a_weight_that_is_missing_or_has_another_shape(self, tmp_path: Path) -> None:
        folder = make_model("llama", tmp_path)
        weights = load_file(folder / "model.safetensors")
        name = "model.layers.2.mlp.up_proj.weight"
        save_file({key: value for key, value in weights.items() if key != name}, folder / "model.safetensors")
        self.refused(folder, f"has no {name}", tokenizer=None)
        save_file(weights | {name: torch.zeros(48, 31)}, folder / "model.safetensors")
        self.refused(folder, rf"{name} has the shape \(48, 31\)", tokenizer=None)

    def test_a_weight_that_there_is_no_place_for(self, tmp_path: Path) -> None:
        folder = make_model("llama", tmp_path)
        weights = load_file(folder / "model.safetensors")
        name = "model.layers.2.mlp.up_proj.bias"
        save_file(weights | {name: torch.zeros(48)}, folder / "model.safetensors")
        self.refused(folder, f"{name} .* would not be used", tokenizer=None)

    def test_a_tokenizer_of_another_model(self, folder: Path, resident: Decoder, tmp_path: Path) -> None:
        other = make_model("wide", tmp_path)
        self.refused(folder, "ids", tokenizer=str(other), streaming=Streaming(budget(folder, 0)))

    def test_a_model_that_ignores_its_positions(
        self, folder: Path, resident: Decoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = PackedPass.__init__

        def without_positions(made: PackedPass, *arguments: Any) -> None:
            start(made, *arguments)
            made.positions = torch.zeros_like(made.positions)

        monkeypatch.setattr(PackedPass, "__init__", without_positions)
        self.refused(folder, "differ from a fresh pass", streaming=Streaming(budget(folder, 0)))

    def test_a_file_that_shrinks_while_it_is_in_use(self, folder: Path, resident: Decoder, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(folder, tmp_path / "copy"))
        decoder = load(copy, budget(folder, 2))
        rows, _ = decoder.open([[5]], [6], 20)
        index = json.loads((copy / "model.safetensors.index.json").read_text())
        last = copy / index["weight_map"]["model.layers.9.mlp.up_proj.weight"]
        os.truncate(last, last.stat().st_size // 2)
        with pytest.raises(ModelError, match=f"{last.name}: became shorter"):
            for _ in range(3):  # what was read ahead still holds
                decoder.step(rows, [7])
        decoder.close()
        with pytest.raises(ModelError, match=f"{last.name}: is cut off"):
            load(copy, budget(folder, 2))


def test_a_capped_disk_shows_in_the_time(opened: Callable[..., Decoder]) -> None:
    decoder = opened(7, bytes_per_second=80e6)
    rows, _ = decoder.open([[5]], [6], 20)
    started, read = time.perf_counter(), streamed_of(decoder).read.bytes
    for _ in range(3):
        decoder.step(rows, [7])
    # Two layers at most were read before.
    least = (9 - 2) * 3.2e6 / 80e6
    assert time.perf_counter() - started >= least
    assert streamed_of(decoder).read.bytes > read
