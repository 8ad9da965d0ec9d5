"""`/library`: lists, searches and changes the device's documents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from pydantic import Field
from starlette.datastructures import QueryParams

from common.answer.request import AnswerFailed
from common.library.errors import LibraryBusy, LibraryError, PathError, UnknownDocument
from common.library.hit import Hit
from common.library.places import below
from common.library.store import FileRecord, StoredChunk
from common.library.tags import tags_of
from device.http.errors import SERVER_ERROR, ApiError, answer_failed, sentence_of
from device.http.schema import Body
from device.http.tokens import check_length
from device.interface import Listing

MOST_HITS = 50
USUAL_HITS = 8
MOST_DIGITS = 15  # of a number in an address
_DECIMAL = re.compile(f"[0-9]{{1,{MOST_DIGITS}}}")

Result = TypeVar("Result")


class FolderBody(Body):
    """`POST /library/folders`."""

    path: str = Field(min_length=1, max_length=4096)


def listing_json(listing: Listing) -> dict[str, Any]:
    return {
        "documents": [_document(file, tags_of(file.path, listing.tags)) for file in listing.documents],
        "watched": list(listing.watched),
        "readings": [
            asdict(reading) | {"skipped": [{"path": path, "reason": reason} for path, reason in reading.skipped]}
            for reading in listing.readings
        ],
        "uploads": listing.uploads,
    }


def hit_json(hit: Hit) -> dict[str, Any]:
    return asdict(hit)


def passage_json(chunk: StoredChunk) -> dict[str, Any]:
    path = below(chunk.path, chunk.root)
    return {"chunk": chunk.id, "title": chunk.title, "path": path, "place": chunk.place, "text": chunk.text}


def parse_query(query: QueryParams) -> tuple[str, int]:
    """Raises `ApiError`."""
    text = parameter(query, "query")
    check_length(text, "query")
    count = query.get("count", str(USUAL_HITS))
    if not _DECIMAL.fullmatch(count) or not 0 < int(count) <= MOST_HITS:
        raise _invalid("count", f"must be a number from 1 to {MOST_HITS}")
    return text, int(count)


def parameter(query: QueryParams, name: str) -> str:
    """Returns a parameter that must occur once. Raises `ApiError`."""
    given = query.getlist(name)
    if len(given) != 1 or not given[0].strip():
        raise _invalid(name, "must be in the address, once")
    return given[0]


def parse_number(text: str, name: str) -> int:
    """Raises `ApiError`."""
    if not _DECIMAL.fullmatch(text):
        raise _invalid(name, "must be a number")
    return int(text)


async def run_in_thread(work: Callable[[], Result]) -> Result:
    """Turns the library's errors into `ApiError`."""
    try:
        return await asyncio.to_thread(work)
    except AnswerFailed as error:
        raise answer_failed(str(error)) from None
    except UnknownDocument as error:
        raise ApiError(404, sentence_of(error), code="unknown_document") from None
    except PathError as error:
        raise ApiError(400, sentence_of(error), code="invalid_value") from None
    except LibraryBusy:
        raise ApiError(
            409, "The library is being changed; try again soon.", code="library_busy", headers={"retry-after": "1"}
        ) from None
    except LibraryError as error:
        raise ApiError(500, sentence_of(error), kind=SERVER_ERROR, code="library") from None


def _document(file: FileRecord, tags: Sequence[str]) -> dict[str, Any]:
    return {
        "id": file.id,
        "title": file.title,
        "path": file.relative_path,
        "root": file.root,
        "chunks": file.chunks,
        "bytes": file.size,
        "tags": list(tags),
        "remarks": list(file.remarks),
    }


def _invalid(name: str, what: str) -> ApiError:
    return ApiError(400, f"'{name}' {what}.", param=name, code="invalid_value")
