"""Moves a document's keys and values to another place of the row: rotary positions turn them by a known angle a token.

A pass at loading says how a model turns its keys, if it does; nothing is taken from its class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor
from transformers import Cache

from common.engine.kv.layout import DocumentStates, Layout
from common.engine.model.loading import LoadedModel

# For each layer the turns of its keys and of its values: which of the model's frequencies, and if pairs interleave.
Turns = list[list[tuple[int, bool]]]
Run = Callable[[Tensor, Cache, Tensor], object]  # a plain pass over tokens `[1, n]` at positions `[1, n]`

# Norm of what a turned key lacks to the one computed at that place, as a share: rounding, in all layers below.
TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 8e-2, torch.float16: 2e-2}
_TOKENS: Final = 8
_MOVES: Final = (3, 61)  # tokens; by multiples of a whole turn nothing would be seen
# Frequencies that depend on the length of what is read.
_CHANGING: Final = frozenset({"dynamic", "longrope"})


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a layer's keys (of latent attention: its values) from one position to the next: the first `2 n`
    dimensions in pairs, [n] angles; none where they know no positions.
    """

    angles: Tensor  # float64, radians
    interleaved: bool  # neighbours are pairs; else the first half with the second

    def turned(self, keys: Tensor, by: int) -> Tensor:
        """`keys` `[..., tokens, dim]` as they are `by` tokens further on."""
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
    """The turns of keys and of values, by layer."""

    layers: tuple[tuple[Turn, Turn], ...]

    @torch.inference_mode()
    def moved(self, states: DocumentStates, by: int) -> DocumentStates:
        """`states` as if their tokens stood `by` tokens further on."""
        pairs = zip(self.layers, states, strict=True)
        return tuple((turn.turned(keys, by), others.turned(values, by)) for (turn, others), (keys, values) in pairs)


@torch.inference_mode()
def find_turns(loaded: LoadedModel, layout: Layout, run: Run) -> Turns | None:
    """The turns of `loaded`, from passes that `run` makes.

    None where its positions can't be moved, or where that is not known: they are learned, or change with the length, or
    a pass would read its weights from disk.
    """
    if loaded.streamed is not None or _CHANGING & set(_kinds(loaded)):
        return None
    tokens = torch.arange(_TOKENS, device=loaded.torch_device)[None] * 7 + 3
    tokens %= loaded.tokenizer.size
    places = torch.arange(_TOKENS, device=loaded.torch_device)[None]
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
    """The rotation that consists of `turns`; None without any."""
    if turns is None:
        return None
    known = list(_angles(loaded))
    made = [[Turn(known[place], interleaved) for place, interleaved in layer] for layer in turns]
    return Rotation(tuple((keys, values) for keys, values in made))


class _KeptStates(Cache):
    """A cache that keeps what one pass gives it."""

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
    """The turn that makes what the model has further on of what it has at the beginning, the first of `read`."""
    here, *there = read
    for (place, angles), interleaved in product(enumerate(known), (False, True)):
        turn = Turn(angles, interleaved)
        if 2 * len(angles) <= here.shape[-1] and all(
            _near(turn.turned(here, move), keys, dtype) for move, keys in zip(_MOVES, there, strict=True)
        ):
            return place, interleaved
    return None


def _near(turned: Tensor, keys: Tensor, dtype: torch.dtype) -> bool:
    return float((turned.float() - keys.float()).norm()) <= TOLERANCE[dtype] * float(keys.float().norm())


def _angles(loaded: LoadedModel) -> Iterator[Tensor]:
    """Frequencies that the model's modules hold, several where kinds of layers have their own; and none, for layers
    without positions.
    """
    yield torch.zeros(0, dtype=torch.float64, device=loaded.torch_device)
    for name, buffer in loaded.model.named_buffers():
        if name.endswith("inv_freq") and "original" not in name and buffer.ndim == 1:
            yield buffer.double()


def _kinds(loaded: LoadedModel) -> Iterator[str]:
    """Kinds of rotary positions in the configuration, one or one for each kind of layer."""
    config: Any = loaded.model.config.get_text_config()
    told = getattr(config, "rope_parameters", None) or {}
    for each in (told, *(part for part in told.values() if isinstance(part, dict))):
        yield str(each.get("rope_type", "default"))
