"""EdgeLLM as a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from common.answer.request import Request, RequestError, Sources
from common.methods.edgellm.growth import FIRST, LEAST, MOST
from common.methods.interface import check_processors
from proto.messages import MOST_NODES, MOST_PROPOSED, Fetch, Open

if TYPE_CHECKING:
    from common.methods.edgellm.relief import TreeRelief
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


GrowthName = Literal["best-first", "adaptive", "chain", "width", "none"]

TREE_SIZE = 128  # default limit of drafts


class EdgeRequest(Request):
    """Options of an answer by two models of the device."""

    sources: Sources = Field(default="device", description="Side whose documents to use")
    draft_length: int = Field(default=6, ge=1, le=MOST_PROPOSED, description="Tokens per proposal, for policy fixed")
    growth: GrowthName = Field(default="best-first", description="How the tree of drafts grows")
    tree_size: int = Field(default=TREE_SIZE, ge=1, le=MOST_NODES, description="Most drafts of a tree")
    threshold: float = Field(default=FIRST, ge=LEAST, le=MOST)  # initial alpha
    ahead: bool = Field(default=True, description="Continue drafting before the verdict arrives")


class EdgeLlm:
    """Implements `Method`. The cloud gets at most the question and earlier ones, to find documents."""

    name: ClassVar[str] = "edgellm"
    request: ClassVar[type[Request]] = EdgeRequest

    def check(self, request: Request) -> None:
        if request.sources == "cloud":
            raise RequestError(
                "Method 'edgellm' answers on this device: sources can be 'device' or 'both', and not 'cloud'.",
                "sources",
            )
        if request.sampler != "race":
            raise RequestError(f"Method 'edgellm' draws by 'race', not by {request.sampler!r}.", "sampler")
        if request.top_logprobs is not None:
            raise RequestError("Method 'edgellm' gives no log-probabilities.", "logprobs")
        check_processors(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return opening  # not sent; `Fetch` requests documents

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.edgellm.device import EdgeDevice

        return EdgeDevice(context)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        raise ValueError("Method 'edgellm' answers only on the device: a cloud can only send documents.")


def relief() -> type[TreeRelief]:
    """The larger model that replaces an absent verifier."""
    from common.methods.edgellm.relief import TreeRelief

    return TreeRelief
