"""A check at load time whether a token's numbers are the same bits, whatever it is computed with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import torch

from common.answer.values import ROOT
from common.engine.kv.memory import Rows
from common.engine.model.packed import Item
from proto.fields import Exactness

if TYPE_CHECKING:
    from common.engine.model.decoder import Decoder

_TOKENS: Final = 96  # more than a tile of keys, and a row or two of products more than a multiple of them
_FEW_TOKENS: Final = 24
_AFFORDABLE: Final = 2e10  # parameters times tokens of a pass: a second or two on a few cores
_LAST: Final = 8  # tokens that are computed in several ways


def find_exactness(decoder: Decoder, sparing: bool) -> Exactness:
    """Compute some tokens in every way in which passes do, and compare all bits of their logits.

    With `sparing`, in few passes.
    """
    if all(_same(decoder, sparing)):
        return "bit-exact"
    return "rounded" if decoder.dtype == torch.float32 else "near"


@torch.inference_mode()
def _same(decoder: Decoder, sparing: bool) -> Iterator[bool]:
    count = max(_FEW_TOKENS, min(_TOKENS, int(_AFFORDABLE / max(decoder.parameters, 1))))
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
        expected = decoder.forward([Item(whole, tokens, len(tail)), Item(chunked, head, 0)])
        yield torch.equal(expected[:1], decoder.forward([Item(chunked, tail[:1])]))
        if sparing:
            return
        yield torch.equal(expected[1:], decoder.forward([Item(chunked, tail[1:], len(tail) - 1)]))
        several = rows(3)
        for row in range(3):
            several.fill(row, whole.states(0))
            several.starts[row] = len(head)
        others = [Item(after_head(), tail[:length]) for length in (1, 2, len(tail))]
        steps = decoder.forward([others[1], Item(several, tail[:1]), others[2], others[0]])
        yield torch.equal(expected[[1, 0, 0, 0, len(tail) - 1, 0]], steps)
        # Every second token of the tree is another one beside the tail's.
        branched = [token for each in tail for token in ((each + 1) % decoder.vocabulary, each)]
        parents = [2 * (place // 2) - 1 if place > 1 else ROOT for place in range(len(branched))]
        read = decoder.forward([Item(after_head(), branched, len(branched), parents)])
        yield torch.equal(expected, read[1::2])
    finally:
        for each in taken:
            decoder.memory.give_back(each)
