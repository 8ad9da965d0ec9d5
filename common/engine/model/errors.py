"""Errors of the model layer."""

from __future__ import annotations


class ModelError(ValueError):
    """A model or tokenizer can't be used. The text names it, the reason and the remedy."""


class ContextError(ValueError):
    """More tokens than the model's context allows.

    `needed` and `limit` are in tokens; `longest_document` is the longest row's document part.
    """

    def __init__(self, text: str, *, needed: int, limit: int, longest_document: int = 0) -> None:
        super().__init__(text)
        self.needed = needed
        self.limit = limit
        self.longest_document = longest_document


class Preempted(Exception):
    """A forward pass stopped between two layers because `interrupt()` returned true.

    The rows are unchanged.
    """
