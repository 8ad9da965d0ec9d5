"""Documents that are to be read whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from common.answer.request import RequestError
from common.daemon.model_runtime import ModelRuntime
from common.daemon.side import Scope
from common.library.chunks import MOST_CHARACTERS_PER_TOKEN
from common.methods.rapid.long_context import WholeDocument, read_document
from tests.cloud.test_giving_up import OPEN
from tests.common.daemon.test_prompt_rows import CountingFormat
from tests.common.engine.model.test_tokenizer import DEMO_TOKENIZER

CONTEXT = 256


@pytest.fixture
def form() -> CountingFormat:
    return CountingFormat()


@pytest.fixture
def model(form: CountingFormat) -> ModelRuntime:
    decoder: Any = SimpleNamespace(max_context=CONTEXT, tokenizer=DEMO_TOKENIZER, rotation=None)
    scorer: Any = SimpleNamespace(gain=0.0)
    nothing: Any = None
    return ModelRuntime(decoder, nothing, scorer, form, nothing)


def read(model: ModelRuntime, *chunks: str) -> WholeDocument:
    hits = [SimpleNamespace(title="almanac", text=text, similarity=0.5) for text in chunks]
    side: Any = SimpleNamespace(passages=lambda *asked: hits, target=model)
    return read_document(side, "almanac", OPEN, Scope())


def test_one_that_has_room(model: ModelRuntime, form: CountingFormat) -> None:
    whole = read(model, "The kettle is red.", "The tea is from Assam.")
    assert whole.tokens == len(form.document_tokens("The kettle is red.\nThe tea is from Assam."))


def test_one_that_is_too_long_is_told_its_length(model: ModelRuntime, form: CountingFormat) -> None:
    text = "kettle " * CONTEXT
    needed = len(form.document_tokens(text))
    with pytest.raises(RequestError, match=f"it needs {needed} tokens, and question and answer leave {room(model)} "):
        read(model, text)


def test_of_one_that_is_much_too_long_the_beginning_tells(model: ModelRuntime, form: CountingFormat) -> None:
    """A peer may name the largest document of the library again and again; each time took seconds."""
    with pytest.raises(RequestError, match=f"it needs more than {room(model)} tokens, and question and answer leave"):
        read(model, *["kettle " * 100] * 2_000)
    assert form.characters <= CONTEXT * MOST_CHARACTERS_PER_TOKEN


def test_one_of_many_characters_and_few_tokens_has_room(
    model: ModelRuntime, form: CountingFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports have columns with wide gaps, of which some tokenizers make one token each."""
    made = form.document_tokens
    monkeypatch.setattr(form, "document_tokens", lambda text, budget=None: made(" ".join(text.split()), budget))
    gap = " " * CONTEXT * MOST_CHARACTERS_PER_TOKEN
    assert read(model, f"tea{gap}red").tokens == len(made("tea red"))


def room(model: ModelRuntime) -> int:
    return model.room(OPEN)
