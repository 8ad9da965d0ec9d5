"""One forward pass over many answers' tokens, as one row `[1, tokens]`.

Feeds with neighbouring rows in KV memory and equally many tokens share an attention call per layer. A feed with a tree
has its own call. Rows keep all keys; a layer with a window reads the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from common.engine.kv.memory import Layout, Rows, SlotChunk
from common.engine.model.errors import ModelError, Preempted
from common.engine.model.exact import (
    ANY_ROWS,
    KeyWindow,
    OrderedAttention,
    RowBlocks,
    Scores,
    Sight,
    Tree,
    attend,
    bits_of,
    chain_sight,
    tree_of,
    tree_sight,
)
from common.engine.streaming import Interrupt, StreamedLayers, Waiting

if TYPE_CHECKING:
    from common.engine.jobs import Job

_RAGGED = 1.5  # longest to shortest row of one call, at most, and
_SLACK = 64  # this many tokens more; beyond that, masked columns cost more than another call

Expand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# Bits of a layer's keys and values, slots and columns of consecutive tokens, and the first token.
Stretch = tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[np.int64], int]


@dataclass(slots=True, eq=False)
class Feed:
    """Tokens for every row of an answer; the last `logits` of them give logits.

    They are a chain, or with `parents` the last tokens of a tree (`exact.py`). With more parents than `tokens`, the
    rows already have the first nodes. So a tree may grow from pass to pass. A chain before it may be part of its first
    feed. `Rows.keep` then leaves one path in the rows.
    """

    rows: Rows
    tokens: Sequence[int]
    logits: int = 1
    parents: Sequence[int] | None = None  # of the tree's tokens: index of the parent, or `ROOT`
    behind: Sequence[Feed] = ()  # unless all are fed whole in the pass, this feed is left out
    job: Job = field(init=False)  # set by the loop
    running: bool = field(default=False, init=False)  # the answer had begun when the job was asked
    whole: bool = field(default=True, init=False)

    def cut(self, tokens: int) -> None:
        """Feeds only the first `tokens` tokens, without logits."""
        left = len(self.tokens) - tokens
        if left:
            self.whole, self.logits, self.tokens = False, 0, self.tokens[:tokens]
            self.parents = None if self.parents is None else self.parents[:-left]

    @property
    def size(self) -> int:
        return len(self.rows) * len(self.tokens)

    def tree(self) -> Tree | None:
        """The tree; None for a chain. Raises `ValueError` for parents that fit no tree."""
        if self.parents is None:
            return None
        if not 0 <= len(self.parents) - len(self.tokens) <= self.rows.fed:
            raise ValueError(
                f"{len(self.parents)} parents don't fit {len(self.tokens)} tokens after {self.rows.fed} in the rows"
            )
        return tree_of(self.parents)


@dataclass(slots=True)
class SlotGroup:
    """Consecutive slots with equally many tokens: one attention call per layer."""

    chunk: SlotChunk
    first: int  # slot
    last: int  # slot, exclusive
    query: int  # tokens per row
    shortest: int
    longest: int
    start: int  # first of the group's tokens in the pass
    tree: Tree | None = None
    bases: Sequence[int] = ()  # column of the tree's first token, per row
    _views: dict[tuple[int | None, bool], KeyWindow] = field(default_factory=dict)
    _sights: dict[int | None, Sight] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.last - self.first

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.query

    def reach(self, window: int | None) -> int | None:
        """The window, or None if no row is longer."""
        return None if window is not None and self.longest <= window else window

    def takes(self, feed: Feed, longest: int, shortest: int) -> bool:
        """Whether `feed` can join the group."""
        rows = feed.rows
        return (
            self.tree is None
            and rows.chunk is self.chunk
            and rows.start == self.last
            and len(feed.tokens) == self.query
            and max(longest, self.longest) <= _RAGGED * min(shortest, self.shortest) + _SLACK
        )


class PackedPass(Cache):
    """The pass as a Transformers cache; see `packed_attention`.

    `tokens` and `positions` are `[1, tokens]`. `wanted` `[logits]` are indices of tokens with logits, in order of
    feeds, rows and tokens; all after the first `logits` are padding. The rows' lengths change after the pass has
    succeeded.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        layout: Layout,
        blocks: RowBlocks = ANY_ROWS,
        attention: OrderedAttention | None = None,
    ) -> None:
        """Pads tokens, and logits if any, to whole `blocks`. Without `attention` uses PyTorch's own."""
        super().__init__(layers=[])
        self.attention = attention
        torch_device = layout.torch_device
        self._layout = layout
        self.groups: list[SlotGroup] = []
        order = sorted(range(len(feeds)), key=lambda index: _place(feeds[index]))
        columns: list[NDArray[np.int64]] = []
        positions: list[NDArray[np.int64]] = []  # differ from columns in a tree
        ids: list[NDArray[np.int64]] = []
        slots: list[NDArray[np.int64]] = []
        starts: dict[int, int] = {}
        total = 0
        for index in order:
            feed = feeds[index]
            rows, count = feed.rows, len(feed.tokens)
            lengths = np.asarray(rows.starts) + rows.fed
            tree = None if feed.parents is None else feed.tree()
            columns.append((lengths[:, None] + np.arange(count)).reshape(-1))
            if tree is None:
                self._join(feed, int(lengths.max()) + count, int(lengths.min()) + count, total)
                positions.append(columns[-1])
            else:
                bases = lengths + count - len(tree)
                self.groups.append(_tree_group(feed, tree, bases.tolist(), total))
                positions.append((bases[:, None] + tree.depths[-count:]).reshape(-1))
            ids.append(np.tile(np.asarray(feed.tokens), len(rows)))
            slots.append(np.repeat(np.arange(rows.start, rows.start + len(rows)), count))
            starts[index] = total
            total += len(rows) * count
        self.padding = blocks.padding(total)
        for arrays in (ids, columns, positions):
            arrays.append(np.zeros(self.padding, np.int64))
        wanted = _wanted(feeds, starts)
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

    def _join(self, feed: Feed, longest: int, shortest: int, start: int) -> None:
        rows = feed.rows
        if self.groups and self.groups[-1].takes(feed, longest, shortest):
            group = self.groups[-1]
            group.last += len(rows)
            group.longest, group.shortest = max(group.longest, longest), min(group.shortest, shortest)
            return
        first, count = rows.start, len(feed.tokens)
        self.groups.append(SlotGroup(rows.chunk, first, first + len(rows), count, shortest, longest, start))

    def view(self, group: SlotGroup, window: int | None, masked: bool) -> KeyWindow:
        """The keys visible to `group` within `window`, cached.

        With `masked`, the kernel's own causal mask is unused.
        """
        window = group.reach(window)
        view = group._views.get((window, masked))
        if view is None:
            view = group._views[window, masked] = self._make_view(self.sight(group, window), masked)
        return view

    def _make_view(self, sight: Sight, masked: bool) -> KeyWindow:
        if sight.full:
            return KeyWindow(sight.first)
        if sight.causal and not masked:
            return KeyWindow(sight.first, causal=True)
        hidden = torch.from_numpy(sight.hidden()).to(self._columns.device)[:, None]
        mask = torch.zeros(hidden.shape, dtype=self._layout.dtype, device=hidden.device)
        return KeyWindow(sight.first, mask.masked_fill_(hidden, float("-inf")))

    def sight(self, group: SlotGroup, window: int | None) -> Sight:
        """The columns visible to `group` within `window`, cached."""
        window = group.reach(window)
        sight = group._sights.get(window)
        if sight is None:
            sight = group._sights[window] = self._make_sight(group, window)
        return sight

    def _make_sight(self, group: SlotGroup, window: int | None) -> Sight:
        if group.tree is not None:
            return tree_sight(group.tree, group.bases, group.query, group.longest, window)
        places = self._places[group.start : group.stop].reshape(group.rows, group.query)
        return chain_sight(places, group.longest, window)

    def layer(self, layer: int) -> LayerStates:
        """A layer's states, including this pass once it is stored."""
        return LayerStates(self, layer, self._layout.layers[layer].window)

    def stretches(self, layer: int) -> Iterator[Stretch]:
        """Yields where the pass's tokens lie in a layer's memory; see `Stretch`."""
        for chunk, start, stop in self._writes:
            held = bits_of(chunk.keys[layer]), bits_of(chunk.values[layer])
            yield *held, self._slots[start:stop].numpy(), self._places[start:stop], start

    # --- called by Transformers models

    def update(  # type: ignore[override] # the states stay in place, see `packed_attention`
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[LayerStates, LayerStates]:
        """Stores keys and values `[1, kv_heads, tokens, dim]`. Returns handles on the layer's states."""
        for chunk, start, stop in self._writes:
            where = self._slots[start:stop], self._columns[start:stop]
            chunk.keys[layer_idx][where[0], :, where[1]] = key_states[0, :, start:stop].transpose(0, 1)
            chunk.values[layer_idx][where[0], :, where[1]] = value_states[0, :, start:stop].transpose(0, 1)
        states = self.layer(layer_idx)
        return states, states

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        """Zero: positions are explicit."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0


@dataclass(frozen=True, slots=True)
class LayerStates:
    """Keys and values of one layer, in place."""

    packed: PackedPass
    layer: int
    window: int | None
    expand: Expand | None = None

    def expanded(self, expand: Expand) -> tuple[LayerStates, LayerStates]:
        states = replace(self, expand=expand)
        return states, states

    def attend(self, query: Tensor, scores: Scores, mask: Tensor | None) -> Tensor:
        """As `HeldStates.attend`, with our own masks."""
        if self.packed.attention is not None:
            return self.attend_in_order(query[0].transpose(0, 1).contiguous(), scores)[None]
        groups, padding = self.packed.groups, self.packed.padding
        outputs = [self._attend(group, query[0, :, group.start : group.stop], scores) for group in groups]
        if padding:
            outputs.append(outputs[0].new_zeros(padding, *outputs[0].shape[1:]))
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return joined[None]

    def attend_in_order(self, query: Tensor, scores: Scores, output: Tensor | None = None) -> Tensor:
        """Attention by the pass's own kernel, `[tokens, heads, dim]`, optionally into `output`."""
        attention = self.packed.attention
        assert attention is not None
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
        assert output is not None, "a pass has feeds"
        return output

    def _attend(self, group: SlotGroup, query: Tensor, scores: Scores) -> Tensor:
        """`query` is `[heads, rows * query, dim]`, the result `[rows * query, heads, value_dim]`."""
        view = self.packed.view(group, self.window, scores.written_out)
        keys = group.chunk.keys[self.layer][group.first : group.last, :, view.first : group.longest]
        values = group.chunk.values[self.layer][group.first : group.last, :, view.first : group.longest]
        if self.expand is not None:
            keys, values = self.expand(keys, values)
        by_row = query.view(query.shape[0], group.rows, group.query, -1).transpose(0, 1)
        output = attend(by_row, keys, values, view, scores)
        return output.permute(0, 2, 1, 3).reshape(group.rows * group.query, query.shape[0], -1).contiguous()


def _tree_group(feed: Feed, tree: Tree, bases: Sequence[int], start: int) -> SlotGroup:
    rows, count = feed.rows, len(feed.tokens)
    shortest, longest = min(bases) + len(tree), max(bases) + len(tree)
    last = rows.start + len(rows)
    return SlotGroup(rows.chunk, rows.start, last, count, shortest, longest, start, tree, bases)


def _place(feed: Feed) -> tuple[int, int, int]:
    """Sort key by memory location."""
    return len(feed.tokens), id(feed.rows.chunk), feed.rows.start


def _writes(groups: Sequence[SlotGroup]) -> list[tuple[SlotChunk, int, int]]:
    writes: list[tuple[SlotChunk, int, int]] = []
    for group in groups:
        if writes and writes[-1][0] is group.chunk:
            writes[-1] = (group.chunk, writes[-1][1], group.stop)
        else:
            writes.append((group.chunk, group.start, group.stop))
    return writes


def _wanted(feeds: Sequence[Feed], starts: dict[int, int]) -> list[int]:
    return [
        starts[index] + row * len(feed.tokens) + position
        for index, feed in enumerate(feeds)
        for row in range(len(feed.rows))
        for position in range(len(feed.tokens) - feed.logits, len(feed.tokens))
    ]


# --- gate


class LayerGate:
    """Polls `interrupt` before every layer, and makes streamed layers wait for their weights."""

    def __init__(self, layers: Sequence[nn.Module], streamed: StreamedLayers | None) -> None:
        self._streamed = streamed
        self._first = len(layers) if streamed is None else streamed.first
        self._interrupt: Interrupt | None = None
        self._waiting: Waiting | None = None
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(lambda module, arguments, index=index: self.enter(index))
            if index >= self._first:
                layer.register_forward_hook(lambda module, arguments, output, index=index: self.leave(index))

    @contextmanager
    def passing(self, interrupt: Interrupt | None = None, waiting: Waiting | None = None) -> Iterator[None]:
        self._interrupt, self._waiting = interrupt, waiting
        try:
            yield
        except BaseException:
            if self._streamed is not None:
                self._streamed.rewind()
            raise
        finally:
            self._interrupt = self._waiting = None

    def enter(self, index: int) -> None:
        """Begins a layer, with its weights loaded. Raises `Preempted` if the pass is interrupted."""
        if self._interrupt is not None and self._interrupt():
            raise Preempted
        if self._streamed is not None and index >= self._first:
            self._streamed.enter(index, self._interrupt, self._waiting)

    def leave(self, index: int) -> None:
        if self._streamed is not None and index >= self._first:
            self._streamed.leave()


# --- reach
# The reach of a layer: how far back it looks, read from the mask that Transformers would make.

MaskFunction = Callable[[Any, Any, Tensor, Tensor], Tensor]

OTHERWISE = -1  # value of a mask of any other kind

_NEAR = 64  # columns checked one by one on both sides of an edge
_SPREAD = 1024


def reach_mask(
    *,
    mask_function: MaskFunction,
    q_length: int,
    kv_length: int,
    config: Any,
    local_size: int | None = None,
    device: torch.device | None = None,
    **kwargs: Any,
) -> Tensor:
    """A mask `[1, 1, query, keys]` with the layer's window as every number.

    The number counts visible tokens, the token itself included; 0 means all, `OTHERWISE` any other mask. Transformers
    calls this for every requested mask, even an unused one.
    """
    longest = getattr(config, "max_position_embeddings", None) or 2 * (local_size or 1)
    window = None if local_size is None or local_size >= longest else local_size
    places = [0, 1, 2, *(edge + step for edge in _edges(longest, window) for step in (-1, 0, 1, 2))]
    as_said = all(_sees(mask_function, place, window, device) for place in places if 0 <= place < longest)
    said = (window or 0) if as_said else OTHERWISE
    return torch.full((1, 1, q_length, kv_length), said, dtype=torch.int64, device=device)


def _edges(longest: int, window: int | None) -> Sequence[int]:
    return [longest // 2, longest - 1] if window is None else [window, 2 * window, longest // 2, longest - 1]


def _sees(mask_function: MaskFunction, place: int, window: int | None, device: torch.device | None) -> bool:
    oldest = 0 if window is None else max(0, place - window + 1)
    columns, only = _columns(place, oldest).to(device), torch.zeros((), dtype=torch.int64, device=device)
    seen = mask_function(only, only, only + place, columns).expand(columns.shape)
    return torch.equal(seen, (columns >= oldest) & (columns <= place))


def _columns(place: int, oldest: int) -> Tensor:
    """All columns near both ends of the visible range, and some others."""
    near = [torch.arange(edge - _NEAR, edge + _NEAR) for edge in (oldest, place)]
    spread = torch.linspace(0, place, _SPREAD, dtype=torch.float64).long()
    columns = torch.cat([*near, spread])
    return columns[columns >= 0]


# --- attention
# The attention functions that Transformers models call on our caches.

PACKED_ATTENTION = "dragon_packed"
PROBED_ATTENTION = "dragon_probed"  # the same, but models make masks that show the layers' reach
PLAIN_ATTENTION = "eager"  # implemented by every class, with its peculiarities

# Arguments that change scores or choose keys elsewhere. The load check finds any further ones.
_NOT_SERVED = {"position_bias": "adds a bias by distance to its scores", "indices": "chooses its keys by an index"}


class HeldStates(Protocol):
    def expanded(self, expand: Expand) -> tuple[HeldStates, HeldStates]:
        """The states of a layer with latents; `expand` turns them into keys and values."""
        ...

    def attend(self, query: Tensor, scores: Scores, mask: Tensor | None) -> Tensor:
        """Attention of `query` `[1, heads, tokens, dim]` as `[1, tokens, heads, value_dim]`."""
        ...


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | HeldStates,
    value: Tensor | HeldStates,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` `[1, heads, tokens, dim]` over our cache's states.

    The result is `[1, tokens, heads, dim]`. Tensor keys belong to a pass without a cache. Raises `ModelError` for an
    unsupported attention.
    """
    if isinstance(key, Tensor):
        if not isinstance(value, Tensor):
            raise TypeError("keys and values must belong to the same pass")
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    for name, meaning in _NOT_SERVED.items():
        if kwargs.get(name) is not None:
            raise ModelError(f"{type(module).__name__} {meaning} ({name}), which packed passes can't")
    return key.attend(query, Scores(scaling, softcap, s_aux), attention_mask), None


def register_packed_attention() -> str:
    """Registers `packed_attention` with Transformers and returns its name. Idempotent.

    Transformers builds no masks for a name without a mask interface.
    """
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    AttentionInterface.register(PROBED_ATTENTION, packed_attention)
    AttentionMaskInterface.register(PROBED_ATTENTION, reach_mask)
    return PACKED_ATTENTION


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Makes all parts of a model use the attention `name` meanwhile."""
    configs = {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config, _ in before:
            config._attn_implementation = name
        yield
    finally:
        for config, former in before:
            config._attn_implementation = former


def keep_latents(model: nn.Module) -> None:
    """Makes layers with latent attention (DeepSeek's) store latents in our caches."""
    for module in model.modules():
        expand = getattr(module, "expand_kv", None)
        if callable(expand):
            setattr(module, "expand_kv", _deferred(expand))  # noqa: B010 - mypy takes attributes for parts of modules


def _deferred(expand: Expand) -> Callable[..., Any]:
    def expand_kv(keys: Any, values: Any) -> Any:
        return expand(keys, values) if isinstance(keys, Tensor) else keys.expanded(expand)

    return expand_kv
