"""Options that the draft-and-verify methods over the network have in common, and their checks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from common.answer.errors import RequestError
from common.answer.request import Request, Sources, known_temperature
from common.methods.checks import check_logprobs, check_processors
from proto.fields import Sampler
from proto.limits import MOST_PROPOSED
from proto.messages import Open

DraftPolicyName = Literal["fixed", "goodput", "confidence", "heuristic", "ddqn"]


class DraftRequest(Request):
    """A request whose answer a small model drafts and a larger one verifies. Both read the cloud's documents."""

    lattices: ClassVar[bool] = False  # whether a policy may choose how finely drafted distributions are rounded

    sources: Sources = Field(default="cloud", description="Whose documents to use")
    sampler: Sampler = Field(default="rejection", description="How tokens are drawn and checked")
    draft_length: int = Field(default=6, ge=1, le=MOST_PROPOSED, description="Tokens of a proposal, with policy fixed")
    draft_policy: DraftPolicyName = Field(default="fixed", description="How long proposals are")
    draft_temperature: Annotated[float, AfterValidator(known_temperature)] | None = Field(
        default=None, description="Of the draft model, where it is another one"
    )


def draft_temperature(opening: Open, request: DraftRequest) -> float:
    """The drafter's own temperature, which is the answer's where it has none."""
    return opening.temperature if request.draft_temperature is None else request.draft_temperature


def check_draft(request: DraftRequest) -> None:
    """Refuse what a method that verifies in the cloud can't do."""
    if request.sources != "cloud":
        raise RequestError(
            f"Method {request.method!r} reads the cloud's documents on both sides and none of this device's: sources "
            f"can't be {request.sources!r}.",
            "sources",
        )
    check_drawing(request)


def check_drawing(request: DraftRequest) -> None:
    """Refuse another method's way of drawing, and what no method that drafts and verifies can tell or take."""
    wanted = type(request).model_fields["sampler"].default
    if request.sampler != wanted:
        raise RequestError(f"Method {request.method!r} draws by {wanted!r}, not by {request.sampler!r}.", "sampler")
    if request.draft_policy == "ddqn" and not request.lattices:
        raise RequestError(
            f"Policy 'ddqn' chooses among lattices, and method {request.method!r} leaves it none to choose: take "
            "method 'qsv', or another policy.",
            "draft_policy",
        )
    check_logprobs(request)
    check_processors(request)
