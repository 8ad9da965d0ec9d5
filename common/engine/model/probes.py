"""Probes of a loaded model: KV layout, agreement with Transformers, equal bits, rotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from transformers import Cache

from common.answer.values import ROOT
from common.engine.kv.memory import DocumentStates, LayerShape, Layout, Rows
from common.engine.model.errors import ModelError
from common.engine.model.exact import Scores
from common.engine.model.loading import LoadedModel
from common.engine.model.packed import OTHERWISE, PROBED_ATTENTION, Expand, Feed, attention_of
from proto.messages import Exactness

if TYPE_CHECKING:
    from common.engine.model.decoder import Decoder


class _LayoutProbe(Cache):
    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}
        self.dtype = torch.float32

    def update(  # type: ignore[override]
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[_ProbedStates, _ProbedStates]:
        self.shapes[layer_idx] = LayerShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        self.dtype = key_states.dtype
        states = _ProbedStates(self, layer_idx, key_states, value_states)
        return states, states

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0

    def note_window(self, layer: int, window: int | None) -> None:
        if window == OTHERWISE:
            raise ModelError(
                "a layer's tokens see neither all earlier tokens nor a window of the last ones (attention in chunks or"
                " in both directions)"
            )
        if self.windows.setdefault(layer, window) != window:
            raise ModelError(f"layers that share the keys of layer {layer} look back over windows of several lengths")


@dataclass(frozen=True, slots=True)
class _ProbedStates:
    """A layer's states in a one-token pass. Its attention is its own value."""

    probe: _LayoutProbe
    layer: int
    key: Tensor
    value: Tensor

    def expanded(self, expand: Expand) -> tuple[_ProbedStates, _ProbedStates]:
        states = replace(self, value=expand(self.key, self.value)[1])
        return states, states

    def attend(self, query: Tensor, scores: Scores, mask: Tensor | None) -> Tensor:
        self.probe.note_window(self.layer, None if mask is None else int(mask.reshape(-1)[0]) or None)
        heads = query.shape[1] // self.value.shape[1]
        return self.value.repeat_interleave(heads, 1).transpose(1, 2)


@torch.inference_mode()
def find_layout(loaded: LoadedModel, run: Callable[[Tensor, Cache], object]) -> Layout:
    """Layout of the KV cache, from a pass over `[1, 1]` at position 0.

    Raises `ModelError`.
    """
    probe, layers, name = _LayoutProbe(), len(loaded.layers), type(loaded.model).__name__
    try:
        with attention_of(loaded.model, PROBED_ATTENTION):
            run(torch.zeros((1, 1), dtype=torch.int64, device=loaded.torch_device), probe)
    except ModelError as error:
        raise ModelError(f"{name} can't be served: {error}") from error
    except (AttributeError, TypeError) as error:
        raise ModelError(
            f"{name} can't be served: it computes masks or attention by itself, not through Transformers' interfaces"
        ) from error
    except (IndexError, KeyError, RuntimeError, ValueError) as error:
        raise ModelError(f"{name} doesn't run in a packed pass: {error}") from error
    shared = layers - len(probe.shapes)  # the last layers may read the keys of earlier ones (Gemma 3n)
    if not probe.shapes or sorted(probe.shapes) != list(range(layers - shared)):
        raise ModelError(
            f"{name} can't be served: it keeps keys and values for {len(probe.shapes)} of its {layers} layers; only"
            " models with attention in every layer are supported"
        )
    shapes = tuple(replace(probe.shapes[layer], window=probe.windows.get(layer)) for layer in sorted(probe.shapes))
    return Layout(shapes, probe.dtype, loaded.torch_device)


# --- agreement
# A load-time check of packed passes against passes without a cache.

# Largest difference of two logits, as a share of the largest logit. float32 agrees to about 1e-6, and bfloat16 rounds
# every activation to 8 bits. A model that ignores positions or masks is off by far more.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 8e-2, torch.float16: 2e-2}

