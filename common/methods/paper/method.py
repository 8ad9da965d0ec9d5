"""Methods of the DRAGON paper (§7.1), baselines of speculative aggregation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from common.answer.request import Request, RequestError
from common.methods.aggregate.method import Speculative
from common.methods.interface import check_both_sources, check_logprobs, check_sampler
from proto.messages import Fetch, Form, Open, Side

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf
    from common.methods.paper.sampler import PaperSampler


def paper_sampler(role: Side, request: Open, vocabulary: int) -> PaperSampler:
    """Make the paper's sampler, imported only when needed."""
    from common.methods.paper.sampler import make_paper_sampler

    return make_paper_sampler(role, request, vocabulary)


class TokenWise(Speculative):
    """DRDG/TW: decides every token before drafting the next."""

    name: ClassVar[str] = "token-wise"
    request: ClassVar[type[Request]] = Request

    def check(self, request: Request) -> None:
        check_both_sources(request)
        super().check(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return replace(super().opening(request, opening), run_ahead=1)


class SequenceWise:
    """DRDG/SW: both sides answer; the answer with the larger mass is shown."""

    name: ClassVar[str] = "sequence-wise"
    request: ClassVar[type[Request]] = Request

    def check(self, request: Request) -> None:
        check_sampler(request)
        check_both_sources(request)
        if request.top_logprobs is not None:
            raise RequestError(
                "Method 'sequence-wise' gives no log-probabilities: no side has both distributions.", "logprobs"
            )
        if request.privacy == "secret" and request.temperature > 0:
            raise RequestError(
                "Method 'sequence-wise' draws by the seed, which the cloud has: privacy 'secret' needs temperature 0.",
                "privacy",
            )

    def opening(self, request: Request, opening: Open) -> Open:
        return replace(opening, sources="cloud", placement="cloud")

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.paper.sequence_wise import SequenceWiseDevice

        return SequenceWiseDevice(context)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.paper.sequence_wise import SequenceWiseCloud

        return SequenceWiseCloud(request, context)


class FetchText:
    """DRCG: the device fetches the cloud's documents as text."""

    name: ClassVar[str] = "fetch-text"
    request: ClassVar[type[Request]] = Request
    form: ClassVar[Form] = "text"

    def check(self, request: Request) -> None:
        check_sampler(request)
        check_logprobs(request)
        check_both_sources(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return opening  # not sent; `Fetch` requests documents

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.paper.fetch import FetchDevice

        return FetchDevice(context, self.form)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.paper.fetch import FetchCloud

        return FetchCloud(request, context)


class FetchKv(FetchText):
    """The device fetches tokens with the cloud's keys and values."""

    name: ClassVar[str] = "fetch-kv"
    form: ClassVar[Form] = "kv"

    def check(self, request: Request) -> None:
        super().check(request)
        if request.aggregation == "context":
            raise RequestError(
                "Aggregation 'context' puts all documents into one row, where the cloud's keys and values of "
                "single documents are not valid: use aggregation 'blocks', or method 'fetch-text'.",
                "aggregation",
            )
