"""The option that methods about one document share, and the request of `long-context`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from common.answer.errors import RequestError
from common.answer.request import AGGREGATION, Request, Sources
from proto.fields import Aggregation

LONGEST_NAME = 512  # characters of a document's title or path

DocumentName = Annotated[str, Field(max_length=LONGEST_NAME)]
DOCUMENT_NAME = "Title or path of the document that the question is about"


def _one_row(value: Aggregation) -> Aggregation:
    """A row per document is one row, where there is one document."""
    return "context" if value == "output" else value


OneRow = Annotated[Aggregation, AfterValidator(_one_row)]


class LongContextRequest(Request):
    """A question about one document, which one side reads whole."""

    sources: Sources = Field(default="cloud", description="Whose documents to use")
    aggregation: OneRow = Field(default="context", description=AGGREGATION)
    long_document: DocumentName = Field(default="", description=DOCUMENT_NAME)


def check_document(method: str, name: str, aggregation: Aggregation) -> None:
    """Refuse a request about no document, and rows for several. Raises `RequestError`."""
    if not name.strip():
        raise RequestError(
            f"Method {method!r} answers from one document: name it by its title or path in long_document.",
            "long_document",
        )
    if aggregation != "context":
        raise RequestError(f"Method {method!r} reads one row: aggregation must be 'context'.", "aggregation")
