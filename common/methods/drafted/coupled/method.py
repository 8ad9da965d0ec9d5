"""Coupled drafting as a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from common.answer.request import Request
from common.methods.drafted.method import DraftVerify
from common.methods.drafted.request import DraftPolicyName, DraftRequest, draft_temperature
from proto.fields import Sampler
from proto.messages import Open

if TYPE_CHECKING:
    from common.methods.drafted.coupled.scheme import CoupledScheme


class CoupledRequest(DraftRequest):
    """The options of coupled drafting."""

    sampler: Sampler = Field(default="race", description="How tokens are drawn and checked")
    draft_policy: DraftPolicyName = Field(default="goodput", description="How long proposals are")
    ahead: bool = Field(default=True, description="Draft on while a verdict is under way")
    eager: bool = Field(default=True, description="The cloud decodes on while it waits for proposals; with `ahead`")


class Coupled(DraftVerify):
    """Token ids go up, and the number of those that hold comes down, with the token behind them."""

    name: ClassVar[str] = "coupled"
    request: ClassVar[type[Request]] = CoupledRequest

    def scheme(self, opening: Open, request: CoupledRequest, vocabulary: int) -> CoupledScheme:
        from common.methods.drafted.coupled.scheme import CoupledScheme, Equality, TokenDrafts
        from common.methods.drafted.machine.values import RoundsConfig
        from common.sampling.racing import Racing

        config = RoundsConfig.of(opening, vocabulary, request.ahead, raced=True, eager=request.eager)
        drafter = Racing(opening.seed, draft_temperature(opening, request))
        verifier = Racing(opening.seed, opening.temperature)
        return CoupledScheme(config, drafter, verifier, TokenDrafts(vocabulary), Equality(vocabulary))
