"""The most tokens of a proposal: its message holds them whatever their distributions turn out to be."""

from __future__ import annotations

from common.answer.errors import RequestError
from common.methods.drafted.rejection.request import RejectionRequest
from proto.limits import MOST_PROPOSED, MOST_UNITS
from proto.payloads.sparse import HEAD, largest_sparse


def most_sparse(request: RejectionRequest, vocabulary: int, payload: int, behind: int = 0) -> int:
    """Tokens of a proposal of whole distributions, with `behind` more of them, in a payload of so many bytes.

    Raises `RequestError` for a request that wants more, or where not even one fits.
    """
    kept = min(request.top_k or vocabulary, vocabulary)
    most = (payload - HEAD) // largest_sparse(kept, vocabulary) - behind
    reason = f"a message of {payload} bytes with top_k = {request.top_k} and a vocabulary of {vocabulary} tokens"
    return _checked(request, most, reason, "a smaller top_k")


def most_units(request: RejectionRequest, finest: int, behind: int = 0) -> int:
    """The same of distributions rounded to lattices, the finest of them of resolution `finest`."""
    most = MOST_UNITS // finest - behind
    reason = f"a message, whose {MOST_UNITS} units are shared among distributions of {finest} each"
    return _checked(request, most, reason, "a smaller resolution")


def _checked(request: RejectionRequest, most: int, reason: str, instead: str) -> int:
    if most < 1:
        raise RequestError(f"Not one token with its distribution fits {reason}: set {instead}.", "draft_length")
    if request.draft_policy == "fixed" and request.draft_length > most:
        raise RequestError(
            f"A proposal of {request.draft_length} tokens does not fit {reason}: draft_length {most} does at most; or "
            f"set {instead}.",
            "draft_length",
        )
    return min(most, MOST_PROPOSED)
