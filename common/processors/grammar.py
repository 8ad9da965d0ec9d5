"""Formats of answers: which tokens may follow, by llguidance."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from common.model.tokenizer import Tokenizer
from common.processors.options import ProcessorError
from common.processors.trial import SPACING, sentence, why_not

# What a schema that was compiled may still cost: some 10 ms for a step, 50 MB.
_LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=150_000,
    step_max_items=50_000,
    max_lexer_states=25_000,
    max_grammar_size=50_000,
)
KEPT: Final = 32  # compiled schemas
_SILENT: Final = 0  # of its own log


class Grammars:
    """The grammars of JSON schemas for one tokenizer. For any thread; those that are known cost nobody a wait."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._tokens: dict[tuple[int, ...], LLTokenizer] = {}
        self._matchers: dict[tuple[str, tuple[int, ...]], LLMatcher] = {}  # oldest first
        self._making = threading.Lock()

    def compile(self, schema: str, eos: Sequence[int]) -> Grammar:
        """The JSON schema's grammar, whose answers may end with any of `eos`.

        Raises `ValueError`, half a sentence, for a schema that is none, costs too much, or has what can't be enforced.
        """
        if not eos:
            raise ValueError("the model has no end-of-sequence token")
        key = schema, tuple(eos)
        matcher = self._matchers.get(key)
        if matcher is None:
            with self._making:
                matcher = self._matchers.get(key) or self._make(*key)
                self._matchers[key] = matcher
                if len(self._matchers) > KEPT:
                    del self._matchers[next(iter(self._matchers))]
        return Grammar(matcher.deep_copy(), self._vocabulary)

    def _make(self, schema: str, eos: tuple[int, ...]) -> LLMatcher:
        reason = why_not(schema)
        if reason is not None:
            raise ValueError(reason)
        if eos not in self._tokens:  # half a second at 50,000 tokens
            self._tokens = {eos: LLTokenizer(self._tokenizer.description, n_vocab=self._vocabulary, eos_token=[*eos])}
        grammar = LLMatcher.grammar_from_json_schema(schema, overrides=SPACING)
        matcher = LLMatcher(self._tokens[eos], grammar, log_level=_SILENT, limits=_LIMITS)
        if matcher.is_error():
            raise ValueError(sentence(matcher.get_error()))
        return matcher


class Grammar:
    """The tokens that may come next in one answer. For the engine's thread."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._consumed: list[int] = []

    def allowed(self, path: list[int]) -> torch.Tensor:
        """The tokens that may follow `path`, bool [vocab].

        Paths may be longer, shorter or other ones than before: drafts are rolled back. Raises `ProcessorError` for one
        that is not in the format, and when the format takes too much work.
        """
        held = self._consumed
        if held != path[: len(held)]:
            common = zip(held, path, strict=False)
            kept = next((n for n, (old, new) in enumerate(common) if old != new), min(len(held), len(path)))
            self._matcher.rollback(len(held) - kept)
            del held[kept:]
        following = path[len(held) :]
        if following and not self._matcher.consume_tokens(following):
            raise ProcessorError("The answer left its format.", "response_format")
        held += following
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise ProcessorError("The format of the answer takes too much work to follow.", "response_format")
        return torch.from_numpy(np.unpackbits(bits, count=self._vocabulary, bitorder="little").astype(np.bool_))
