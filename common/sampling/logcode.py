"""The 16-bit logarithmic code of `proto.logcode` on tensors: a mixture is rounded where it was computed."""

from __future__ import annotations

import functools

import torch

from proto.logcode import LARGEST, STEPS_PER_OCTAVE, TABLE


def quantise(probabilities: torch.Tensor, working: torch.Tensor | None = None) -> torch.Tensor:
    """The code of each probability, uint16, same shape and device; what is not positive (or NaN) is code 0.

    The logarithm is taken in float32, so a probability within 0.01 steps of the middle between two codes may
    get the other one than `proto.logcode.encode` gives. Only the owner of a distribution rounds it: that is
    harmless. `working` is float32 memory of that shape to use.
    """
    codes = torch.log2(probabilities.to(torch.float32), out=working)
    codes.mul_(STEPS_PER_OCTAVE).add_(LARGEST)
    return codes.nan_to_num_(nan=0.0).clamp_(0, LARGEST).round_().to(torch.uint16)


def dequantise(codes: torch.Tensor) -> torch.Tensor:
    """The probability of each code [n], float64 [n], in the bits of `proto.logcode.decode`."""
    return _table(codes.device)[codes.to(torch.int32)]


@functools.cache
def _table(torch_device: torch.device) -> torch.Tensor:
    return torch.tensor(TABLE, dtype=torch.float64, device=torch_device)
