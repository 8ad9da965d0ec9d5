"""A document's keys and values on their way between two decoders of the same model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.engine.kv.layout import DocumentStates, Layout
from proto.payloads.kv import Codes, KvEntries, KvShape, decode_kv, encode_kv, largest_kv, quantise

_OVER_TOKENS, _OVER_DIMENSIONS = 1, 2  # axes of [kv_heads, tokens, dim]


def shapes_of(layout: Layout) -> tuple[KvShape, ...]:
    """The layers of a model as the payload knows them."""
    return tuple(KvShape(layer.kv_heads, layer.key_dim, layer.value_dim) for layer in layout.layers)


def pack_states(tokens: Sequence[int], states: DocumentStates) -> bytes:
    """The `kv` payload of a document. Raises `ValueError` for numbers that 8 bits can't hold."""
    layers = tuple(
        (quantise(_numbers(key), _OVER_TOKENS), quantise(_numbers(value), _OVER_DIMENSIONS)) for key, value in states
    )
    return encode_kv(KvEntries(tuple(tokens), layers))


def unpack_states(data: bytes, layout: Layout, vocabulary: int, most_tokens: int) -> tuple[list[int], DocumentStates]:
    """Token ids and states of the document in `data`. Raises `ProtocolError`."""
    entries = decode_kv(data, shapes_of(layout), vocabulary, most_tokens)
    restored = tuple((_tensor(key, layout), _tensor(value, layout)) for key, value in entries.layers)
    return list(entries.tokens), restored


def largest_states(layout: Layout, tokens: int) -> int:
    """Bytes that the payload of a document of at most `tokens` tokens can take."""
    return largest_kv(shapes_of(layout), tokens)


def shortened(states: DocumentStates, tokens: int) -> DocumentStates:
    """States of the document's first `tokens` tokens: a token's keys and values depend on none after it."""
    return tuple((key[:, :tokens], value[:, :tokens]) for key, value in states)


def _numbers(states: Tensor) -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = states.to(torch.float32).cpu().numpy()
    return numbers


def _tensor(codes: Codes, layout: Layout) -> Tensor:
    return torch.from_numpy(codes.numbers()).to(device=layout.torch_device, dtype=layout.dtype)
