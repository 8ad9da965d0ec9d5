"""Numbers as GGUF's types hold them, those included that the `gguf` package reads and does not write."""

from __future__ import annotations

import gguf
import numpy as np
from numpy.typing import NDArray


def quantised(numbers: NDArray[np.float32], kind: str) -> NDArray[np.uint8]:
    """The bytes of `numbers` `[rows, size]` as a file has them in the type `kind`."""
    match kind:
        case "Q4_K" | "Q5_K":
            return _large_blocks(numbers, int(kind[1]))
        case "Q6_K":
            return _sixes(numbers)
    stored: NDArray[np.uint8] = gguf.quantize(numbers, gguf.GGMLQuantizationType[kind]).view(np.uint8)
    return stored


def _half(numbers: NDArray[np.float32]) -> NDArray[np.uint8]:
    return numbers.astype(np.float16)[..., None].view(np.uint8)


def _large_blocks(numbers: NDArray[np.float32], bits: int) -> NDArray[np.uint8]:
    """Blocks of 256 with eight scales and shifts of six bits; the `gguf` package reads them, and writes none."""
    groups = numbers.reshape(len(numbers), -1, 8, 32)
    low = np.minimum(groups.min(-1), 0)
    step = (groups.max(-1) - low) / (2**bits - 1)
    scale, shift = step.max(-1) / 63, -low.min(-1) / 63
    steps = np.rint(step / np.maximum(scale, 1e-12)[..., None]).astype(np.uint8)
    shifts = np.rint(-low / np.maximum(shift, 1e-12)[..., None]).astype(np.uint8)
    real = np.maximum(scale.astype(np.float16).astype(np.float32)[..., None] * steps, 1e-12)[..., None]
    lowest = (shift.astype(np.float16).astype(np.float32)[..., None] * shifts)[..., None]
    codes = np.rint((groups + lowest) / real).clip(0, 2**bits - 1).astype(np.uint8)
    first, second = steps[..., :4], shifts[..., :4]
    packed = [first | steps[..., 4:] >> 4 << 6, second | shifts[..., 4:] >> 4 << 6]
    packed.append(steps[..., 4:] & 15 | (shifts[..., 4:] & 15) << 4)
    parts = [_half(scale), _half(shift), *packed]
    if bits == 5:
        parts.append((codes >> 4 << np.arange(8, dtype=np.uint8)[:, None]).sum(-2, dtype=np.uint8))
    pairs = codes.reshape(*codes.shape[:-2], 4, 2, 32) & 15
    parts.append((pairs[..., 0, :] | pairs[..., 1, :] << 4).reshape(*codes.shape[:-2], 128))
    return np.concatenate(parts, -1).reshape(len(numbers), -1)


def _sixes(numbers: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Blocks of 256 with 16 scales of a byte; see `_large_blocks`."""
    groups = numbers.reshape(len(numbers), -1, 16, 16)
    step = np.abs(groups).max(-1) / 31
    scale = step.max(-1) / 127
    steps = np.rint(step / np.maximum(scale, 1e-12)[..., None]).astype(np.int8)
    real = np.maximum(scale.astype(np.float16).astype(np.float32)[..., None] * steps, 1e-12)[..., None]
    codes = (np.rint(groups / real).clip(-32, 31) + 32).astype(np.uint8).reshape(*groups.shape[:2], 2, 4, 32)
    lower = codes & 15
    low = np.concatenate([lower[..., :2, :] | lower[..., 2:, :] << 4], -1).reshape(*groups.shape[:2], 128)
    high = (codes >> 4 << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(-2, dtype=np.uint8)
    parts = [low, high.reshape(*groups.shape[:2], 64), steps.view(np.uint8), _half(scale)]
    return np.concatenate(parts, -1).reshape(len(numbers), -1)
