"""Options of speculative aggregation."""

from __future__ import annotations

from pydantic import Field

from common.answer.request import Request


class SpeculativeRequest(Request):
    """A request whose answer both sides decode ahead."""

    branches: int = Field(
        default=8, ge=1, le=16, description="Most prefixes that a side decodes in one step; 1: its own drafts alone"
    )


def branches_of(request: Request) -> int:
    """Most prefixes of one decode step: the paper's sampler can't tell what may be the target beside its draft."""
    return request.branches if isinstance(request, SpeculativeRequest) and request.sampler == "race" else 1
