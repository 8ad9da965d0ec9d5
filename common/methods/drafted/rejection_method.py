"""DSD, DSSD and quantise-sample-verify as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from common.answer.request import Request, RequestError
from common.methods.drafted.method import DraftRequest, DraftVerify
from proto.messages import MOST_RESOLUTION, Open

if TYPE_CHECKING:
    from common.methods.drafted.rejection import RejectionScheme


# --- request
# The options of dsd, dssd and qsv.

DEFAULT_RESOLUTION = 64
MOST_FIXED = 128  # a finer lattice's fixed index takes too long to rank


class RejectionRequest(DraftRequest):
    """Options of speculative sampling. What is drawn from is cut to `top_k` tokens behind the temperature."""

    top_k: int = Field(default=10, ge=0, lt=2**18, description="Keep so many of the likeliest tokens; 0: all")


class SplitRequest(RejectionRequest):
    """Options of dsd and dssd."""

    ahead: bool = Field(default=False, description="Draft on while a verdict is under way")


class LatticeRequest(RejectionRequest):
    """Options of methods whose drafted distributions may be rounded to a lattice."""

    resolution: int | None = Field(  # none: 64, or as the policy chooses
        default=None, ge=1, le=MOST_RESOLUTION, description="Units that a drafted distribution is rounded to"
    )
    index_code: Literal["short", "fixed"] = Field(default="short", description="How these units are numbered")


class QsvRequest(LatticeRequest):
    """Options of quantise-sample-verify."""

    lattices: ClassVar[bool] = True

    ahead: bool = Field(default=False, description="Draft on while a verdict is under way")
    top_k: int = Field(default=0, ge=0, lt=2**18, description="Keep so many of the likeliest tokens; 0: all")
    order: Literal["quantise-sample", "sample-quantise"] = Field(
        default="quantise-sample", description="sample-quantise draws before the rounding, which is not exact"
    )


def check_ahead(request: QsvRequest) -> None:
    """Refuse a policy that chooses resolutions where drafts of several proposals are made at once."""
    if request.ahead and request.draft_policy == "ddqn":
        raise RequestError("Drafting ahead needs one resolution, and policy 'ddqn' chooses among them.", "ahead")


def check_lattice(request: LatticeRequest) -> None:
    """Refuse a fixed index of a lattice that is too fine for it, and a lattice beside a policy that chooses one."""
    if request.index_code == "fixed" and (request.resolution or 0) > MOST_FIXED:
        raise RequestError(
            f"A resolution of {request.resolution} is too fine for index code 'fixed': it is {MOST_FIXED} at most.",
            "resolution",
        )
    if request.draft_policy == "ddqn" and (request.index_code == "fixed" or request.resolution is not None):
        raise RequestError("Policy 'ddqn' chooses the resolution, with index code 'short'.", "draft_policy")


# --- method


class Dsd(DraftVerify):
    """Distributed speculative decoding: the drafter's distributions go up, cut to the tokens that they keep."""

    name: ClassVar[str] = "dsd"
    request: ClassVar[type[Request]] = SplitRequest

    def scheme(self, opening: Open, request: SplitRequest | QsvRequest, vocabulary: int) -> RejectionScheme:
        from common.methods.drafted.rejection import rejection_scheme

        return rejection_scheme(opening, request, vocabulary)


class Dssd(Dsd):
    """Distributed split speculative decoding: a number per token goes up, a distribution down for a rejected one."""

    name: ClassVar[str] = "dssd"


class Qsv(Dsd):
    """Quantise, sample, verify: distributions go up, rounded to a lattice before a token is drawn from them."""

    name: ClassVar[str] = "qsv"
    request: ClassVar[type[Request]] = QsvRequest

    def check(self, request: Request) -> None:
        super().check(request)
        assert isinstance(request, QsvRequest)
        check_lattice(request)
        check_ahead(request)