_AFFORDABLE = 2e10  # parameters times tokens of a pass: a second or two on a few cores


def check_agreement(decoder: Decoder, window: int, sparing: bool) -> None:
    """Compares rows of unequal length, a rollback and a joint pass with fresh passes.

    Some architectures compute their own positions or masks (ALiBi, prefix models) and would be silently wrong. Raises
    `ModelError` for them.

    If affordable, one row is twice the shortest declared `window` (0: none). Otherwise the window rests on
    `reach_mask`, which checks both edges. `sparing` halves the passes and omits the joint one.
    """
    ids = [(7 * index + 3) % decoder.vocabulary for index in range(12)]
    documents, query = [_over_window(decoder, window) + ids[:5], [] if sparing else ids[5:7]], ids[7:9]
    try:
        rows, opened = decoder.open(documents, query, reserve=3)
        others = [] if sparing else [decoder.open([ids[2:5]], query, reserve=1)[0]]
        decoder.step(rows, ids[9:11])
        rows.crop(1)
        logits = decoder.forward([Feed(rows, [ids[11]]), *(Feed(other, [ids[10]]) for other in others)])
        for used in (rows, *others):
            decoder.memory.give_back(used)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"{decoder.architecture} doesn't run in a packed pass: {error}") from error
    pairs = [(logits[row], [*document, *query, ids[9], ids[11]]) for row, document in enumerate(documents)]
    if not sparing:
        pairs += [(opened[row], document + query) for row, document in enumerate(documents)]
        pairs.append((logits[-1], ids[2:5] + query + [ids[10]]))
    for computed, tokens in pairs:
        expected = _fresh(decoder, tokens)
        worst = float((computed - expected).abs().max())
        # Not `>`: a comparison with NaN is false.
        if not worst <= TOLERANCE[decoder.dtype] * max(float(expected.abs().max()), 1e-6):
            raise ModelError(
                f"{decoder.architecture} can't be served: its logits in a packed pass differ from a fresh pass by"
                f" {worst:.3g}, because its attention does not follow the given positions and masks"
            )


@contextmanager
def leading_layers(loaded: LoadedModel, layout: Layout) -> Iterator[None]:
    """Limits passes to the first layers: one of each kind, and at least 2.

    One layer's error may be within the tolerance. A class that ignores the configured number of layers runs all. For a
    streamed model, every pass reads the disk, and the check concerns only its class.
    """
    config: Any = loaded.model.config.get_text_config()
    whole = config.num_hidden_layers
    if len(layout.layers) == whole:  # else the last layers read states of earlier ones
        kinds = [
            (shape, *map(type, layer.modules())) for shape, layer in zip(layout.layers, loaded.layers, strict=True)
        ]
        config.num_hidden_layers = max(min(2, whole), *(kinds.index(kind) + 1 for kind in kinds))
    try:
        yield
    finally:
        config.num_hidden_layers = whole


def _fresh(decoder: Decoder, tokens: list[int]) -> Tensor:
    try:
        return decoder.fresh_logits(tokens)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"{decoder.architecture} doesn't run without a cache: {error}") from error


def _over_window(decoder: Decoder, window: int) -> list[int]:
    """Twice the window's tokens; empty if there is none or too many."""
    count = min(2 * window, decoder.max_context - 16)
    if count * decoder.parameters > _AFFORDABLE:
        return []
    return [(11 * index + 5) % decoder.vocabulary for index in range(count)]


# --- same_bits
# A load-time check that a token's bits are equal in all passes.

_TOKENS: Final = 96  # more than a tile of keys, and a row or two of products more than a multiple of them
_FEW_TOKENS: Final = 24
_SAME_BITS_AFFORDABLE: Final = 2e10  # parameters times tokens of a pass: a second or two on a few cores
_LAST: Final = 8  # tokens computed in several ways


