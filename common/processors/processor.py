"""The adjustments of one answer, position by position."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from common.processors.adjustment import Adjustment
from common.processors.calls import call_grammar
from common.processors.grammar import Grammar, Grammars
from common.processors.options import ProcessorError, ProcessorOptions, received
from common.processors.trial import always, json_grammar
from common.sampling.warping import Warp
from proto.messages import Open


class Processor:
    """Biases, penalties, format and truncation of one answer. For the engine's thread."""

    def __init__(
        self,
        options: ProcessorOptions,
        vocabulary: int,
        grammar: Grammar | None,
        top_p: float,
        cut: Warp | None = None,
    ) -> None:
        """Raises `ProcessorError` for a bias of a token that there is not."""
        if any(token >= vocabulary for token in options.logit_bias):
            raise ProcessorError(f"A token of 'logit_bias' is from 0 to {vocabulary - 1}.", "logit_bias")
        self._ids = np.fromiter(options.logit_bias.keys(), np.int64)
        self._biases = np.fromiter(options.logit_bias.values(), np.float64)
        self._presence = options.presence_penalty
        self._frequency = options.frequency_penalty
        self._grammar = grammar
        self._top_p = top_p
        self._cut = cut

    def at(self, path: list[int]) -> Adjustment:
        """The adjustment of the distribution that follows the answer's tokens `path`. Raises as `Grammar.allowed`."""
        ids, biases = self._ids, self._biases
        if path and (self._presence or self._frequency):
            seen, counts = np.unique(np.asarray(path, np.int64), return_counts=True)
            penalties = -self._presence - self._frequency * counts
            ids, places = np.unique(np.concatenate([ids, seen]), return_inverse=True)
            biases = np.bincount(places, np.concatenate([biases, penalties])).astype(np.float64)
        allowed = None if self._grammar is None else self._grammar.allowed(path)
        return Adjustment(ids, biases, allowed, self._top_p, self._cut)


def make_processor(
    request: Open,
    vocabulary: int,
    tokens: Grammars,
    wanted: Callable[[], bool] = always,
    cut: Warp | None = None,
) -> Processor | None:
    """The processor of an answer; None when nothing changes its distribution. `cut` is for a race in the place of a
    sampler that truncates by itself.

    Raises `ProcessorError`, and `Unwanted` when the answer is not `wanted` any more while its format is compiled.
    """
    options = received(request.processors)
    if not 0 < request.top_p <= 1:
        raise ProcessorError(f"'top_p' must be above 0 and at most 1, not {request.top_p:g}.", "top_p")
    # The paper's sampler truncates what it sends, see `common.sampling.truncation`.
    top_p = request.top_p if request.sampler == "race" else 1.0
    if not request.processors and top_p == 1.0 and cut is None:
        return None
    grammar = None
    if options.response_format is not None or options.calls is not None:
        field = "response_format" if options.calls is None else "tools"
        try:
            grammar = tokens.compile(_text(options), request.eos, wanted)
        except ValueError as error:
            raise ProcessorError(f"The format of the answer can't be used: {error}.", field) from None
    return Processor(options, vocabulary, grammar, top_p, cut)


def _text(options: ProcessorOptions) -> str:
    """The grammar of the answer's format, as llguidance reads it. Raises `ValueError`, half a sentence."""
    if options.calls is not None:
        return call_grammar(options.calls, options.response_format)
    return json_grammar(options.response_format or "{}")
