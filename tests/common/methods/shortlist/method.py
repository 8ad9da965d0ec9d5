"""The method as the daemons and the command line see it: its name, its options, its scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from common.answer.request import Request
from common.methods.drafted.method import DraftRequest, DraftVerify, draft_temperature
from proto.messages import Open, Sampler

if TYPE_CHECKING:
    from tests.common.methods.shortlist.scheme import ShortlistScheme


class ShortlistRequest(DraftRequest):
    """The options of every method that drafts and verifies, with another way of drawing, and two more."""

    sampler: Sampler = Field(default="race", description="How tokens are drawn and checked")
    ahead: bool = Field(default=False, description="Continue drafting before the verdict arrives")
    runners_up: int = Field(default=3, ge=0, le=15, description="Tokens that are told beside each draft")


class Shortlist(DraftVerify):
    """Drafts go up with the next tokens of their race; what replaces one comes down as its place among these."""

    name: ClassVar[str] = "shortlist"
    request: ClassVar[type[Request]] = ShortlistRequest

    def scheme(self, opening: Open, request: ShortlistRequest, vocabulary: int) -> ShortlistScheme:
        from common.methods.drafted.drafting import RoundsConfig
        from common.sampling.race import Racing
        from tests.common.methods.shortlist.scheme import Drafter, Drafts, Judge, ShortlistScheme

        return ShortlistScheme(
            config=RoundsConfig.of(opening, vocabulary, request.ahead),
            drafter=Drafter(opening.seed, draft_temperature(opening, request), request.runners_up),
            drafts=Drafts(),
            verifier=Racing(opening.seed, opening.temperature),
            judge=Judge(vocabulary, request.runners_up),
        )
