"""Weights of four and eight bits, multiplied as stored.

A matrix consists of codes, in groups of 32 along a row. A number is `(code - middle) * scale + shift`. Torch's product
for four-bit codes gives every row the same bits in any batch. An eight-bit matrix is two of four bits, side by side,
and multiplies the row twice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from common.engine.model.errors import ModelError

WeightsName = Literal["stored", "int8", "int4"]
Bits = Literal[4, 8]

GROUP: Final = 32
_ROWS: Final = 64  # most rows of a block in the kernel's layout
_AT_ONCE: Final = 2**22  # codes laid out together: 16 MiB of kernel input
_SAMPLE: Final = 256  # numbers per matrix in the model's identity
_HIGH: Final = 16  # value of a step of the upper four bits
# Largest mean square error of a second rounding, as a share of the first one's.
_SHARE: Final = 0.1

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_PARTS: Final = "codes", "scales"  # of a matrix; rows are axis 0 of codes, axis 1 of scales

log = logging.getLogger(__name__)


@cache
def has_kernel() -> bool:
    """Whether this processor has a fast product for four-bit codes."""
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return False
    try:
        rows, codes = torch.ones(1, GROUP, dtype=torch.bfloat16), torch.ones(_ROWS, GROUP, dtype=torch.int32)
        scales = torch.ones(1, _ROWS, 2, dtype=torch.bfloat16)
        _multiply(rows, torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1), scales)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def _multiply(rows: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, codes, GROUP, scales)
    return product


# --- codes


@dataclass(frozen=True, slots=True)
class GroupCodes:
    """A matrix of codes: `codes` `[rows, size]`, `scale` and `shift` `[rows, size / GROUP]`."""

    codes: Bytes
    scale: Floats
    shift: Floats
    middle: int
    bits: Bits

    def numbers(self) -> Floats:
        by_group = self.codes.reshape(*self.scale.shape, GROUP).astype(np.float32) - np.float32(self.middle)
        return (by_group * self.scale[..., None] + self.shift[..., None]).reshape(self.codes.shape)

    def rows(self, chosen: Any) -> GroupCodes:
        return GroupCodes(self.codes[chosen], self.scale[chosen], self.shift[chosen], self.middle, self.bits)

    def sample(self) -> bytes:
        """Some evenly spaced numbers, and their bits."""
        step = max(1, self.codes.size // _SAMPLE)
        size = self.codes.shape[1]
        rows, columns = np.divmod(np.arange(0, self.codes.size, step), size)
        groups = rows, columns // GROUP
        numbers = (self.codes[rows, columns].astype(np.float32) - self.middle) * self.scale[groups] + self.shift[groups]
        taken: bytes = numbers.astype(np.float32).tobytes()
        return f"int{self.bits} ".encode() + taken


def nearest_codes(numbers: Floats, bits: Bits) -> GroupCodes:
    """The nearest codes to `numbers` `[rows, size]`, with steps and shifts exact in bfloat16."""
    groups = numbers.reshape(len(numbers), -1, GROUP)
    low, high, most = groups.min(2), groups.max(2), np.float32(2**bits - 1)
    scale = _bfloat16((high - low) / most * np.float32(1 + 2**-8))  # reaches at least from low to high
    shift = _bfloat16((low + high - most * scale) / 2 + 8 * scale) - 8 * scale
    steps = np.where(scale > 0, scale, np.float32(1))
    codes = np.rint((groups - shift[..., None]) / steps[..., None]).clip(0, most)
    return GroupCodes(codes.astype(np.uint8).reshape(numbers.shape), scale, shift, 0, bits)


def _bfloat16(numbers: Floats) -> Floats:
    near: Floats = torch.from_numpy(numbers).bfloat16().float().numpy()
    return near


# --- blocks
# Codes as GGUF files store them, in blocks of 32 or 256 numbers of a row.

_Decode = Callable[[Bytes], GroupCodes]


def _halves(blocks: Bytes, first: int) -> Floats:
    return np.ascontiguousarray(blocks[..., first : first + 2]).view(np.float16)[..., 0].astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """All lower halves, then all upper ones: `[..., 2 n]` of `[..., n]`."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], -1)


def _fifth_bits(packed: Bytes) -> Bytes:
    bits = np.unpackbits(packed, axis=-1, bitorder="little")
    return bits << np.uint8(4)


