"""The long context alone as a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from common.answer.errors import RequestError
from common.answer.request import Request, read_own_options
from common.methods.aggregate.method import Speculative
from common.methods.passages.long_context.request import LongContextRequest, check_document
from proto.messages import Fetch, Open

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


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
        from common.methods.passages.long_context.halves import LongContextDevice

        assert isinstance(context.request, LongContextRequest)
        return LongContextDevice(context, context.request.long_document)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.passages.long_context.halves import LongContextCloud

        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError(f"Method {self.name!r} is opened by Open, with sources 'cloud'.")
        return LongContextCloud(request, context, read_own_options(LongContextRequest, request).long_document)
