"""Makes a row's tokens from a document and a question."""

from __future__ import annotations

from dataclasses import dataclass

from common.model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """Templates of a row's two parts, `[document][query]`.

    The parts are encoded separately and concatenated, so that a document's tokens, and with them its KV, are
    the same under every question.
    """

    document: str = " {document}"
    query: str = "\nQuestion: {question}\nAnswer:"

    def __post_init__(self) -> None:
        for template, place in ((self.document, "{document}"), (self.query, "{question}")):
            if template.count(place) != 1:
                raise ValueError(f"the template {template!r} must contain {place} exactly once")

    def query_text(self, question: str) -> str:
        """The query part as text (a request's `prompt`)."""
        return self.query.replace("{question}", question)

    def query_tokens(self, tokenizer: Tokenizer, question: str) -> list[int]:
        """Token ids of the query part."""
        return tokenizer.encode(self.query_text(question))

    def document_tokens(self, tokenizer: Tokenizer, text: str, budget: int | None = None) -> list[int]:
        """Token ids of the document part, begin token included, cut to `budget` tokens at the document's end.

        What the template puts after the document is kept. Raises `ValueError` for a budget that the template
        alone exceeds.
        """
        before, after = self.document.split("{document}")
        begin = [] if tokenizer.begin is None else [tokenizer.begin]
        closing = tokenizer.encode(after) if after else []
        tokens = begin + tokenizer.encode(before + text)
        if budget is not None:
            room = budget - len(closing)
            if room < len(begin):
                raise ValueError(f"a budget of {budget} tokens holds no document in {self.document!r}")
            tokens = tokens[:room]
        return tokens + closing