def _small(blocks: Bytes, bits: int, shifted: bool) -> GroupCodes:
    """Blocks of 32: scale, optional shift, fifth bits, codes."""
    place = 4 if shifted else 2
    scale = _halves(blocks, 0)
    codes = _nibbles(blocks[..., -16:])
    if bits == 5:
        codes |= _fifth_bits(blocks[..., place : place + 4])
    shift = _halves(blocks, 2) if shifted else np.zeros_like(scale)
    middle = 0 if shifted else 2 ** (bits - 1)
    return _joined(codes, scale, shift, middle, 4 if bits == 4 else 8)


def _bytes(blocks: Bytes) -> GroupCodes:
    scale = _halves(blocks, 0)
    return _joined(blocks[..., 2:] ^ np.uint8(128), scale, np.zeros_like(scale), 128, 8)


def _large(blocks: Bytes, fifth: bool) -> GroupCodes:
    """Blocks of 256: two scales, eight groups' six-bit scales and shifts, fifth bits, codes."""
    packed = blocks[..., 4:16]
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    upper = np.uint8(0x30)
    scales = np.concatenate([first & 63, (third & 15) | (first >> 2 & upper)], -1)
    shifts = np.concatenate([second & 63, (third >> 4) | (second >> 2 & upper)], -1)
    scale = _halves(blocks, 0)[..., None] * scales.astype(np.float32)
    shift = -_halves(blocks, 2)[..., None] * shifts.astype(np.float32)
    codes = _nibbles(blocks[..., -128:].reshape(*blocks.shape[:-1], 4, 32)).reshape(*blocks.shape[:-1], 8, GROUP)
    if fifth:
        places = np.arange(8, dtype=np.uint8)[:, None]
        codes = codes | (blocks[..., None, 16:48] >> places & np.uint8(1)) << np.uint8(4)
    return _joined(codes, scale, shift, 0, 8 if fifth else 4)


def _joined(codes: Bytes, scale: Floats, shift: Floats, middle: int, bits: Bits) -> GroupCodes:
    rows = len(codes)
    return GroupCodes(codes.reshape(rows, -1), scale.reshape(rows, -1), shift.reshape(rows, -1), middle, bits)


def _sixes(blocks: Bytes) -> GroupCodes | None:
    """Rounds again, to eight bits: groups of 16 have their own scales."""
    from gguf import GGMLQuantizationType, dequantize

    numbers = dequantize(blocks.reshape(len(blocks), -1), GGMLQuantizationType.Q6_K).astype(np.float32, copy=False)
    steps = _halves(blocks, 208)[..., None] * blocks[..., 192:208].view(np.int8).astype(np.float32)
    made = nearest_codes(numbers, 8)
    return made if ((made.numbers() - numbers) ** 2).mean() <= _SHARE * (steps**2).mean() / 12 else None


# Types with usable codes: bytes of a block, and its decoder.
_BLOCKS: Final[Mapping[str, tuple[int, Callable[[Bytes], GroupCodes | None]]]] = {
    "Q4_0": (18, partial(_small, bits=4, shifted=False)),
    "Q4_1": (20, partial(_small, bits=4, shifted=True)),
    "Q5_0": (22, partial(_small, bits=5, shifted=False)),
    "Q5_1": (24, partial(_small, bits=5, shifted=True)),
    "Q8_0": (34, _bytes),
    "Q4_K": (144, partial(_large, fifth=False)),
    "Q5_K": (176, partial(_large, fifth=True)),
    "Q6_K": (210, _sixes),
}
CODED: Final = frozenset(_BLOCKS)


def stored_codes(kind: str, stored: Bytes) -> GroupCodes | None:
    """The codes of stored rows `[rows, bytes]` of GGUF's type `kind`.

    None if they would lose more precision.
    """
    size, decode = _BLOCKS[kind]
    count = max(1, _AT_ONCE // (2 * stored.shape[1]))
    parts = [decode(part.reshape(len(part), -1, size)) for part in _split(stored, count)]
    whole = [part for part in parts if part is not None]
    return _stacked(whole) if len(whole) == len(parts) else None


def _split(rows: Any, count: int) -> Iterator[Any]:
    return (rows[first : first + count] for first in range(0, len(rows), count))


def _stacked(parts: Sequence[GroupCodes]) -> GroupCodes:
    codes, scale, shift = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "scale", "shift")
    )
    return GroupCodes(codes, scale, shift, parts[0].middle, parts[0].bits)


def damage_of(codes: GroupCodes) -> int | None:
    """The first row with an infinite or NaN scale or shift, or None."""
    whole = np.isfinite(codes.scale).all(1) & np.isfinite(codes.shift).all(1)
    return None if whole.all() else int(np.argmin(whole))


