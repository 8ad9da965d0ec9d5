"""One forward pass over tokens of many answers, all in one row `[1, tokens]` for the linear layers.

Each item feeds some tokens to the rows of one answer. Items whose rows lie side by side in KV memory and that feed
equally many tokens are one attention call per layer; an item with a tree is one by itself. Rows keep all keys; a layer
with a window reads the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache

from common.engine.kv.chunk import Chunk
from common.engine.kv.layout import Layout
from common.engine.kv.memory import Rows
from common.engine.model.ordered import OrderedAttention
from common.engine.model.products import ANY_ROWS, RowBlocks
from common.engine.model.scores import Scores, View, attend
from common.engine.model.sight import Sight, chain_sight, tree_sight
from common.engine.model.tree import Tree, tree_of

_RAGGED = 1.5  # rows in one call are at most this much longer than the shortest of them, and
_SLACK = 64  # this many tokens; beyond that, masked columns would cost more than another call

Expand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Item:
    """Tokens to feed to every row of an answer, and for how many of them, the last ones, logits are wanted.

    They are a chain, or with `parents` the last tokens of a tree (`tree.py`); if it has more parents than there are
    `tokens`, the rows hold its first ones already. So a tree may be read at once, together with the chain
    before it or not, and it may grow from pass to pass. Then `Rows.keep` leaves one path of it in the rows.
    """

    rows: Rows
    tokens: Sequence[int]
    logits: int = 1
    parents: Sequence[int] | None = None  # of the tree's tokens: the place of each one's parent in it, or `ROOT`

    def tree(self) -> Tree | None:
        """The tree; None for a chain. Raises `ValueError` for parents that make none behind what the rows hold."""
        if self.parents is None:
            return None
        if not 0 <= len(self.parents) - len(self.tokens) <= self.rows.fed:
            raise ValueError(
                f"{len(self.parents)} parents don't fit {len(self.tokens)} tokens behind {self.rows.fed} in the rows"
            )
        return tree_of(self.parents)


@dataclass(slots=True)
class Group:
    """Consecutive slots that get equally many tokens: one attention call per layer."""

    chunk: Chunk
    first: int  # slot
    last: int  # slot, exclusive
    query: int  # tokens per row
    shortest: int  # tokens in the shortest row after the pass
    longest: int
    start: int  # of the group's tokens in the pass
    tree: Tree | None = None
    bases: Sequence[int] = ()  # columns of the tree's first token, per row
    _views: dict[tuple[int | None, bool], View] = field(default_factory=dict)
    _sights: dict[int | None, Sight] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.last - self.first

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.query

    def reach(self, window: int | None) -> int | None:
        """The window, where any row is longer."""
        return None if window is not None and self.longest <= window else window

    def takes(self, item: Item, longest: int, shortest: int) -> bool:
        """Whether `item` can be part of the group."""
        rows = item.rows
        return (
            self.tree is None
            and rows.chunk is self.chunk
            and rows.start == self.last
            and len(item.tokens) == self.query
            and max(longest, self.longest) <= _RAGGED * min(shortest, self.shortest) + _SLACK
        )


class PackedPass(Cache):
    """The pass as the cache object that Transformers models call; see `packed_attention`.

    `tokens` and `positions` are `[1, tokens]`, `wanted` `[logits]` are the places in it whose logits are asked for, in
    the order of the items, each item's row by row; the first `logits` of them, others are there to be dropped. Lengths
    are left alone: they move when the whole pass has succeeded.
    """

    def __init__(
        self,
        items: Sequence[Item],
        layout: Layout,
        blocks: RowBlocks = ANY_ROWS,
        attention: OrderedAttention | None = None,
    ) -> None:
        """Products get whole `blocks`: behind the tokens, and behind the logits where any are asked for, are others
        to be dropped. Without an `attention` it is PyTorch's own.
        """
        super().__init__(layers=[])
        self.attention = attention
        torch_device = layout.torch_device
        self._layout = layout
        self.groups: list[Group] = []
        order = sorted(range(len(items)), key=lambda index: _place(items[index]))
        columns: list[NDArray[np.int64]] = []
        positions: list[NDArray[np.int64]] = []  # other than columns where there is a tree
        ids: list[NDArray[np.int64]] = []
        slots: list[NDArray[np.int64]] = []
        starts: dict[int, int] = {}
        total = 0
        for index in order:
            item = items[index]
            rows, count = item.rows, len(item.tokens)
            lengths = np.asarray(rows.starts) + rows.fed
            tree = None if item.parents is None else item.tree()
            columns.append((lengths[:, None] + np.arange(count)).reshape(-1))
            if tree is None:
                self._join(item, int(lengths.max()) + count, int(lengths.min()) + count, total)
                positions.append(columns[-1])
            else:
                bases = lengths + count - len(tree)
                self.groups.append(_tree_group(item, tree, bases.tolist(), total))
                positions.append((bases[:, None] + tree.depths[-count:]).reshape(-1))
            ids.append(np.tile(np.asarray(item.tokens), len(rows)))
            slots.append(np.repeat(np.arange(rows.start, rows.start + len(rows)), count))
            starts[index] = total
            total += len(rows) * count
        self.padding = blocks.padding(total)
        for arrays in (ids, columns, positions):
            arrays.append(np.zeros(self.padding, np.int64))
        wanted = _wanted(items, starts)
        self.logits = len(wanted)
        wanted += wanted[-1:] * blocks.padding(len(wanted))
        self.tokens = torch.from_numpy(np.concatenate(ids)).to(torch_device)[None]
        self.wanted = torch.tensor(wanted, dtype=torch.int64, device=torch_device)
        self._places = np.concatenate(columns)
        self._columns = torch.from_numpy(self._places).to(torch_device)
        if any(group.tree for group in self.groups):
            self.positions = torch.from_numpy(np.concatenate(positions)).to(torch_device)[None]
        else:
            self.positions = self._columns[None]
        self._slots = torch.from_numpy(np.concatenate(slots)).to(torch_device)
        self._writes = _writes(self.groups)

    def _join(self, item: Item, longest: int, shortest: int, start: int) -> None:
        rows = item.rows
        if self.groups and self.groups[-1].takes(item, longest, shortest):
            group = self.groups[-1]
            group.last += len(rows)
            group.longest, group.shortest = max(group.longest, longest), min(group.shortest, shortest)
            return
        first, count = rows.start, len(item.tokens)
        self.groups.append(Group(rows.chunk, first, first + len(rows), count, shortest, longest, start))

    def view(self, group: Group, window: int | None, masked: bool) -> View:
        """The sight of the tokens of `group` in layers that look back over `window` tokens, made once for all of them.

        With `masked` nothing is left to the kernel's own causal mask.
        """
        window = group.reach(window)
        view = group._views.get((window, masked))
        if view is None:
            view = group._views[window, masked] = self._make_view(self.sight(group, window), masked)
        return view

    def _make_view(self, sight: Sight, masked: bool) -> View:
        if sight.full:
            return View(sight.first)
        if sight.causal and not masked:
            return View(sight.first, causal=True)
        hidden = torch.from_numpy(sight.hidden()).to(self._columns.device)[:, None]
        mask = torch.zeros(hidden.shape, dtype=self._layout.dtype, device=hidden.device)
        return View(sight.first, mask.masked_fill_(hidden, float("-inf")))

    def sight(self, group: Group, window: int | None) -> Sight:
        """The columns that tokens of `group` see in layers that look back over `window` tokens, made once for all."""
        window = group.reach(window)
        sight = group._sights.get(window)
        if sight is None:
            sight = group._sights[window] = self._make_sight(group, window)
        return sight

    def _make_sight(self, group: Group, window: int | None) -> Sight:
        if group.tree is not None:
            return tree_sight(group.tree, group.bases, group.query, group.longest, window)
        places = self._places[group.start : group.stop].reshape(group.rows, group.query)
        return chain_sight(places, group.longest, window)

    def layer(self, layer: int) -> LayerStates:
        """Keys and values of a layer, those of this pass included once they are stored."""
        return LayerStates(self, layer, self._layout.layers[layer].window)

    # --- what Transformers models call

    def update(  # type: ignore[override]  # the states stay where they are, see `packed_attention`
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[LayerStates, LayerStates]:
        """Store keys and values `[1, kv_heads, tokens, dim]`; gives handles on all that the layer holds."""
        for chunk, start, stop in self._writes:
            where = self._slots[start:stop], self._columns[start:stop]
            chunk.keys[layer_idx][where[0], :, where[1]] = key_states[0, :, start:stop].transpose(0, 1)
            chunk.values[layer_idx][where[0], :, where[1]] = value_states[0, :, start:stop].transpose(0, 1)
        states = self.layer(layer_idx)
        return states, states

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        """Zero: positions are given explicitly."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns and first column of a mask over the packed tokens; no mask is made of it."""
        return query_length, 0


