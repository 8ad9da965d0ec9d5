"""Schemes of all methods over a small vocabulary."""

from __future__ import annotations

from typing import Any

from common.methods.catalog import METHODS
from common.methods.draft_verify.method import DraftVerify, Scheme
from common.methods.open_message import open_message
from common.placement.estimates import Estimates

ESTIMATES = Estimates(0.01, 0.01, 0.05, 0.5, 0.5)


def scheme_of(method: str, vocabulary: int, max_tokens: int, eos: tuple[int, ...] = (), **fields: Any) -> Scheme:
    """What both sides make of a request with these fields."""
    chosen = METHODS[method]
    assert isinstance(chosen, DraftVerify)
    given = {"seed": 20, "temperature": 1.0} | ({"long_document": "?"} if method == "rapid" else {}) | fields
    request = chosen.request(question="?", prompt="?", method=method, max_tokens=max_tokens, **given)
    chosen.check(request)
    return chosen.scheme(open_message(chosen, request, 64, ESTIMATES, eos), request, vocabulary)
