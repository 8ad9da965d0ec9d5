"""`dragon models check`: what a model does on this machine.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.configuration.settings import Settings
from common.daemon.offline import evenly, no_room, profile
from common.engine.kv.errors import KvAllocationError, KvMemoryFullError
from common.engine.model.configured import load_decoder, model_place
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.gguf import MANIFEST, damaged_files
from common.engine.model.hub import damaged_blobs
from common.engine.model.location import locate
from common.engine.model.tokenizer import Tokenizer
from common.scoring.choice import scorer_without_model
from proto.fields import Exactness

CONTEXT = 512  # tokens, at half of which and at which a decode step is measured
DOCUMENTS = (1, 4)
MEBIBYTE = 2**20
_MEANING: Final[dict[Exactness, str]] = {
    "bit-exact": "the same bits alone, among neighbours, in chunks, in a tree and from stored keys and values",
    "rounded": "float32 differs in the last bits between passes; probabilities are rounded before they are used",
    "near": "numbers differ between passes, so that a repeated question may get another answer; use float32",
}


def check_model(settings: Settings, other: Settings) -> list[str]:
    """Load the model of `settings` and say what it takes; compare what both sides must share with the other side, whose
    settings are `other`. Raises `ModelError`, and `ValueError` for a scorer that can't be had, before loading.
    """
    weights = _weights(settings, other)
    place = Path(model_place(settings.model, settings.models))
    if os.path.exists(place / MANIFEST) and (damaged := damaged_files(place)):
        raise ModelError(f"{place}: {', '.join(damaged)} changed since the import; `dragon models remove {place.name}`")
    if not os.path.exists(place) and (damaged := damaged_blobs(locate(settings.model))):
        raise ModelError(f"{place}: {', '.join(damaged)} changed on this disk; `dragon models remove {place}`")
    before, began = _most_memory(), time.monotonic()
    decoder = load_decoder(settings)
    try:
        described = _described(decoder, time.monotonic() - began, _most_memory() - before)
        return [*described, *_timed(decoder), _compared(decoder.tokenizer, other), weights]
    finally:
        decoder.close()


def _described(decoder: Decoder, seconds: float, memory: int) -> list[str]:
    dtype = str(decoder.dtype).removeprefix("torch.")
    ends = ", ".join(map(str, sorted(decoder.eos)))
    size = f"{decoder.parameters / 1e6:,.1f} M parameters in {dtype}, {memory / MEBIBYTE:,.0f} MiB of memory"
    return [
        f"loaded in {seconds:.1f} s: {size}",
        f"context: {decoder.max_context:,} tokens; each takes {decoder.token_bytes / 1024:.1f} KiB for every document",
        f"numbers: {_sentence(decoder.exactness)}",
        _attention([layer.window for layer in decoder.layout.layers]),
        f"vocabulary: {decoder.vocabulary:,} tokens; an answer ends with {ends or 'none of them'}",
    ]


def _attention(windows: Sequence[int | None]) -> str:
    """A phrase for how far layers look back; `windows` in tokens, None for all."""
    parts = [
        f"{count} {'layers see' if count > 1 else 'layer sees'}"
        + (" all earlier tokens" if window is None else f" the last {window:,} tokens")
        for window, count in Counter(windows).items()
    ]
    return f"attention: {', '.join(parts)}"


def _timed(decoder: Decoder) -> list[str]:
    lengths = evenly(2, min(decoder.max_context - 1, CONTEXT))
    lines = []
    for rows in DOCUMENTS:
        try:
            measured = profile(decoder, rows, lengths, repeats=3)
            each = ", ".join(f"{1e3 * seconds:.1f} ms at {context} tokens" for context, seconds in measured.pairs)
        except (KvMemoryFullError, KvAllocationError) as error:
            each = no_room(error)
        lines.append(f"a token with {rows} document{'s' if rows > 1 else ''}: {each}")
    return lines


def _compared(tokenizer: Tokenizer, other: Settings) -> str:
    """A sentence that compares `tokenizer` with that of the other side, as it is configured on this machine."""
    try:
        theirs = Tokenizer.load(other.tokenizer or model_place(other.model, other.models))
    except ModelError as error:
        return f"the other side's model, as configured on this machine, can't be compared: {error}"
    if theirs.content_hash == tokenizer.content_hash:
        return "the other side's model, as configured on this machine, has the same tokenizer"
    return (
        "the other side's model, as configured on this machine, has another tokenizer: the sides can't answer together;"
        " configure two models of one family"
    )


def _weights(settings: Settings, other: Settings) -> str:
    """The scorer of this side, and whether the other side, as it is configured on this machine, agrees."""
    own, theirs = (_scorer(each) for each in (settings, other))
    kinds = [each.partition(":")[0] for each in (own, theirs)]
    if own == theirs:
        return f"document weights: {kinds[0]}, on the other side, too"
    return (
        f"document weights: {kinds[0]}; the other side's, as configured on this machine, are {kinds[1]} with other"
        " numbers: the sides can't answer together; set the same scorer, with the same table or model, on both"
    )


def _scorer(settings: Settings) -> str:
    """Identity of a scorer, as far as no model has to be loaded for it; its kind first."""
    scorer = scorer_without_model(settings)
    if scorer is not None:
        return scorer.identity
    return f"cross-encoder:{settings.scorer_model}:{settings.scorer_period}:{settings.scorer_scale}"


def _most_memory() -> int:
    """Bytes of memory that this process had at most so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _sentence(exactness: Exactness) -> str:
    """Says how far a model's numbers repeat."""
    return f"{exactness}: {_MEANING[exactness]}"