@dataclass(frozen=True, slots=True)
class LayerStates:
    """Keys and values of one layer, where they lie."""

    packed: PackedPass
    layer: int
    window: int | None
    expand: Expand | None = None

    def expanded(self, expand: Expand) -> tuple[LayerStates, LayerStates]:
        """The same, of a layer that keeps latents, of which `expand` makes keys and values."""
        states = replace(self, expand=expand)
        return states, states

    def attend(self, query: Tensor, scores: Scores, mask: Tensor | None) -> Tensor:
        """Attention of `query` `[1, heads, tokens, dim]`, `[1, tokens, heads, value_dim]`. The masks are our own."""
        if self.packed.attention is not None:
            return self._attend_in_order(self.packed.attention, query[0].transpose(0, 1).contiguous(), scores)[None]
        groups, padding = self.packed.groups, self.packed.padding
        outputs = [self._attend(group, query[0, :, group.start : group.stop], scores) for group in groups]
        if padding:
            outputs.append(outputs[0].new_zeros(padding, *outputs[0].shape[1:]))
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return joined[None]

    def _attend_in_order(self, attention: OrderedAttention, query: Tensor, scores: Scores) -> Tensor:
        """`query` and the result are `[tokens, heads, dim]`."""
        output: Tensor | None = None
        for group in self.packed.groups:
            keys, values, slot = group.chunk.keys[self.layer], group.chunk.values[self.layer], group.first
            if self.expand is not None:
                held = slice(group.first, group.last), slice(None), slice(group.longest)
                keys, values = (part.contiguous() for part in self.expand(keys[held], values[held]))
                slot = 0
            if output is None:
                output = query.new_zeros(*query.shape[:2], values.shape[3])
            own = slice(group.start, group.stop)
            sight = self.packed.sight(group, self.window)
            attention.attend(query[own], keys, values, slot, sight, scores, output[own])
        assert output is not None, "a pass has items"
        return output

    def _attend(self, group: Group, query: Tensor, scores: Scores) -> Tensor:
        """`query` `[heads, rows * query, dim]`; the result is `[rows * query, heads, value_dim]`."""
        view = self.packed.view(group, self.window, scores.written_out)
        keys = group.chunk.keys[self.layer][group.first : group.last, :, view.first : group.longest]
        values = group.chunk.values[self.layer][group.first : group.last, :, view.first : group.longest]
        if self.expand is not None:
            keys, values = self.expand(keys, values)
        by_row = query.view(query.shape[0], group.rows, group.query, -1).transpose(0, 1)
        output = attend(by_row, keys, values, view, scores)
        return output.permute(0, 2, 1, 3).reshape(group.rows * group.query, query.shape[0], -1).contiguous()


def _tree_group(item: Item, tree: Tree, bases: Sequence[int], start: int) -> Group:
    rows, count = item.rows, len(item.tokens)
    shortest, longest = min(bases) + len(tree), max(bases) + len(tree)
    last = rows.start + len(rows)
    return Group(rows.chunk, rows.start, last, count, shortest, longest, start, tree, bases)


def _place(item: Item) -> tuple[int, int, int]:
    """Sort key that puts neighbours in memory next to each other."""
    return len(item.tokens), id(item.rows.chunk), item.rows.start


def _writes(groups: Sequence[Group]) -> list[tuple[Chunk, int, int]]:
    """Stretches of the pass that go to one chunk."""
    writes: list[tuple[Chunk, int, int]] = []
    for group in groups:
        if writes and writes[-1][0] is group.chunk:
            writes[-1] = (group.chunk, writes[-1][1], group.stop)
        else:
            writes.append((group.chunk, group.start, group.stop))
    return writes


def _wanted(items: Sequence[Item], starts: dict[int, int]) -> list[int]:
    return [
        starts[index] + row * len(item.tokens) + position
        for index, item in enumerate(items)
        for row in range(len(item.rows))
        for position in range(len(item.tokens) - item.logits, len(item.tokens))
    ]
