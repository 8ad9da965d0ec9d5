"""The 16-bit logarithmic code of `proto.logcode` on tensors: a mixture is rounded where it was computed."""

from __future__ import annotations

import functools

import torch

from proto.logcode import LARGEST, STEPS_PER_OCTAVE, TABLE


def quantise(probabilities: torch.Tensor) -> torch.Tensor:
    """The code of each probability, int32, same shape and device; what is not positive (or NaN) is code 0.

    The logarithm is taken in float32, so a probability within 0.01 steps of the middle between two codes may
    get the other one than `proto.logcode.encode` gives. Only the owner of a distribution rounds it: that is
    harmless.
    """
    codes = probabilities.to(torch.float32, copy=True)
    codes.log2_().mul_(STEPS_PER_OCTAVE).add_(LARGEST)
    return codes.nan_to_num_(nan=0.0).clamp_(0, LARGEST).round_().to(torch.int32)


def dequantise(codes: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """The probability of each code [n], float64 [n] (into `out`), in the bits of `proto.logcode.decode`."""
    return torch.index_select(_table(codes.device), 0, codes, out=out)


@functools.cache
def _table(torch_device: torch.device) -> torch.Tensor:
    return torch.tensor(TABLE, dtype=torch.float64, device=torch_device)
