"""Centralised generation from documents of both sides (DRCG, §7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from common.answer.request import Request, RequestError
from common.methods.interface import check_both_sources, check_logprobs, check_sampler
from proto.messages import Fetch, Form, Open

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


class FetchText:
    """The device gets the cloud's documents as text, and reads them itself."""

    name: ClassVar[str] = "fetch-text"
    request: ClassVar[type[Request]] = Request
    form: ClassVar[Form] = "text"

    def check(self, request: Request) -> None:
        check_sampler(request)
        check_logprobs(request)
        check_both_sources(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return opening  # stays here: the documents are asked for with `Fetch`

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.passages.fetch import FetchDevice

        return FetchDevice(context, self.form)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.passages.fetch import FetchCloud

        return FetchCloud(request, context)


class FetchKv(FetchText):
    """The device gets the documents' tokens with the keys and values that the cloud computed."""

    name: ClassVar[str] = "fetch-kv"
    form: ClassVar[Form] = "kv"

    def check(self, request: Request) -> None:
        super().check(request)
        if request.aggregation == "context":
            raise RequestError(
                "Aggregation 'context' puts all documents into one row, where the keys and values that the cloud "
                "computed for each by itself don't hold: use aggregation 'blocks', or method 'fetch-text'.",
                "aggregation",
            )
