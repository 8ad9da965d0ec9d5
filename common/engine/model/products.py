"""Linear layers on a CPU in bfloat16 whose rows have the same bits, whatever other rows are computed with them.

oneDNN chooses a kernel, and with it the order of its sums, by the number of rows: a single row has a kernel of its own,
and where a CPU has matrix units (AMX) so have many numbers. So no product has a single row, and with matrix units every
product has a block of rows, the last one padded.

A product of few rows takes as long as its weights take to be laid out for the kernel. That is done once, at loading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

_BLOCK: Final = 32  # rows: more cost steps time, fewer cost prompts time
_EVERYTHING: Final = 2**62

_Multiply = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Numbers of rows that products have: multiples of `unit`, and at most `most` of them."""

    unit: int = 1
    most: int = _EVERYTHING

    def padding(self, rows: int) -> int:
        """Number of rows that are missing to the next multiple."""
        return -rows % self.unit

    def multiplied(self, multiply: _Multiply, rows: Tensor) -> Tensor:
        """The product of `rows` `[..., size]`, `[..., outputs]`, by one call of `multiply` for every block."""
        flat = rows.reshape(-1, rows.shape[-1])
        padding = self.padding(len(flat))
        if padding:
            flat = functional.pad(flat, (0, 0, 0, padding))
        products = multiply(flat) if len(flat) <= self.most else torch.cat([*map(multiply, flat.split(self.most))])
        return products[: len(flat) - padding].view(*rows.shape[:-1], products.shape[-1])


ANY_ROWS: Final = RowBlocks()


def row_blocks() -> RowBlocks:
    """The blocks in which this machine's CPU gives rows the same bits."""
    return RowBlocks(_BLOCK, _BLOCK) if torch.cpu._is_amx_tile_supported() else RowBlocks(2)


def can_pack() -> bool:
    """Whether this machine has kernels for weights that are laid out for them."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@torch.inference_mode()
def order_products(model: nn.Module, blocks: RowBlocks, pack: bool) -> None:
    """Have the linear layers of `model` multiply in `blocks`. With `pack` their weights are laid out for the kernel and
    as parameters they are empty; those that an embedding shares take memory twice then.
    """
    for layer in model.modules():
        if type(layer) not in (nn.Linear, Conv1D):
            continue
        multiply = _packed(layer) if pack else layer.forward
        layer.forward = partial(blocks.multiplied, multiply)


def _packed(layer: Any) -> _Multiply:
    weight, bias = layer.weight, layer.bias
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous() if isinstance(layer, Conv1D) else weight)
    layer.weight = nn.Parameter(weight.new_empty(0), requires_grad=False)

    def multiply(rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
        return product

    return multiply