def find_exactness(decoder: Decoder, sparing: bool) -> Exactness:
    """Compares the bits of some tokens' logits in all kinds of passes.

    `sparing` needs few passes.
    """
    if all(_same(decoder, sparing)):
        return "bit-exact"
    return "rounded" if decoder.dtype == torch.float32 else "near"


@torch.inference_mode()
def _same(decoder: Decoder, sparing: bool) -> Iterator[bool]:
    count = max(_FEW_TOKENS, min(_TOKENS, int(_SAME_BITS_AFFORDABLE / max(decoder.parameters, 1))))
    count = min(count, decoder.max_context)
    tokens = [(13 * index + 5) % decoder.vocabulary for index in range(count)]
    head, tail = tokens[: -min(_LAST, count // 2)], tokens[-min(_LAST, count // 2) :]
    taken: list[Rows] = []

    def rows(number: int = 1) -> Rows:
        taken.append(decoder.memory.take(number, count + len(tail)))
        return taken[-1]

    def after_head() -> Rows:
        stored = rows()
        stored.fill(0, taken[0].states(0))
        stored.starts[0] = len(head)
        return stored

    try:
        whole, chunked = rows(), rows()
        expected = decoder.forward([Feed(whole, tokens, len(tail)), Feed(chunked, head, 0)])
        yield torch.equal(expected[:1], decoder.forward([Feed(chunked, tail[:1])]))
        if sparing:
            return
        yield torch.equal(expected[1:], decoder.forward([Feed(chunked, tail[1:], len(tail) - 1)]))
        several = rows(3)
        for row in range(3):
            several.fill(row, whole.states(0))
            several.starts[row] = len(head)
        others = [Feed(after_head(), tail[:length]) for length in (1, 2, len(tail))]
        steps = decoder.forward([others[1], Feed(several, tail[:1]), others[2], others[0]])
        yield torch.equal(expected[[1, 0, 0, 0, len(tail) - 1, 0]], steps)
        # Every second token of the tree is an alternative to the tail's.
        branched = [token for each in tail for token in ((each + 1) % decoder.vocabulary, each)]
        parents = [2 * (place // 2) - 1 if place > 1 else ROOT for place in range(len(branched))]
        read = decoder.forward([Feed(after_head(), branched, len(branched), parents)])
        yield torch.equal(expected, read[1::2])
    finally:
        for each in taken:
            decoder.memory.give_back(each)


# --- rotation
# Moves a document's states in its row: rotary positions turn them by a known angle per token.
#
# A pass at loading shows whether and how a model turns its keys. Nothing is assumed from its class.

# Per layer, the turns of keys and values: index of the model's frequencies, and whether pairs interleave.
Turns = list[list[tuple[int, bool]]]
Run = Callable[[Tensor, Cache, Tensor], object]  # a plain pass over tokens `[1, n]` at positions `[1, n]`

# Largest norm of the difference between turned and computed key, as a share: rounding in all layers below.
ROTATION_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 8e-2, torch.float16: 2e-2}
_ROTATION_TOKENS: Final = 8
_MOVES: Final = (3, 61)  # tokens; multiples of a whole turn would show nothing
# Frequencies that depend on the length of the text.
_CHANGING: Final = frozenset({"dynamic", "longrope"})


@dataclass(frozen=True, slots=True)
class LayerRotation:
    """The turn of a layer's keys (latent attention: values) per position.

    Turns the first `2 n` dimensions in pairs, by [n] angles; none without positions.
    """

    angles: Tensor  # float64, radians
    interleaved: bool  # neighbours are pairs; else halves

    def turned(self, keys: Tensor, by: int) -> Tensor:
        """`keys` `[..., tokens, dim]`, moved `by` tokens on."""
        if not len(self.angles):
            return keys
        cos, sin = (by * self.angles).cos().float(), (by * self.angles).sin().float()
        pairs = len(self.angles)
        turning = keys[..., : 2 * pairs].float()
        if self.interleaved:
            first, second = turning[..., 0::2], turning[..., 1::2]
        else:
            first, second = turning[..., :pairs], turning[..., pairs:]
        parts = first * cos - second * sin, second * cos + first * sin
        turned = torch.stack(parts, -1).flatten(-2) if self.interleaved else torch.cat(parts, -1)
        return torch.cat([turned.to(keys.dtype), keys[..., 2 * pairs :]], -1)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The turns of keys and values, by layer."""

    layers: tuple[tuple[LayerRotation, LayerRotation], ...]

    @torch.inference_mode()
    def moved(self, states: DocumentStates, by: int) -> DocumentStates:
        """`states` moved `by` tokens on."""
        pairs = zip(self.layers, states, strict=True)
        return tuple((turn.turned(keys, by), others.turned(values, by)) for (turn, others), (keys, values) in pairs)


@torch.inference_mode()
def find_turns(loaded: LoadedModel, layout: Layout, run: Run) -> Turns | None:
    """The turns of `loaded`, from passes by `run`.

    None if positions can't be moved or this is unknown: they are learned, depend on the length, or the model is
    streamed.
    """
    if loaded.streamed is not None or not has_fixed_turns(loaded):
        return None
    tokens = torch.arange(_ROTATION_TOKENS, device=loaded.torch_device)[None] * 7 + 3
    tokens %= loaded.tokenizer.size
    places = torch.arange(_ROTATION_TOKENS, device=loaded.torch_device)[None]
    read: list[_KeptStates] = []
    for move in (0, *_MOVES):
        read.append(_KeptStates())
        try:
            run(tokens, read[-1], places + move)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return None
    known = list(_angles(loaded))
    layers: Turns = []
    for layer in range(len(layout.layers)):
        turns = [_turn([kept.states[layer][part] for kept in read], known, layout.dtype) for part in (0, 1)]
        if turns[0] is None or turns[1] is None:
            return None
        layers.append([turns[0], turns[1]])
    return layers


def rotation_of(loaded: LoadedModel, turns: Turns | None) -> Rotation | None:
    if turns is None:
        return None
    known = list(_angles(loaded))
    made = [[LayerRotation(known[place], interleaved) for place, interleaved in layer] for layer in turns]
    return Rotation(tuple((keys, values) for keys, values in made))


class _KeptStates(Cache):
    def __init__(self) -> None:
        super().__init__(layers=[])
        self.states: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.states[layer_idx] = key_states, value_states
        return key_states, value_states

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0


def _turn(read: Sequence[Tensor], known: Sequence[Tensor], dtype: torch.dtype) -> tuple[int, bool] | None:
    """Finds the turn from the first of `read` to the others."""
    here, *there = read
    for (place, angles), interleaved in product(enumerate(known), (False, True)):
        turn = LayerRotation(angles, interleaved)
        if 2 * len(angles) <= here.shape[-1] and all(
            _near(turn.turned(here, move), keys, dtype) for move, keys in zip(_MOVES, there, strict=True)
        ):
            return place, interleaved
    return None


def _near(turned: Tensor, keys: Tensor, dtype: torch.dtype) -> bool:
    return float((turned.float() - keys.float()).norm()) <= ROTATION_TOLERANCE[dtype] * float(keys.float().norm())


def _angles(loaded: LoadedModel) -> Iterator[Tensor]:
    """Yields the model's frequencies, after none for layers without positions."""
    yield torch.zeros(0, dtype=torch.float64, device=loaded.torch_device)
    for name, buffer in loaded.model.named_buffers():
        if name.endswith("inv_freq") and "original" not in name and buffer.ndim == 1:
            yield buffer.double()


def has_fixed_turns(loaded: LoadedModel) -> bool:
    """Whether no frequency depends on the length of the text."""
    return not _CHANGING & set(_kinds(loaded))


def _kinds(loaded: LoadedModel) -> Iterator[str]:
    config: Any = loaded.model.config.get_text_config()
    told = getattr(config, "rope_parameters", None) or {}
    for each in (told, *(part for part in told.values() if isinstance(part, dict))):
        yield str(each.get("rope_type", "default"))
