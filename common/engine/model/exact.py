"""Attention on a CPU with one fixed order of sums in every pass.

Library kernels choose the order by the number of queries and keys. So a token's last bits differ between a step, a
prompt, a chunk and a tree. Here they depend on its query and the visible keys and values alone, taken in sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from transformers.pytorch_utils import Conv1D

from common.answer.values import ROOT
from common.engine.model.quantised import has_codes
from common.sampling.compiled import compiled

# --- scores
# Attention of rows over their keys, with the score rules of model classes.
#
# Queries of heads that share a key are folded into the query axis, so that no key is repeated.


@dataclass(frozen=True, slots=True)
class KeyWindow:
    first: int
    mask: Tensor | None = None  # additive, [rows, 1, query, columns]
    causal: bool = False  # queries and columns are the same tokens: the kernel masks by itself


@dataclass(frozen=True, slots=True)
class Scores:
    scaling: float | None = None  # None: 1 / sqrt(dim of the key)
    softcap: float | None = None  # bends scores into (-softcap, softcap) (Gemma 2)
    sinks: Tensor | None = None  # [heads]: the score of a key without a value (gpt-oss)

    @property
    def written_out(self) -> bool:
        """Whether PyTorch's kernel can't apply the rule."""
        return self.softcap is not None or self.sinks is not None


def attend(query: Tensor, keys: Tensor, values: Tensor, view: KeyWindow, scores: Scores) -> Tensor:
    """Attention of `query` `[rows, heads, query, dim]`, `[rows, heads, query, value_dim]`.

    `keys` and `values` are `[rows, kv_heads, columns, dim]`.
    """
    rows, heads, count, dim = query.shape
    shared = keys.shape[1]
    folds = heads // shared
    if view.causal:
        return scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=scores.scaling, enable_gqa=heads != shared
        )
    folded = query.reshape(rows, shared, folds * count, dim)
    mask = view.mask
    if mask is not None and folds > 1 and count > 1:
        mask = mask.repeat(1, 1, folds, 1)
    if scores.written_out:
        output = _written_out(folded, keys, values, mask, scores, count)
    else:
        output = scaled_dot_product_attention(folded, keys, values, mask, scale=scores.scaling)
    return output.view(rows, heads, count, -1)


def _written_out(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scores: Scores, count: int
) -> Tensor:
    """`query` `[rows, kv_heads, folds * count, dim]`."""
    scaling = query.shape[-1] ** -0.5 if scores.scaling is None else scores.scaling
    weights = (query @ keys.transpose(-1, -2)) * scaling
    if scores.softcap is not None:
        weights = torch.tanh(weights / scores.softcap) * scores.softcap
    if mask is not None:
        weights = weights + mask
    columns = weights.shape[-1]
    if scores.sinks is not None:
        by_query = scores.sinks.view(keys.shape[1], -1).repeat_interleave(count, 1)
        weights = torch.cat([weights, by_query[None, :, :, None].expand(len(weights), -1, -1, -1)], -1)
    weights = torch.softmax(weights, -1, dtype=torch.float32).to(values.dtype)
    return weights[..., :columns] @ values


# --- tree
# Trees of tokens after a row's content: alternatives in one pass (EdgeLLM §III-B, SpecInfer).
#
# A token's column is the row's base plus its index, its position the base plus its depth. It sees the tokens before the
# base, its ancestors and itself.


@dataclass(frozen=True, slots=True)
class Tree:
    """Depths `[nodes]`, 0 for children of the root, and visible tree tokens `[nodes, nodes]`."""

    depths: NDArray[np.int64]
    seen: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.depths)


def tree_of(parents: Sequence[int]) -> Tree | None:
    """The tree in which token i follows `parents[i]` or `ROOT`; None for a chain.

    Raises `ValueError` for a token before its parent.
    """
    if all(parent == place - 1 for place, parent in enumerate(parents)):
        return None
    nodes = len(parents)
    depths, seen = np.zeros(nodes, np.int64), np.eye(nodes, dtype=np.bool_)
    for place, parent in enumerate(parents):
        if not ROOT <= parent < place:
            raise ValueError(f"token {place} of a tree can't follow token {parent}: parents come before children")
        if parent != ROOT:
            depths[place] = depths[parent] + 1
            seen[place] |= seen[parent]
    return Tree(depths, seen)


# --- sight
# The keys that each token of a group sees, as numbers for a kernel or a mask.


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """Visible columns of each token: from `lows` to before `stops`, and tree tokens."""

    lows: NDArray[np.int64]  # [rows, query]
    stops: NDArray[np.int64]  # [rows, query]
    longest: int  # columns with tokens in the longest row
    bases: NDArray[np.int64]  # [rows]: column of the tree's first token
    seen: NDArray[np.bool_]  # [query, nodes]: visible tree tokens; no nodes without a tree

    @property
    def first(self) -> int:
        return int(self.lows.min())

    @property
    def full(self) -> bool:
        """Whether all tokens see all columns from `first` on."""
        return not self.seen.size and bool((self.lows == self.first).all() and (self.stops == self.longest).all())

    @property
    def causal(self) -> bool:
        """Whether the columns are the tokens themselves, under a causal mask."""
        rows, query = self.lows.shape
        triangle = np.broadcast_to(np.arange(1, query + 1), (rows, query))
        return (
            not self.seen.size
            and self.longest == query
            and not self.lows.any()
            and bool((self.stops == triangle).all())
        )

    def hidden(self) -> NDArray[np.bool_]:
        """The invisible columns from `first` on, `[rows, query, columns]`."""
        columns = np.arange(self.first, self.longest)
        hidden: NDArray[np.bool_] = (columns < self.lows[..., None]) | (columns >= self.stops[..., None])
        nodes = self.seen.shape[1]
        for row, base in enumerate(self.bases.tolist() if nodes else ()):
            begin = max(base, self.first)
            hidden[row, :, begin - self.first : base + nodes - self.first] = ~self.seen[:, begin - base :]
        return hidden


def chain_sight(places: NDArray[np.int64], longest: int, window: int | None) -> Sight:
    """The sight of tokens at columns `places` [rows, query] within `window`, or of all."""
    stops = places + 1
    lows = np.zeros_like(stops) if window is None else np.maximum(0, stops - window)
    return Sight(lows, stops, longest, places[:, 0], np.zeros((places.shape[1], 0), np.bool_))


def tree_sight(tree: Tree, bases: Sequence[int], query: int, longest: int, window: int | None) -> Sight:
    """The sight of a tree's last `query` tokens, from columns `bases` on."""
    first = np.asarray(bases)
    stops = np.repeat(first[:, None], query, 1)
    depths, seen = tree.depths[-query:], tree.seen[-query:]
    if window is None:
        return Sight(np.zeros_like(stops), stops, longest, first, seen)
    lows = np.clip(stops + depths + 1 - window, 0, stops)
    return Sight(lows, stops, longest, first, seen & (tree.depths > depths[:, None] - window))


