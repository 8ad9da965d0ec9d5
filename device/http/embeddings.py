"""`POST /v1/embeddings`: vectors of texts by the library's embedding model."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from common.answer.request import AnswerFailed
from device.http.errors import ApiError, answer_failed
from device.http.schema import Body
from device.http.tokens import LONGEST_TEXT, check_length
from device.interface import Engine

MOST_TEXTS = 2048
_AT_ONCE = 8  # texts, `LONGEST_TEXT` together; a question waits for a quarter of a second


def _texts(value: object) -> object:
    """Refuses token ids, which may be of another tokenizer."""
    if isinstance(value, list) and value and isinstance(value[0], int | list):
        raise ValueError("token ids can't be embedded, because they may be of another tokenizer; send the text")
    return [value] if isinstance(value, str) else value


class EmbeddingsBody(Body):
    """`POST /v1/embeddings`."""

    input: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, max_length=MOST_TEXTS),
        BeforeValidator(_texts, json_schema_input_type=str | list[str]),
    ]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)


async def embeddings(
    body: EmbeddingsBody, engine: Engine, notes: tuple[str, ...], wanted: Callable[[], Awaitable[None]]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the response, and `notes` with those on the texts. Raises `ApiError`.

    `wanted` raises once nobody needs the rest.
    """
    for index, text in enumerate(body.input):
        check_length(text, f"input[{index}]")
    data: list[dict[str, Any]] = []
    tokens, cut = 0, list[int]()
    for texts in _portions(body.input):
        await wanted()
        first = len(data)
        try:
            made = await asyncio.to_thread(engine.embed, texts)
        except AnswerFailed as error:
            raise answer_failed(str(error)) from None
        if body.dimensions not in (None, made.vectors.shape[1]):
            raise ApiError(
                400,
                f"This embedding model's vectors have {made.vectors.shape[1]} dimensions, and no other number.",
                param="dimensions",
                code="unsupported_value",
            )
        for vector in made.vectors:
            coded = _coded(vector, body.encoding_format)
            data.append({"object": "embedding", "index": len(data), "embedding": coded})
        tokens += made.tokens
        cut += [first + index for index in made.cut]
    if cut:
        notes = (
            *notes,
            f"Only the beginning of {len(cut)} texts was read; the embedding model takes no more.",
        )
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    value = {"object": "list", "data": data, "model": engine.embedder, "usage": usage, "dragon": {"notes": list(notes)}}
    return value, notes


def _portions(texts: list[str]) -> Iterator[list[str]]:
    portion, size = list[str](), 0
    for text in texts:
        length = len(text.encode())
        if portion and (len(portion) == _AT_ONCE or size + length > LONGEST_TEXT):
            yield portion
            portion, size = [], 0
        portion.append(text)
        size += length
    yield portion


def _coded(vector: NDArray[np.float32], encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
