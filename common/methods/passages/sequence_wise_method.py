"""Sequence-wise aggregation (DRDG/SW, §7.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from common.answer.request import Request, RequestError
from common.methods.interface import check_both_sources, check_sampler
from proto.messages import Fetch, Open

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


class SequenceWise:
    """Both sides answer by themselves; the answer with the larger mass is shown."""

    name: ClassVar[str] = "sequence-wise"
    request: ClassVar[type[Request]] = Request

    def check(self, request: Request) -> None:
        check_sampler(request)
        check_both_sources(request)
        if request.top_logprobs is not None:
            raise RequestError("Method 'sequence-wise' tells no log-probabilities: neither side has both.", "logprobs")

    def opening(self, request: Request, opening: Open) -> Open:
        return replace(opening, sources="cloud", placement="cloud")

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.passages.sequence_wise import SequenceWiseDevice

        return SequenceWiseDevice(context)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.passages.sequence_wise import SequenceWiseCloud

        return SequenceWiseCloud(request, context)