# --- ordered

_TILE: Final = 64  # keys widened together for a block
_BLOCK: Final = 32  # tokens per block of queries
_LANES: Final = 16  # partial sums of weights, chosen by a key's rank
_WORTH_A_THREAD: Final = 2**21  # products of numbers; a smaller task ends before a thread wakes

_FLOAT: Final = np.float32
_LOG2_E: Final = np.float32(1.4426950408889634)
# ln 2 in two parts: the first has few digits, so that its multiples by octaves are exact.
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(-2.12194440e-4)
# exp r = 1 + r + r^2/2 + ... for |r| <= ln(2)/2: seven terms leave a relative error of 1e-7
_TERMS: Final = tuple(np.float32(1 / factorial) for factorial in (2, 6, 24, 120, 720))
_LEAST: Final = np.float32(-87.0)  # exp of it is about the smallest normal float32


class OrderedAttention:
    """Ordered attention on up to `threads` threads. Their number never changes a bit."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "attention") if threads > 1 else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        slot: int,
        sight: Sight,
        scores: Scores,
        output: Tensor,
    ) -> None:
        """Writes the attention of `query` `[rows * query, heads, dim]` to `output`.

        `output` is `[rows * query, heads, value_dim]`. `keys` and `values` `[slots, kv_heads, columns, dim]` are read
        from `slot` on. All are contiguous and of one type, float32 or bfloat16.
        """
        rows, count = sight.lows.shape
        shared = keys.shape[1]
        heads, dim = query.shape[1:]
        scaling = _FLOAT(dim**-0.5 if scores.scaling is None else scores.scaling)
        softcap = _FLOAT(scores.softcap or 0.0)
        sinks = np.empty(0, np.float32) if scores.sinks is None else scores.sinks.float().numpy()
        shift = np.uint32(16 if query.dtype == torch.bfloat16 else 0)
        arrays = [bits_of(tensor) for tensor in (query, keys, values, output)]
        arguments = (*arrays, slot, sight.lows, sight.stops, sight.longest, sight.bases, sight.seen)
        tasks = rows * shared * -(-count // _BLOCK)

        def part(first: int, last: int) -> None:
            _attend(*arguments, scaling, softcap, sinks, shift, first, last)

        if self._pool is None or int((sight.stops - sight.lows).sum()) * heads * dim < _WORTH_A_THREAD:
            part(0, tasks)
            return
        # Blocks at a prompt's end take longer, so parts are small.
        edges = np.linspace(0, tasks, min(tasks, 4 * self._threads) + 1).astype(int).tolist()
        list(self._pool.map(part, edges[:-1], edges[1:]))


def bits_of(tensor: Tensor) -> NDArray[Any]:
    bits: NDArray[Any] = tensor.view(torch.uint16 if tensor.itemsize == 2 else torch.uint32).numpy()
    return bits


def _attend_tasks(
    query: NDArray[Any],
    keys: NDArray[Any],
    values: NDArray[Any],
    output: NDArray[Any],
    slot: int,
    lows: NDArray[np.int64],
    stops: NDArray[np.int64],
    longest: int,
    bases: NDArray[np.int64],
    seen: NDArray[np.bool_],
    scaling: np.float32,
    softcap: np.float32,
    sinks: NDArray[np.float32],
    shift: np.uint32,
    first: int,
    last: int,
) -> None:
    """A task is a block of one row's tokens, for heads with one key."""
    count = lows.shape[1]
    shared, columns, dim = keys.shape[1:]
    value_dim = values.shape[3]
    folds = query.shape[1] // shared
    nodes = seen.shape[1]
    blocks = (count + _BLOCK - 1) // _BLOCK
    most = min(count, _BLOCK) * folds
    key_bits, value_bits = np.zeros((dim, _TILE), np.uint32), np.zeros((_TILE, value_dim), np.uint32)
    query_bits = np.empty((most, dim), np.uint32)
    key_tile, value_tile = key_bits.view(np.float32), value_bits.view(np.float32)
    queries = query_bits.view(np.float32)
    weights = np.empty((most, (longest + _TILE - 1) // _TILE * _TILE + _LANES), np.float32)
    sums, totals = np.empty((most, value_dim), np.float32), np.empty(most, np.float32)
    octaves = np.empty(weights.shape[1], np.int32)
    for task in range(first, last):
        start = task % blocks * _BLOCK
        head = task // blocks % shared
        row = task // (blocks * shared)
        tokens = min(count - start, _BLOCK)
        low, stop = lows[row, start], bases[row] + nodes if nodes else 0
        for token in range(start, start + tokens):
            low, stop = min(low, lows[row, token]), max(stop, stops[row, token])
        low = low // _TILE * _TILE
        for place in range(tokens * folds):
            token, which = row * count + start + place // folds, head * folds + place % folds
            for number in range(dim):
                query_bits[place, number] = np.uint32(query[token, which, number]) << shift
        for column in range(low, stop, _TILE):
            for number in range(dim):
                for key in range(min(_TILE, columns - column)):
                    key_bits[number, key] = np.uint32(keys[slot + row, head, column + key, number]) << shift
            for place in range(tokens * folds):
                _multiply(queries[place], key_tile, weights[place, column : column + _TILE])
        for place in range(tokens * folds):
            token, which = start + place // folds, head * folds + place % folds
            own = weights[place, lows[row, token] :]
            rank = max(stops[row, token] - lows[row, token], 0)
            for node in range(nodes):
                if seen[token, node]:
                    own[rank] = own[bases[row] - lows[row, token] + node]
                    rank += 1
            sink = sinks[which] if len(sinks) else _FLOAT(-np.inf)
            totals[place] = _weigh(own, rank, scaling, softcap, sink, octaves)
            sums[place] = _FLOAT(0.0)
        for column in range(low, stop, _TILE):
            for key in range(min(_TILE, columns - column)):
                for number in range(value_dim):
                    value_bits[key, number] = np.uint32(values[slot + row, head, column + key, number]) << shift
            for place in range(tokens * folds):
                token = start + place // folds
                own = weights[place, lows[row, token] :]
                begin, end = max(column, lows[row, token]), min(column + _TILE, stops[row, token])
                if begin < end:
                    _add(own[begin - lows[row, token] :], value_tile[begin - column : end - column], sums[place])
                rank = max(stops[row, token] - lows[row, token], 0)
                for node in range(nodes):
                    if seen[token, node]:
                        if column <= bases[row] + node < column + _TILE:
                            key = bases[row] + node - column
                            _add(own[rank:], value_tile[key : key + 1], sums[place])
                        rank += 1
        for place in range(tokens * folds):
            token, which = row * count + start + place // folds, head * folds + place % folds
            _store(sums[place], totals[place], shift, output[token, which])


def _multiply_tile(query: NDArray[np.float32], tile: NDArray[np.float32], products: NDArray[np.float32]) -> None:
    """`query` is [dim], `tile` [dim, _TILE]."""
    for key in range(_TILE):
        products[key] = _FLOAT(0.0)
    dim = len(query)
    for number in range(0, dim - dim % 4, 4):
        one, two, three, four = query[number], query[number + 1], query[number + 2], query[number + 3]
        first, second, third, fourth = tile[number], tile[number + 1], tile[number + 2], tile[number + 3]
        for key in range(_TILE):
            products[key] = (((products[key] + one * first[key]) + two * second[key]) + three * third[key]) + (
                four * fourth[key]
            )
    for number in range(dim - dim % 4, dim):
        for key in range(_TILE):
            products[key] = products[key] + query[number] * tile[number, key]


def _make_exponentials(powers: NDArray[np.float32], count: int, octaves: NDArray[np.int32]) -> None:
    """Replaces the first `count` of `powers`, none above 0. Overwrites `octaves`."""
    whole = octaves.view(np.float32)
    for place in range(count):
        power = max(powers[place], _LEAST)
        octave = np.rint(power * _LOG2_E)
        rest = (power - octave * _LN2_HIGH) - octave * _LN2_LOW
        series = (((_TERMS[4] * rest + _TERMS[3]) * rest + _TERMS[2]) * rest + _TERMS[1]) * rest + _TERMS[0]
        powers[place] = (series * rest * rest + rest) + _FLOAT(1.0)
        octaves[place] = (np.int32(octave) + np.int32(127)) << np.int32(23)
    for place in range(count):
        powers[place] = powers[place] * whole[place]


def _weigh_products(
    own: NDArray[np.float32],
    count: int,
    scaling: np.float32,
    softcap: np.float32,
    sink: np.float32,
    octaves: NDArray[np.int32],
) -> np.float32:
    """Turns products into weights in place. Returns their sum. Overwrites later numbers."""
    padded = (count + _LANES - 1) // _LANES * _LANES
    for rank in range(count):
        own[rank] = own[rank] * scaling
    if softcap > 0:
        for rank in range(count):
            own[rank] = np.tanh(own[rank] / softcap) * softcap
    highest = sink
    for rank in range(count):
        highest = max(highest, own[rank])
    for rank in range(count):
        own[rank] = own[rank] - highest
    for rank in range(count, padded):
        own[rank] = _FLOAT(0.0)
    exponentials(own, padded, octaves)
    for rank in range(count, padded):
        own[rank] = _FLOAT(0.0)
    lanes = np.zeros(_LANES, np.float32)
    for rank in range(0, padded, _LANES):
        for lane in range(_LANES):
            lanes[lane] += own[rank + lane]
    total = _FLOAT(0.0) if sink == -np.inf else _FLOAT(np.exp(sink - highest))
    for lane in range(_LANES):
        total += lanes[lane]
    return total


def _add_values(weights: NDArray[np.float32], values: NDArray[np.float32], sums: NDArray[np.float32]) -> None:
    """Adds `values` [keys, value_dim] to `sums` [value_dim], in order."""
    keys, size = values.shape
    for key in range(0, keys - keys % 4, 4):
        one, two, three, four = weights[key], weights[key + 1], weights[key + 2], weights[key + 3]
        first, second, third, fourth = values[key], values[key + 1], values[key + 2], values[key + 3]
        for number in range(size):
            sums[number] = (((sums[number] + one * first[number]) + two * second[number]) + three * third[number]) + (
                four * fourth[number]
            )
    for key in range(keys - keys % 4, keys):
        for number in range(size):
            sums[number] = sums[number] + weights[key] * values[key, number]


def _store_result(sums: NDArray[np.float32], total: np.float32, shift: np.uint32, output: NDArray[Any]) -> None:
    """Writes quotients as float32 bits, or rounded to bfloat16."""
    for number in range(len(sums)):
        sums[number] = sums[number] / total
    bits = sums.view(np.uint32)
    if shift == 0:
        for number in range(len(sums)):
            output[number] = bits[number]
        return
    round_row(sums, output)


def _round_numbers(numbers: NDArray[np.float32], rounded: NDArray[Any]) -> None:
    """Writes the bits of the nearest bfloat16."""
    bits = numbers.view(np.uint32)
    for place in range(len(numbers)):
        odd = (bits[place] >> np.uint32(16)) & np.uint32(1)
        rounded[place] = (bits[place] + np.uint32(0x7FFF) + odd) >> np.uint32(16)


exponentials = compiled(_make_exponentials, without_gil=True)
round_row = compiled(_round_numbers, without_gil=True)
_multiply = compiled(_multiply_tile, without_gil=True)
_weigh = compiled(_weigh_products, without_gil=True)
_add = compiled(_add_values, without_gil=True)
_store = compiled(_store_result, without_gil=True)
_attend = compiled(_attend_tasks, without_gil=True)


# --- products
# Linear layers on a CPU in bfloat16 whose rows have the same bits in any product.
#
# oneDNN chooses a kernel, and so the order of sums, by the number of rows. A single row has its own kernel, and with
# matrix units (AMX) many numbers do. So no product has a single row, and with matrix units every product has a whole,
# possibly padded block.
#
# For few rows, laying out the weights takes as much time as the product. So it happens once, at loading.

_PRODUCTS_BLOCK: Final = 32  # rows: more would slow down steps, fewer would slow down prompts
_EVERYTHING: Final = 2**62

_Multiply = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Row counts of products: multiples of `unit`, at most `most`."""

    unit: int = 1
    most: int = _EVERYTHING

    def padding(self, rows: int) -> int:
        return -rows % self.unit

    def multiplied(self, multiply: _Multiply, rows: Tensor) -> Tensor:
        """The product of `rows` `[..., size]`, `[..., outputs]`, with one `multiply` call per block."""
        flat = rows.reshape(-1, rows.shape[-1])
        padding = self.padding(len(flat))
        if padding:
            flat = functional.pad(flat, (0, 0, 0, padding))
        products = multiply(flat) if len(flat) <= self.most else torch.cat([*map(multiply, flat.split(self.most))])
        return products[: len(flat) - padding].view(*rows.shape[:-1], products.shape[-1])


ANY_ROWS: Final = RowBlocks()


def row_blocks() -> RowBlocks:
    """Blocks with equal bits for a row on this CPU."""
    return RowBlocks(_PRODUCTS_BLOCK, _PRODUCTS_BLOCK) if torch.cpu._is_amx_tile_supported() else RowBlocks(2)


def can_pack() -> bool:
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@torch.inference_mode()
def order_products(model: nn.Module, blocks: RowBlocks, pack: bool) -> None:
    """Makes the linear layers of `model` multiply in `blocks`.

    With `pack`, the kernel's layout replaces the parameters. A weight shared with an embedding then takes memory twice.
    """
    for layer in model.modules():
        if type(layer) not in (nn.Linear, Conv1D) or has_codes(layer):
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
