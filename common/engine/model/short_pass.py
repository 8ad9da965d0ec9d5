"""A pass for models of the Llama shape, with compiled loops between products.

The shape: a norm by root mean square, attention with rotary positions and grouped keys, and a gated network. Llama,
Mistral, Qwen 2 and Qwen 3 have it. Products and attention are those of every other pass. Sums between layers stay in
float32; Transformers rounds them to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from common.engine.kv.memory import Layout
from common.engine.model.exact import Scores, bits_of, exponentials, round_row
from common.engine.model.loading import LoadedModel
from common.engine.model.packed import LayerGate, PackedPass
from common.engine.model.probes import has_fixed_turns
from common.engine.model.quantised import join
from common.sampling.compiled import compiled

_CLASSES: Final = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
_LANES: Final = 16
_FLOAT: Final = np.float32

_Multiply = Callable[[Tensor], Tensor]
_Products = Callable[[Tensor], list[Any]]
_Bits = NDArray[np.uint16]
_Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Layer:
    """Products and weights of a layer. Norm weights are float32; missing head norms are empty."""

    inputs: _Products
    output: _Multiply
    gates: _Products  # gates, and the gated numbers
    down: _Multiply
    before_attention: _Floats
    before_network: _Floats
    query_norm: _Floats
    key_norm: _Floats


class ShortPass:
    def __init__(self, loaded: LoadedModel, layout: Layout) -> None:
        model: Any = loaded.model
        self._embed, self._rotary = model.model.embed_tokens, model.model.rotary_emb
        self._modules = loaded.layers
        resident = len(loaded.layers) if loaded.streamed is None else loaded.streamed.first
        self._layers = [_layer(layer) for layer in loaded.layers[:resident]]
        self._norm, self._head = _numbers(model.model.norm), model.lm_head.forward
        self._epsilon = _FLOAT(model.config.rms_norm_eps)
        self._config, self._head_size = model.config, layout.layers[0].key_dim

    @staticmethod
    def serves(loaded: LoadedModel, layout: Layout) -> bool:
        config: Any = loaded.model.config
        return (
            type(loaded.model) in _CLASSES
            and config.hidden_act == "silu"
            and len(layout.layers) == len(loaded.layers)
            and has_fixed_turns(loaded)
        )

    def run(self, packed: PackedPass, gate: LayerGate) -> Tensor:
        """Logits `[logits, vocabulary]` at the wanted tokens. The `gate` wraps every layer."""
        tokens, epsilon = packed.tokens.shape[1], self._epsilon
        embedded = self._embed.forward(packed.tokens[0])
        change, hidden = bits_of(embedded), np.zeros(embedded.shape, np.float32)
        normed, opened = torch.empty_like(embedded), embedded.new_empty(tokens, self._config.intermediate_size)
        query = embedded.new_zeros(tokens, self._config.num_attention_heads, self._head_size)
        seen = torch.zeros_like(query)
        normed_bits, opened_bits, query_bits = bits_of(normed), bits_of(opened), bits_of(query)
        angles = self._angles(packed)
        for index, module in enumerate(self._modules[: self._config.num_hidden_layers]):
            gate.enter(index)
            layer = self._layers[index] if index < len(self._layers) else _layer(module)
            _add_and_norm(hidden, change, layer.before_attention, epsilon, normed_bits)
            inputs = layer.inputs(normed)
            for stretch in packed.stretches(index):
                _turn(*inputs, *angles, *stretch, layer.query_norm, layer.key_norm, epsilon, query_bits)
            packed.layer(index).attend_in_order(query, Scores(), seen)
            change = bits_of(layer.output(seen.view(tokens, -1)))
            _add_and_norm(hidden, change, layer.before_network, epsilon, normed_bits)
            _open(*layer.gates(normed), opened_bits)
            change = bits_of(layer.down(opened))
            gate.leave(index)
        _add_and_norm(hidden, change, self._norm, epsilon, normed_bits)
        logits: Tensor = self._head(normed[packed.wanted])
        return logits

    def _angles(self, packed: PackedPass) -> list[_Floats]:
        """Cosines and sines of every token's turns, `[tokens, dim / 2]`."""
        turns = self._rotary(torch.empty(0), packed.positions)
        return [part[0, :, : self._head_size // 2].contiguous().numpy() for part in turns]


def _layer(layer: nn.Module) -> _Layer:
    whole: Any = layer
    attention, network = whole.self_attn, whole.mlp
    return _Layer(
        _products(attention.q_proj, attention.k_proj, attention.v_proj),
        attention.o_proj.forward,
        _products(network.gate_proj, network.up_proj),
        network.down_proj.forward,
        _numbers(whole.input_layernorm),
        _numbers(whole.post_attention_layernorm),
        _numbers(getattr(attention, "q_norm", None)),
        _numbers(getattr(attention, "k_norm", None)),
    )


def _products(*layers: Any) -> _Products:
    """Multiplies by several matrices, in one call if they can be joined.

    Returns for each its products `[rows, at least outputs]` and their first column.
    """
    multiply = join(layers)
    if multiply is None:
        return lambda rows: [part for layer in layers for part in (bits_of(layer.forward(rows)), 0)]
    firsts = [0, *accumulate(layer.out_features for layer in layers[:-1])]

    def products(rows: Tensor) -> list[Any]:
        joined = bits_of(multiply(rows))
        return [part for first in firsts for part in (joined, first)]

    return products


def _numbers(norm: Any) -> _Floats:
    numbers: _Floats = np.empty(0, np.float32) if norm is None else norm.weight.float().numpy()
    return numbers


# --- loops


def _widen_row(bits: _Bits, numbers: _Floats) -> None:
    wide = numbers.view(np.uint32)
    for place in range(len(numbers)):
        wide[place] = np.uint32(bits[place]) << np.uint32(16)


def _norm_of(numbers: _Floats, epsilon: np.float32) -> np.float32:
    lanes = np.zeros(_LANES, np.float32)
    size = len(numbers)
    for place in range(0, size - size % _LANES, _LANES):
        for lane in range(_LANES):
            lanes[lane] += numbers[place + lane] * numbers[place + lane]
    total = _FLOAT(0.0)
    for lane in range(_LANES):
        total += lanes[lane]
    for place in range(size - size % _LANES, size):
        total += numbers[place] * numbers[place]
    inverse: np.float32 = _FLOAT(1.0) / np.sqrt(total / _FLOAT(size) + epsilon)
    return inverse


def _add_and_norm_rows(hidden: _Floats, change: _Bits, weight: _Floats, epsilon: np.float32, normed: _Bits) -> None:
    """`hidden` and `change` are `[rows, size]`."""
    rows, size = hidden.shape
    numbers = np.empty(size, np.float32)
    for row in range(rows):
        own = hidden[row]
        _widen(change[row], numbers)
        for place in range(size):
            own[place] += numbers[place]
        scale = _norm(own, epsilon)
        for place in range(size):
            numbers[place] = own[place] * scale * weight[place]
        round_row(numbers, normed[row])


def _turn_head(
    numbers: _Floats, cosines: _Floats, sines: _Floats, weight: _Floats, epsilon: np.float32, turned: _Floats
) -> None:
    half = len(cosines)
    if len(weight):
        scale = _norm(numbers, epsilon)
        for place in range(2 * half):
            numbers[place] = numbers[place] * scale * weight[place]
    for place in range(half):
        one, other = numbers[place], numbers[half + place]
        turned[place] = one * cosines[place] - other * sines[place]
        turned[half + place] = other * cosines[place] + one * sines[place]


def _turn_and_store(
    query: _Bits,
    query_at: int,
    keys: _Bits,
    keys_at: int,
    values: _Bits,
    values_at: int,
    cosines: _Floats,
    sines: _Floats,
    held_keys: _Bits,
    held_values: _Bits,
    slots: NDArray[np.int64],
    columns: NDArray[np.int64],
    start: int,
    query_norm: _Floats,
    key_norm: _Floats,
    epsilon: np.float32,
    turned: _Bits,
) -> None:
    """Turns queries to `turned` `[tokens, heads, dim]` and stores turned keys and values.

    Processes as many tokens as `slots`, from `start` on.
    """
    heads, dim = turned.shape[1:]
    numbers, result = np.empty(dim, np.float32), np.empty(dim, np.float32)
    for place in range(len(slots)):
        token, slot, column = start + place, slots[place], columns[place]
        for head in range(heads):
            first = query_at + head * dim
            _widen(query[token, first : first + dim], numbers)
            _turn_one(numbers, cosines[token], sines[token], query_norm, epsilon, result)
            round_row(result, turned[token, head])
        for head in range(held_keys.shape[1]):
            first = keys_at + head * dim
            _widen(keys[token, first : first + dim], numbers)
            _turn_one(numbers, cosines[token], sines[token], key_norm, epsilon, result)
            round_row(result, held_keys[slot, head, column])
            first = values_at + head * dim
            for number in range(dim):
                held_values[slot, head, column, number] = values[token, first + number]


def _open_gates(gate: _Bits, gate_at: int, up: _Bits, up_at: int, opened: _Bits) -> None:
    """Computes `g / (1 + exp -g) * u`, `[rows, size]`."""
    rows, size = opened.shape
    numbers, factors = np.empty(size, np.float32), np.empty(size, np.float32)
    powers, octaves = np.empty(size, np.float32), np.empty(size, np.int32)
    for row in range(rows):
        _widen(gate[row, gate_at : gate_at + size], numbers)
        _widen(up[row, up_at : up_at + size], factors)
        for place in range(size):
            powers[place] = -abs(numbers[place])
        exponentials(powers, size, octaves)
        for place in range(size):
            share = _FLOAT(1.0) if numbers[place] >= _FLOAT(0.0) else powers[place]
            numbers[place] = numbers[place] * share / (_FLOAT(1.0) + powers[place]) * factors[place]
        round_row(numbers, opened[row])


_widen = compiled(_widen_row, without_gil=True)
_norm = compiled(_norm_of, without_gil=True)
_add_and_norm = compiled(_add_and_norm_rows, without_gil=True)
_turn_one = compiled(_turn_head, without_gil=True)
_turn = compiled(_turn_and_store, without_gil=True)
_open = compiled(_open_gates, without_gil=True)
