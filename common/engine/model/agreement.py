"""A check at load time that a model computes in packed passes what it computes without a cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from common.engine.model.errors import ModelError
from common.engine.model.packed import Item

if TYPE_CHECKING:
    from common.engine.kv.layout import Layout
    from common.engine.model.decoder import Decoder
    from common.engine.model.loading import LoadedModel

# Largest difference of two logits, as a share of the largest logit. float32 agrees to about 1e-6, bfloat16
# rounds every activation to 8 bits; a model that ignores positions or masks is off by far more.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 8e-2, torch.float16: 2e-2}

_AFFORDABLE = 2e10  # parameters times tokens of a pass: a second or two on a few cores


def check_agreement(decoder: Decoder, window: int, sparing: bool) -> None:
    """Compare rows of unequal length, a rollback and a joint pass with fresh passes over a few tokens.

    Some architectures compute positions or masks of their own (ALiBi, prefix models) and would be wrong
    without saying so. Raises `ModelError` for them.

    One row is twice as long as the shortest `window` that is declared (0: none), where a pass over so many tokens takes
    no time. Where it does, the window's length rests on `reach.py`, which has looked at both its edges in the mask that
    the class makes. With `sparing` there are half as many passes, none of them joint.
    """
    ids = [(7 * index + 3) % decoder.vocabulary for index in range(12)]
    documents, query = [_over_window(decoder, window) + ids[:5], [] if sparing else ids[5:7]], ids[7:9]
    try:
        rows, opened = decoder.open(documents, query, reserve=3)
        others = [] if sparing else [decoder.open([ids[2:5]], query, reserve=1)[0]]
        decoder.step(rows, ids[9:11])
        rows.crop(1)
        logits = decoder.forward([Item(rows, [ids[11]]), *(Item(other, [ids[10]]) for other in others)])
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
    """Passes through the first layers only, as many as have one of each kind among them, and 2 at least: what one layer
    makes of wrong positions may be within the tolerance. A class that does not ask its configuration for their number
    takes all.

    A streamed model is read from disk in every pass; its class is what is checked, and the same as a resident one's.
    """
    config: Any = loaded.model.config.get_text_config()
    whole = config.num_hidden_layers
    if len(layout.layers) == whole:  # else the last ones read what earlier ones keep
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
    """Tokens that fill the window twice; none without one, or where that is too many."""
    count = min(2 * window, decoder.max_context - 16)
    if count * decoder.parameters > _AFFORDABLE:
        return []
    return [(11 * index + 5) % decoder.vocabulary for index in range(count)]
