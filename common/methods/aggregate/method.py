"""Speculative aggregation (DRAGON §4) as a method."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from common.answer.request import Request, RequestError
from common.methods.interface import check_logprobs, check_sampler
from proto.messages import Fetch, Open

if TYPE_CHECKING:
    from common.methods.aggregate.driver import MakeSampler
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


# --- request


class SpeculativeRequest(Request):
    """A request that both sides decode ahead."""

    branches: int = Field(
        default=8, ge=1, le=16, description="Most prefixes that a side decodes in one step; 1: its own drafts alone"
    )


def draws_by_coins(request: Request) -> bool:
    """Whether the device draws by its own coins: at privacy 'secret', from both sides' documents."""
    return request.privacy == "secret" and request.sources == "both" and request.temperature > 0


LISTED_FOR_COINS = 64  # tokens of the cloud's lists, at least: beyond them a token takes a round trip


def branches_of(request: Request) -> int:
    """Most prefixes per step; the paper's sampler can't foresee targets."""
    return request.branches if isinstance(request, SpeculativeRequest) and request.sampler == "race" else 1


def _check_secret(request: Request) -> None:
    """Refuse what coins of the device alone can't do."""
    if request.sampler != "race":
        raise RequestError(
            f"Sampler {request.sampler!r} draws by the seed, which the cloud has: privacy 'secret' needs 'race'.",
            "sampler",
        )
    if request.temperature > 1:
        raise RequestError("Privacy 'secret' draws at temperatures up to 1.", "temperature")
    if request.top_logprobs is not None and request.temperature > 0:
        raise RequestError("Privacy 'secret' gives no log-probabilities above temperature 0.", "logprobs")


# --- method


class Speculative:
    """Both sides draft ahead; a rejection rolls back all later drafts."""

    name: ClassVar[str] = "speculative"
    request: ClassVar[type[Request]] = SpeculativeRequest

    def __init__(self, paper: MakeSampler) -> None:
        """`paper` makes the paper's sampler."""
        self._paper = paper

    def check(self, request: Request) -> None:
        check_sampler(request)
        check_logprobs(request)
        if request.sources != "both":
            return
        if request.privacy in ("strict", "secret") and request.placement != "device":
            raise RequestError(
                f"Placement {request.placement!r} sends numbers computed from private documents to the cloud: it "
                f"needs privacy 'balanced'; {request.privacy!r} allows placement 'device' only.",
                "placement",
            )
        if request.privacy == "secret":
            _check_secret(request)

    def opening(self, request: Request, opening: Open) -> Open:
        if draws_by_coins(request):
            # The cloud's most probable tokens: nobody else has a part in the draw.
            return replace(opening, temperature=0.0, seed=0, entries=max(opening.entries, LISTED_FOR_COINS))
        if request.sources != "cloud":
            return opening
        # The cloud alone decides and announces.
        return replace(opening, sources="cloud", placement="cloud")

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.aggregate.device import AggregateDevice

        return AggregateDevice(context, self._paper)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.aggregate.cloud import AggregateCloud

        return AggregateCloud(request, context, self._paper)
