"""Schemes of all methods over a small vocabulary."""

from __future__ import annotations

from typing import Any

from common.estimates.estimates import Estimates
from common.methods.catalog import METHODS
from common.methods.drafted.method import DraftVerify, Scheme
from common.methods.drafted.request import DraftRequest
from common.methods.open_message import open_message

ESTIMATES = Estimates(0.01, 0.01, 0.05, 0.5, 0.5)


def scheme_of(method: str, vocabulary: int, max_tokens: int, eos: tuple[int, ...] = (), **fields: Any) -> Scheme:
    """What both sides make of a request with these fields."""
    return scheme_and_request(method, vocabulary, max_tokens, eos, **fields)[0]


def scheme_and_request(
    method: str, vocabulary: int, max_tokens: int, eos: tuple[int, ...] = (), **fields: Any
) -> tuple[Scheme, DraftRequest]:
    """As `scheme_of`, with the request."""
    chosen = METHODS[method]
    assert isinstance(chosen, DraftVerify)
    given = {"seed": 20, "temperature": 1.0} | ({"long_document": "?"} if method == "rapid" else {}) | fields
    request = chosen.request(question="?", prompt="?", method=method, max_tokens=max_tokens, **given)
    chosen.check(request)
    assert isinstance(request, DraftRequest)
    return chosen.scheme(open_message(chosen, request, 64, ESTIMATES, eos), request, vocabulary), request
