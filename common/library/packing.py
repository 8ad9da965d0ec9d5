"""Quicker linear layers for an encoder on a CPU.

Weights are laid out once for oneDNN, in bfloat16 if the hardware has it. PyTorch lays them out at every call, and its
float32 library is slow on some processors. Norms, attention and residuals stay float32, so directions of vectors hardly
change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_ROWS = 128  # text length in tokens that the layout is optimal for
_LEAST_COSINE = 0.999  # between vectors with and without packed layers; sound models differ by about 1e-5
_PROBES = ["The spare key is under the blue flower pot.", "Was ist neu in Python 3.14? " * 12]

_operators: Any = torch.ops.mkldnn  # used by torch.compile, and documented nowhere else


class PackedLinear(nn.Module):
    """A linear layer [..., in] -> [..., out] with products in `dtype`.

    Inputs and result are float32. With `gelu` the exact GELU follows on the exact product, and the result stays in
    `dtype`.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, gelu: bool = False) -> None:
        super().__init__()
        self._dtype = dtype
        self._then: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")
        self._weight = _operators._reorder_linear_weight(linear.weight.detach().to(dtype), _ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach().to(dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        product: Tensor = _operators._linear_pointwise(inputs.to(self._dtype), self._weight, self._bias, *self._then)
        return product if self._then[0] == "gelu" else product.float()


def pack_layers(encoder: nn.Module, dtype: torch.dtype, encode: Callable[[list[str]], NDArray[np.float32]]) -> bool:
    """Replaces the linear layers of `encoder`; False if vectors are no longer right.

    `encode` gives unit vectors [texts, dimension]. After False the encoder must be loaded again.
    """
    expected = encode(_PROBES)
    try:
        _replace(encoder, dtype)
        cosines = np.sum(encode(_PROBES) * expected, axis=1)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # an operator or a layer of another kind
        return False
    return bool(np.all(cosines > _LEAST_COSINE))


def _replace(module: nn.Module, dtype: torch.dtype) -> None:
    dense, activation = getattr(module, "dense", None), getattr(module, "intermediate_act_fn", None)
    if isinstance(dense, nn.Linear) and _is_exact_gelu(activation):
        module.dense = PackedLinear(dense, dtype, gelu=True)
        module.intermediate_act_fn = nn.Identity()
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child, dtype))
        else:
            _replace(child, dtype)


def _is_exact_gelu(activation: object) -> bool:
    from transformers.activations import GELUActivation

    kinds = (nn.GELU, GELUActivation)
    if not isinstance(activation, kinds):
        return False
    values = torch.linspace(-4.0, 4.0, 9)
    return torch.equal(activation(values), nn.functional.gelu(values))