# --- matrix


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in the kernel's layout: `codes` in bytes, `scales` `[groups, rows, 2]`.

    With eight bits, the upper halves precede the lower ones.
    """

    codes: Tensor
    scales: Tensor
    outputs: int
    bits: Bits

    def multiply(self, rows: Tensor) -> Tensor:
        """The product of `rows` `[n, size]`, `[n, outputs]`."""
        rows = rows.to(torch.bfloat16)
        twice = torch.cat([rows, rows], 1) if self.bits == 8 else rows.contiguous()
        return _multiply(twice, self.codes, self.scales.contiguous())[:, : self.outputs]

    def rows(self, ids: Tensor) -> Tensor:
        """The matrix's rows `ids`, `[..., size]`."""
        flat = ids.reshape(-1)
        width = 2 * self.codes.shape[1]
        blocks, within = flat // _ROWS, flat % _ROWS
        places = _layout(width)[within] + (blocks * (_ROWS * width))[:, None]
        halves = self.codes.view(-1)[places >> 1] >> ((places & 1) << 2).to(torch.uint8) & 15
        scales = self.scales[:, flat].float()  # [groups, n, 2]
        by_group = halves.view(len(flat), -1, GROUP).float() - 8
        numbers = by_group * scales[..., 0].T[..., None] + scales[..., 1].T[..., None]
        numbers = numbers.view(len(flat), -1, width // (2 if self.bits == 8 else 1)).sum(1)
        return numbers.to(torch.bfloat16).view(*ids.shape, -1)


def laid_out(codes: GroupCodes) -> Matrix:
    """In the layout of this processor's kernel."""
    rows = len(codes.codes)
    padding = -rows % _ROWS
    scale = torch.from_numpy(np.pad(codes.scale, ((0, padding), (0, 0))))
    shift = torch.from_numpy(np.pad(codes.shift, ((0, padding), (0, 0))))
    step = scale.to(torch.bfloat16).float()
    if codes.bits == 4:
        # The rounding error of a step is spread to both sides of the code 8.
        parts = [(step, (8 - codes.middle) * scale + shift)]
    else:
        upper = codes.middle // _HIGH if codes.middle == 128 else 0
        centre = 0 if codes.middle else 16
        lower = (_HIGH * upper + 8 - codes.middle) * step + shift + centre * (scale - step)
        parts = [(_HIGH * step, _HIGH * (8 - upper) * step), (step, lower)]
    scales = torch.cat([torch.stack(part, -1) for part in parts], 1).transpose(0, 1).to(torch.bfloat16).contiguous()
    width = codes.codes.shape[1] * len(parts)
    laid = torch.empty(rows + padding, width // 2, dtype=torch.uint8)
    count = max(1, _AT_ONCE // (_ROWS * width)) * _ROWS
    for first in range(0, rows, count):
        part = torch.from_numpy(codes.codes[first : first + count])
        if codes.bits == 8:
            part = torch.cat([part >> 4, part & 15], 1)
        part = functional.pad(part, (0, 0, 0, -len(part) % _ROWS)).int()
        laid[first : first + len(part)] = torch.ops.aten._convert_weight_to_int4pack_for_cpu(part, 1)
    return Matrix(laid, scales, rows, codes.bits)


@cache
def _layout(width: int) -> Tensor:
    """Offsets of a block's codes in the kernel's layout `[rows, width]`, in half bytes.

    Found from blocks of known codes: every processor has its own layout.
    """
    numbers = torch.arange(_ROWS * width).view(_ROWS, width)
    found = torch.zeros(_ROWS * width, dtype=torch.int64)
    for digit in range(0, (_ROWS * width).bit_length(), 4):
        laid = torch.ops.aten._convert_weight_to_int4pack_for_cpu((numbers >> digit & 15).int(), 1).view(-1)
        found += torch.stack([laid & 15, laid >> 4], 1).view(-1).long() << digit
    places = torch.empty_like(found)
    places[found] = torch.arange(_ROWS * width)
    return places.view(_ROWS, width)


# --- model


def can_hold(users: Iterable[nn.Module]) -> bool:
    """Whether all `users` of a weight can use codes."""
    return all(type(user) in (nn.Linear, nn.Embedding) for user in users)


def fits(shape: Iterable[int]) -> bool:
    """Whether a weight of this shape has whole groups."""
    sizes = tuple(shape)
    return len(sizes) == 2 and sizes[1] % GROUP == 0


def put(matrix: Matrix, users: Iterable[nn.Module]) -> None:
    """Makes the modules compute with a matrix. Their weight keeps its shape, without numbers."""
    outline: nn.Parameter | None = None
    for user in users:
        layer: Any = user
        if outline is None:
            # Not `empty_like`: for this device it is written in Python, and imports a solver.
            shape, dtype = layer.weight.shape, layer.weight.dtype
            outline = nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"), requires_grad=False)
        layer.weight = outline
        _use(layer, matrix)


def _use(layer: Any, matrix: Matrix) -> None:
    layer.register_buffer("codes", matrix.codes)
    layer.register_buffer("scales", matrix.scales)
    layer.forward = matrix.rows if isinstance(layer, nn.Embedding) else partial(_linear, matrix, layer)


def join(layers: Sequence[Any]) -> Callable[[Tensor], Tensor] | None:
    """The joint product with all matrices of `layers`, or None if impossible.

    Afterwards the layers share the joined matrix's memory and compute the same.
    """
    if not all(has_codes(layer) for layer in layers):
        return None
    outputs = [layer.out_features for layer in layers]
    widths = {layer.codes.shape[1] for layer in layers}
    if len(widths) > 1 or any(count % _ROWS for count in outputs):
        return None
    codes, scales = (torch.cat([getattr(layer, part) for layer in layers], at) for at, part in enumerate(_PARTS))
    bits: Bits = 8 if widths == {layers[0].in_features} else 4
    first = 0
    for layer, count in zip(layers, outputs, strict=True):
        _use(layer, Matrix(codes.narrow(0, first, count), scales.narrow(1, first, count), count, bits))
        first += count
    joined = Matrix(codes, scales, first, bits)
    biases = [layer.bias for layer in layers]
    if all(bias is None for bias in biases):
        return joined.multiply
    none = [torch.zeros(count, dtype=torch.bfloat16) for count in outputs]
    whole = torch.cat([empty if bias is None else bias for bias, empty in zip(biases, none, strict=True)])
    return lambda rows: joined.multiply(rows) + whole


def _linear(matrix: Matrix, layer: nn.Linear, rows: Tensor) -> Tensor:
    """Reads the bias at the call: it may be loaded after the matrix."""
    product = matrix.multiply(rows.reshape(-1, rows.shape[-1])).reshape(*rows.shape[:-1], matrix.outputs)
    return product if layer.bias is None else product + layer.bias


def users_of(model: nn.Module) -> dict[int, list[nn.Module]]:
    """Modules of each parameter, by its `id`."""
    users: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(id(parameter), []).append(module)
    return users


def _matrices(model: nn.Module) -> Iterator[tuple[list[nn.Module], nn.Parameter]]:
    users = users_of(model)
    return ((users[id(weight)], weight) for weight in model.parameters() if weight.ndim > 1)


def has_codes(module: nn.Module) -> bool:
    return "codes" in module._buffers


def all_in_layers(model: nn.Module) -> bool:
    """Whether all matrices belong to linear layers and embeddings."""
    layers = (nn.Linear, nn.Embedding)
    return all(
        isinstance(module, layers) or parameter.ndim < 2
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )


@torch.inference_mode()
def round_weights(name: str, model: Any, bits: Bits) -> dict[str, bytes]:
    """Rounds a model's matrices to `bits`, embeddings and output layer to 8. Returns samples.

    Raises `ModelError` if no matrix can be rounded.
    """
    users, ends = users_of(model), {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    samples: dict[str, bytes] = {}
    for place, weight in [*model.named_parameters()]:
        using = users[id(weight)]
        if not fits(weight.shape) or not can_hold(using):
            continue
        end = any(id(user) in ends for user in using)
        parts = _split(weight, max(1, _AT_ONCE // weight.shape[1]))
        codes = _stacked([nearest_codes(part.float().numpy(), 8 if end else bits) for part in parts])
        samples[place] = codes.sample()
        put(laid_out(codes), using)
    if not samples:
        raise ModelError(f"{name}: {type(model).__name__} has no weights that can be int{bits}; set weights to stored")
    return samples


def matrix_types(model: nn.Module, dtype: torch.dtype) -> str:
    """Number types of a model's matrices: `int4`, or a count per type."""
    found: Counter[str] = Counter()
    for (user, *_), weight in _matrices(model):
        codes: Any = user._buffers.get("codes")
        kind = str(dtype).removeprefix("torch.") if codes is None else f"int{8 * codes.shape[1] // weight.shape[1]}"
        found[kind] += 1
    if len(found) < 2:
        return next(iter(found), str(dtype).removeprefix("torch."))
    return ", ".join(f"{count} {kind}" for kind, count in found.most_common())
