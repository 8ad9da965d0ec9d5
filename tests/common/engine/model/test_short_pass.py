"""The pass of the Llama shape computes what Transformers' own pass does, or the model is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from common.engine.model import short_pass as module
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError, Preempted
from common.engine.model.packed import Feed
from common.engine.model.quantised import has_kernel, join, laid_out, nearest_codes, put
from common.sampling.compiled import compiled
from tests.common.engine.model.test_interruption import AfterPolls
from tests.common.engine.model.tiny_models import load_plain, make_model, some_tokens

SHORT = ("llama", "qwen2", "qwen2-mixed", "qwen3", "qwen3-mixed", "mistral", "demo")
OTHERS = ("gemma2", "opt", "granite", "phi3", "olmo2")
TOKENS = 90

with_kernel = pytest.mark.skipif(not has_kernel(), reason="this processor has no kernel for codes of four bits")


def load(folder: Path, **options: Any) -> Decoder:
    return Decoder.load(str(folder), dtype="bfloat16", threads=1, **options)


def logits(decoder: Decoder, tokens: list[int]) -> torch.Tensor:
    rows = decoder.memory.take(1, len(tokens))
    try:
        return decoder.forward([Feed(rows, tokens, len(tokens))])
    finally:
        decoder.memory.give_back(rows)


@pytest.mark.parametrize("family", SHORT)
def test_is_as_near_to_exact_numbers_as_transformers_own_pass(family: str, tmp_path: Path) -> None:
    """Exact numbers are those of float32."""
    folder, plain = load_plain(family, tmp_path)
    tokenizer = {"tokenizer": str(folder.parent / "tokenizer")} if family == "demo" else {}
    decoder = load(folder, **tokenizer)
    try:
        assert decoder._short is not None and decoder.exactness == "bit-exact"
        tokens = some_tokens(decoder, TOKENS, seed=5)
        exact = plain.after([tokens[: place + 1] for place in range(TOKENS)])[:, : decoder.vocabulary]
        short = logits(decoder, tokens)
        decoder._short = None
        other = logits(decoder, tokens)
        assert not torch.equal(short, other)
        assert float((short - exact).abs().mean()) <= 1.05 * float((other - exact).abs().mean())
    finally:
        decoder.close()


@pytest.mark.parametrize("family", OTHERS)
def test_other_classes_have_transformers_pass(family: str, tmp_path: Path) -> None:
    decoder = load(make_model(family, tmp_path))
    try:
        assert decoder._short is None
    finally:
        decoder.close()


def test_float32_has_transformers_pass(tmp_path: Path) -> None:
    decoder = Decoder.load(str(make_model("llama", tmp_path)), dtype="float32", threads=1)
    try:
        assert decoder._short is None
    finally:
        decoder.close()


def without_turns(*arguments: Any) -> None:
    cosines, sines = arguments[6:8]
    whole = [*arguments[:6], np.ones_like(cosines), np.zeros_like(sines), *arguments[8:]]
    compiled(module._turn_and_store)(*whole)


def without_norms_of_heads(*arguments: Any) -> None:
    none = np.empty(0, np.float32)
    compiled(module._turn_and_store)(*arguments[:13], none, none, *arguments[15:])


def without_gates(gate: Any, gate_at: int, up: Any, up_at: int, opened: Any) -> None:
    opened[:] = up[:, up_at : up_at + opened.shape[1]]


def without_the_sum(hidden: Any, change: Any, *others: Any) -> None:
    hidden[:] = 0
    compiled(module._add_and_norm_rows)(hidden, change, *others)


@pytest.mark.parametrize(
    ("name", "wrong", "family"),
    [
        ("_turn", without_turns, "llama"),
        ("_turn", without_norms_of_heads, "qwen3"),
        ("_open", without_gates, "qwen2"),
        ("_add_and_norm", without_the_sum, "mistral"),
    ],
)
def test_a_pass_that_computes_something_else_is_refused(
    name: str, wrong: Callable[..., None], family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(ModelError, match="can't be served"):
        load(make_model(family, tmp_path))


def test_a_pass_given_up_at_any_layer_leaves_rows_as_they_were(tmp_path: Path) -> None:
    decoder = load(make_model("llama", tmp_path))
    try:
        layers = len(decoder.layout.layers)
        rows, _ = decoder.open([[], [7, 8, 9]], [5, 6], 8)
        expected = decoder.step(rows, [11, 12])
        rows.crop(0)
        for layer in range(layers):
            with pytest.raises(Preempted):
                decoder.step(rows, [21, 22], AfterPolls(layer))
            assert rows.answer == 0
        polls = AfterPolls(1_000)
        assert torch.equal(decoder.step(rows, [11, 12], polls), expected)
        assert polls.polls == layers
    finally:
        decoder.close()


# --- joined matrices


def linear(outputs: int, bits: Any, bias: bool, seed: int) -> nn.Linear:
    layer = nn.Linear(96, outputs, bias=bias, dtype=torch.bfloat16)
    numbers = np.random.default_rng(seed).standard_normal((outputs, 96)).astype(np.float32)
    put(laid_out(nearest_codes(numbers, bits)), [layer])
    return layer.requires_grad_(False)


@with_kernel
@pytest.mark.parametrize("bits", [4, 8])
def test_joined_matrices_multiply_as_each_does(bits: Any) -> None:
    """A layer without a bias beside one with it. Their memory is one."""
    layers = [linear(128, bits, False, 1), linear(64, bits, True, 2)]
    rows = torch.randn(5, 96).bfloat16()
    before = torch.cat([layer(rows) for layer in layers], 1)
    multiply = join(layers)
    assert multiply is not None
    assert torch.equal(multiply(rows), before)
    assert torch.equal(torch.cat([layer(rows) for layer in layers], 1), before)
    first, second = (layer._buffers["codes"].untyped_storage().data_ptr() for layer in layers)  # type: ignore[union-attr]
    assert first == second


@with_kernel
def test_matrices_of_other_bits_or_sizes_are_not_joined() -> None:
    assert join([linear(64, 4, False, 1), linear(64, 8, False, 2)]) is None
    assert join([linear(64, 4, False, 1), linear(100, 4, False, 2)]) is None
    assert join([linear(64, 4, False, 1), nn.Linear(96, 64)]) is None
