"""The long context alone as a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from common.answer.request import AGGREGATION, Request, RequestError, Sources, read_own_options
from common.methods.aggregate.method import Speculative
from proto.messages import Aggregation, Fetch, Open

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


# --- request
# The option that methods about one document share, and the request of `long-context`.

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


# --- method


class LongContext(Speculative):
    """One side reads one document whole, in one row, and decides every token."""

    name: ClassVar[str] = "long-context"
    request: ClassVar[type[Request]] = LongContextRequest

    def check(self, request: Request) -> None:
        assert isinstance(request, LongContextRequest)
        if request.sources == "both":
            raise RequestError(
                f"Method {request.method!r} reads a document of one side: sources must be 'cloud' or 'device'.",
                "sources",
            )
        check_document(request.method, request.long_document, request.aggregation)
        super().check(request)

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.passages.long_context import LongContextDevice

        assert isinstance(context.request, LongContextRequest)
        return LongContextDevice(context, context.request.long_document)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.passages.long_context import LongContextCloud

        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError(f"Method {self.name!r} is opened by Open, with sources 'cloud'.")
        return LongContextCloud(request, context, read_own_options(LongContextRequest, request).long_document)
