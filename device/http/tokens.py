"""`POST /tokenize` and `POST /detokenize`, as llama.cpp's server has them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import FailFast, Field

from device.http.errors import ApiError, sentence_of, text_too_long
from device.http.schema import MOST_IDS, Body
from device.interface import Engine

LONGEST_TEXT = 2**16  # bytes: several of the longest prompts, a tenth of a second


class TokenizeBody(Body):
    """`POST /tokenize`. Special tokens are neither added nor recognised: a text is only text here."""

    content: str
    with_pieces: bool = False


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MOST_IDS), FailFast()]


def tokenized(body: TokenizeBody, engine: Engine) -> dict[str, Any]:
    """Raises `ApiError` (413)."""
    check_length(body.content, "content")
    ids = engine.encode(body.content)
    if not body.with_pieces:
        return {"tokens": ids}
    pieces = {each: engine.piece(each) for each in set(ids)}
    return {"tokens": [{"id": each, "piece": pieces[each]} for each in ids]}


def check_length(text: str, param: str) -> None:
    """Raises `ApiError` (413) for a slow text."""
    if (size := len(text.encode())) > LONGEST_TEXT:
        raise text_too_long(param, size, LONGEST_TEXT)


def detokenized(body: DetokenizeBody, engine: Engine) -> dict[str, Any]:
    """Raises `ApiError` (400) for an unknown id."""
    try:
        return {"content": engine.decode(body.tokens)}
    except ValueError as error:
        raise ApiError(400, sentence_of(error), param="tokens", code="invalid_value") from None
