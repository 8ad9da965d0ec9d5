"""The options of dsd, dssd and qsv."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.draft_policy.values import MOST_LENGTH
from common.methods.draft_verify.request import DraftRequest
from common.runtime.errors import RequestError
from proto.limits import MOST_RESOLUTION, MOST_UNITS

DEFAULT_RESOLUTION = 64
MOST_FIXED = 128  # a finer lattice's fixed index takes too long to rank


class RejectionRequest(DraftRequest):
    """Options of speculative sampling. What is drawn from is cut to `top_k` tokens behind the temperature."""

    top_k: int = Field(default=10, ge=0, lt=2**18, description="Keep so many of the likeliest tokens; 0: all")


class LatticeRequest(RejectionRequest):
    """Options of methods whose drafted distributions may be rounded to a lattice."""

    resolution: int | None = Field(  # none: 64, or as the policy chooses
        default=None, ge=1, le=MOST_RESOLUTION, description="Units that a drafted distribution is rounded to"
    )
    index_code: Literal["short", "fixed"] = Field(default="short", description="How these units are numbered")


class QsvRequest(LatticeRequest):
    """Options of quantise-sample-verify."""

    top_k: int = Field(default=0, ge=0, lt=2**18, description="Keep so many of the likeliest tokens; 0: all")
    order: Literal["quantise-sample", "sample-quantise"] = Field(
        default="quantise-sample", description="sample-quantise draws before the rounding, which is not exact"
    )


def check_lattice(request: LatticeRequest) -> None:
    """Refuse a fixed index of a lattice that is too fine for it, and a lattice beside a policy that chooses one."""
    if request.index_code == "fixed" and (request.resolution or 0) > MOST_FIXED:
        raise RequestError(
            f"A resolution of {request.resolution} is too fine for index code 'fixed': it is {MOST_FIXED} at most.",
            "resolution",
        )
    length = request.draft_length if request.draft_policy == "fixed" else MOST_LENGTH
    units = length * (request.resolution or 0)
    if units > MOST_UNITS:
        raise RequestError(
            f"A proposal of {length} tokens with {request.resolution} units each has {units} in all; at most "
            f"{MOST_UNITS} are allowed.",
            "resolution",
        )
    if request.draft_policy == "ddqn" and (request.index_code == "fixed" or request.resolution is not None):
        raise RequestError("Policy 'ddqn' chooses the resolution, with index code 'short'.", "draft_policy")
