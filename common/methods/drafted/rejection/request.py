"""The options of dsd, dssd and qsv."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from common.answer.errors import RequestError
from common.methods.drafted.request import DraftRequest
from proto.limits import MOST_RESOLUTION

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
