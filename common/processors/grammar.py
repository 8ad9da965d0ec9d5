"""Formats of answers: allowed next tokens, by llguidance."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from common.processors.calls import ProcessorError
from common.processors.trial import always, shorten_complaint, why_not

# Limits of a compiled grammar's cost: about 10 ms per step, 50 MB.
_LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=150_000,
    step_max_items=50_000,
    max_lexer_states=25_000,
    max_grammar_size=50_000,
)
KEPT: Final = 32  # compiled or refused grammars
_SILENT: Final = 0  # level of its own log
_LEFT: Final = "doesn't satisfy the grammar"  # its error for a token; other errors concern its limits


class Described(Protocol):
    @property
    def description(self) -> str: ...


class Grammars:
    """The grammars of formats for one tokenizer. Thread-safe; known ones need no wait."""

    def __init__(self, tokenizer: Described, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._tokens: dict[tuple[int, ...], LLTokenizer] = {}
        self._known: OrderedDict[bytes, LLMatcher | str] = OrderedDict()  # or the refusal; least recently used first
        self._using = threading.Lock()  # guards these
        self._making = threading.Lock()

    def compile(self, grammar: str, eos: Sequence[int], wanted: Callable[[], bool] = always) -> Grammar:
        """Compiles `grammar`, in llguidance's notation, for answers ending with any of `eos`.

        Raises `ValueError`, half a sentence, for an invalid, expensive or unenforceable one, and `Unwanted` once
        `wanted` returns False.
        """
        if not eos:
            raise ValueError("the model has no end-of-sequence token")
        key = hashlib.blake2b(f"{[*eos]}{grammar}".encode()).digest()
        made = self._find(key)
        if made is None:
            with self._making:
                made = self._find(key) or self._make(grammar, tuple(eos), wanted)
                self._keep(key, made)
        if isinstance(made, str):
            raise ValueError(made)
        return Grammar(made.deep_copy(), self._vocabulary)

    def _find(self, key: bytes) -> LLMatcher | str | None:
        with self._using:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def _keep(self, key: bytes, made: LLMatcher | str) -> None:
        with self._using:
            self._known[key] = made
            if len(self._known) > KEPT:
                self._known.popitem(last=False)

    def _make(self, grammar: str, eos: tuple[int, ...], wanted: Callable[[], bool]) -> LLMatcher | str:
        """Returns the refusal as a text. Raises `Unwanted`, and `ValueError` as `why_not`."""
        reason = why_not(grammar, wanted)
        if reason is not None:
            return reason
        if eos not in self._tokens:  # half a second at 50,000 tokens
            self._tokens = {eos: LLTokenizer(self._tokenizer.description, n_vocab=self._vocabulary, eos_token=[*eos])}
        matcher = LLMatcher(self._tokens[eos], grammar, log_level=_SILENT, limits=_LIMITS)
        return shorten_complaint(matcher.get_error()) if matcher.is_error() else matcher


class Grammar:
    """The allowed next tokens in one answer. For the engine's thread."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._consumed: list[int] = []

    def allowed(self, path: list[int]) -> torch.Tensor:
        """Permitted tokens after `path`, bool [vocab].

        Drafts are rolled back, so successive paths may differ in any way. Raises `ProcessorError` for a path outside of
        the format, and for too much work.
        """
        held = self._consumed
        if held != path[: len(held)]:
            common = zip(held, path, strict=False)
            kept = next((n for n, (old, new) in enumerate(common) if old != new), min(len(held), len(path)))
            self._matcher.rollback(len(held) - kept)
            del held[kept:]
        following = path[len(held) :]
        if following and not self._matcher.consume_tokens(following):
            raise self._failure()
        held += following
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise self._failure()
        return torch.from_numpy(np.unpackbits(bits, count=self._vocabulary, bitorder="little").astype(np.bool_))

    def _failure(self) -> ProcessorError:
        left = _LEFT in self._matcher.get_error()
        said = "The answer left its format." if left else "The format of the answer takes too much work to follow."
        return ProcessorError(said, "response_format")
