"""`POST /tokenize` and `POST /detokenize`, as llama.cpp's server has them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from device.http.errors import ApiError, sentence_of
from device.http.schema import MOST_IDS, Body
from device.interface import Engine


class TokenizeBody(Body):
    """`POST /tokenize`. Special tokens are neither added nor recognised: a text is only text here."""

    content: str
    with_pieces: bool = False


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MOST_IDS)]


def tokenized(body: TokenizeBody, engine: Engine) -> dict[str, Any]:
    """Token ids of the text, each with its piece if that is asked for."""
    ids = engine.encode(body.content)
    return {"tokens": [{"id": each, "piece": engine.decode([each])} for each in ids] if body.with_pieces else ids}


def detokenized(body: DetokenizeBody, engine: Engine) -> dict[str, Any]:
    """The text of the ids. Raises `ApiError` (400) for one that the model does not have."""
    try:
        return {"content": engine.decode(body.tokens)}
    except ValueError as error:
        raise ApiError(400, sentence_of(error), param="tokens", code="invalid_value") from None
