"""Linear layers whose rows have the same bits, whatever other rows are computed with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from common.engine.model import decoder as decoder_module
from common.engine.model.decoder import Decoder
from common.engine.model.exact import RowBlocks, can_pack, order_products, row_blocks
from tests.common.engine.model.tiny_models import make_model

BLOCKS = [RowBlocks(2), RowBlocks(8, 8), RowBlocks(32, 32)]
SIZE, OUTPUTS = 576, 1536  # with AMX, oneDNN has kernels of several orders for these

packs = pytest.mark.skipif(not can_pack(), reason="this CPU has no kernels for weights that are laid out for them")


def weights(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).bfloat16()


def linear() -> nn.Linear:
    layer = nn.Linear(SIZE, OUTPUTS, bias=True, dtype=torch.bfloat16)
    layer.weight, layer.bias = (nn.Parameter(weights(*part.shape), False) for part in (layer.weight, layer.bias))
    return layer


def ordered(layer: nn.Module, blocks: RowBlocks, pack: bool) -> nn.Module:
    model = nn.Sequential(layer)
    order_products(model, blocks, pack)
    return model


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
class TestOrderProducts:
    def test_no_product_has_other_numbers_of_rows(self, blocks: RowBlocks) -> None:
        seen: list[int] = []
        layer = linear()
        plain = layer.forward
        layer.forward = lambda rows: seen.append(len(rows)) or plain(rows)  # type: ignore[assignment,func-returns-value,method-assign]
        model = ordered(layer, blocks, pack=False)
        for count in (1, 2, 3, 8, 31, 32, 33, 100):
            assert model(weights(1, count, SIZE)).shape == (1, count, OUTPUTS)
        assert all(rows % blocks.unit == 0 and rows <= blocks.most for rows in seen)

    @pytest.mark.parametrize("pack", [False, pytest.param(True, marks=packs)])
    def test_the_product_is_that_of_the_layer(self, blocks: RowBlocks, pack: bool) -> None:
        layer = linear()
        rows = weights(2, 3, 7, SIZE)
        expected = nn.functional.linear(rows.float(), layer.weight.float(), layer.bias.float())
        torch.testing.assert_close(ordered(layer, blocks, pack)(rows).float(), expected, rtol=8e-3, atol=0.5)

    @packs
    def test_packed_weights_give_the_bits_of_those_that_are_not(self, blocks: RowBlocks) -> None:
        rows = weights(100, SIZE)
        assert torch.equal(ordered(linear(), blocks, pack=True)(rows), ordered(linear(), blocks, pack=False)(rows))

    def test_conv1d(self, blocks: RowBlocks) -> None:
        layer = Conv1D(OUTPUTS, SIZE).bfloat16()
        rows = weights(1, 5, SIZE)
        expected = layer(rows).float()
        product = ordered(layer, blocks, pack=can_pack())(rows)
        torch.testing.assert_close(product.float(), expected, rtol=8e-3, atol=0.05)

    @packs
    def test_a_shared_weight_stays_with_the_others_that_use_it(self, blocks: RowBlocks) -> None:
        embedding = nn.Embedding(OUTPUTS, SIZE, dtype=torch.bfloat16)
        head = nn.Linear(SIZE, OUTPUTS, bias=False, dtype=torch.bfloat16)
        head.weight = embedding.weight
        order_products(nn.ModuleList([embedding, head]), blocks, pack=True)
        assert embedding.weight.shape == (OUTPUTS, SIZE)
        assert not head.weight.numel()


@pytest.mark.parametrize(
    ("family", "blocks"), [*(("qwen2", each) for each in BLOCKS), ("opt", BLOCKS[1]), ("wide", BLOCKS[2])], ids=str
)
def test_models_are_exact(family: str, blocks: RowBlocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if row_blocks().most < blocks.most:
        pytest.skip("with matrix units, rows of larger products depend on their number")
    monkeypatch.setattr(decoder_module, "row_blocks", lambda: blocks)
    assert Decoder.load(str(make_model(family, tmp_path)), dtype="bfloat16").exactness == "bit-exact"


def test_a_row_has_the_same_bits_among_any_number_of_others() -> None:
    """Of this machine's blocks. With AMX, those of another one fail here: see `_BLOCK`."""
    model = ordered(linear(), row_blocks(), pack=can_pack())
    rows = weights(96, SIZE)
    expected = model(rows)
    for count in range(1, 97):
        assert torch.equal(model(rows[:count]), expected[:count])
        assert torch.equal(model(rows[96 - count :]), expected[96 - count :])
