"""DSD, DSSD and quantise-sample-verify as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from common.answer.request import Request, RequestError
from common.methods.drafted.method import DraftVerify, LatticeRequest, RejectionRequest, check_lattice
from proto.messages import Open

if TYPE_CHECKING:
    from common.methods.rejection.scheme import RejectionScheme


class SplitRequest(RejectionRequest):
    """Options of dsd and dssd."""

    ahead: bool = Field(default=False, description="Continue drafting before the verdict arrives")


class QsvRequest(LatticeRequest):
    """Options of quantise-sample-verify."""

    lattices: ClassVar[bool] = True

    ahead: bool = Field(default=False, description="Continue drafting before the verdict arrives")
    top_k: int = Field(
        default=0, ge=0, lt=2**18, description="Draw from this many of the likeliest tokens; 0: from all"
    )
    order: Literal["quantise-sample", "sample-quantise"] = Field(
        default="quantise-sample", description="sample-quantise draws before the rounding, which is not exact"
    )


def check_ahead(request: QsvRequest) -> None:
    """Refuse a policy that chooses resolutions, when drafting ahead."""
    if request.ahead and request.draft_policy == "ddqn":
        raise RequestError("Drafting ahead needs one resolution, and policy 'ddqn' chooses among them.", "ahead")


class Dsd(DraftVerify):
    """Distributed speculative decoding: truncated draft distributions go up."""

    name: ClassVar[str] = "dsd"
    request: ClassVar[type[Request]] = SplitRequest

    def scheme(self, opening: Open, request: SplitRequest | QsvRequest, vocabulary: int) -> RejectionScheme:
        from common.methods.rejection.scheme import rejection_scheme

        return rejection_scheme(opening, request, vocabulary)


class Dssd(Dsd):
    """Distributed split speculative decoding: a number per token up, a rejecting distribution down."""

    name: ClassVar[str] = "dssd"


class Qsv(Dsd):
    """Quantise, sample, verify: distributions go up, rounded to a lattice before drawing."""

    name: ClassVar[str] = "qsv"
    request: ClassVar[type[Request]] = QsvRequest

    def check(self, request: Request) -> None:
        super().check(request)
        assert isinstance(request, QsvRequest)
        check_lattice(request)
        check_ahead(request)
