"""Coupled drafting as a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from common.answer.request import Request
from common.methods.drafted.method import DraftPolicyName, DraftRequest, DraftVerify, draft_temperature
from proto.messages import Open, Sampler

if TYPE_CHECKING:
    from common.methods.coupled.scheme import CoupledScheme


class CoupledRequest(DraftRequest):
    """Options of coupled drafting."""

    sampler: Sampler = Field(default="race", description="How tokens are drawn and checked")
    draft_policy: DraftPolicyName = Field(default="goodput", description="How the length of proposals is chosen")
    ahead: bool = Field(default=True, description="Continue drafting before the verdict arrives")
    eager: bool = Field(
        default=True, description="The cloud continues decoding while it waits for proposals; needs `ahead`"
    )


class Coupled(DraftVerify):
    """Token ids go up, the accepted number with the next token down."""

    name: ClassVar[str] = "coupled"
    request: ClassVar[type[Request]] = CoupledRequest

    def scheme(self, opening: Open, request: CoupledRequest, vocabulary: int) -> CoupledScheme:
        from common.methods.coupled.scheme import CoupledScheme, Equality, TokenDrafts
        from common.methods.drafted.drafting import RoundsConfig
        from common.sampling.race import Racing

        config = RoundsConfig.of(opening, vocabulary, request.ahead, raced=True, eager=request.eager)
        drafter = Racing(opening.seed, draft_temperature(opening, request))
        verifier = Racing(opening.seed, opening.temperature)
        return CoupledScheme(config, drafter, verifier, TokenDrafts(vocabulary), Equality(vocabulary))
