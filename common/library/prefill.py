"""Computes the keys and values of a library's chunks before the first question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.engine.model.decoder import Decoder
from common.engine.model.prompt import PromptFormat

ReportProgress = Callable[[int], None]  # chunks looked at so far


@dataclass(frozen=True, slots=True)
class PrefillReport:
    """Result of a prefill in distinct chunks."""

    computed: int
    there: int  # computed by an earlier run or an answer
    too_long: int  # for the model's context: every question truncates them differently
    beyond: int  # left out: the store is too small
    failed: int  # computed, but not written


def prefill_chunks(decoder: Decoder, form: PromptFormat, texts: Sequence[str], told: ReportProgress) -> PrefillReport:
    """Stores every chunk's keys and values, as far as they fit together.

    A run skips finished chunks, e.g. after an interruption. Raises `ValueError` for a decoder without a store.
    """
    store = decoder.document_cache.store
    if store is None:
        raise ValueError("the decoder keeps no documents on disk")
    computed = there = too_long = beyond = room = 0
    before = store.counters.failed
    seen = set()
    for number, text in enumerate(texts):
        told(number)
        tokens = tuple(form.document_tokens(text))
        if tokens in seen or not tokens:
            continue
        seen.add(tokens)
        if len(tokens) >= decoder.max_context:
            too_long += 1
            continue
        size = store.file_bytes(len(tokens))
        if room + size > store.steady_bytes:
            beyond += 1
            continue
        room += size
        new = decoder.prefill(tokens)
        computed += new
        there += not new
    told(len(texts))
    return PrefillReport(computed, there, too_long, beyond, store.counters.failed - before)
