"""All methods that draft and verify, which the tests of this folder go through, and schemes of a small vocabulary."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from common.estimates.policy import Estimates
from common.methods.catalog import METHODS
from common.methods.drafted.method import DraftRequest, DraftVerify, Scheme
from common.methods.open_message import open_message
from tests.common.methods.shortlist.method import Shortlist

ESTIMATES = Estimates(0.01, 0.01, 0.05, 0.5, 0.5)
DRAFTED = {each.name: each for each in (*METHODS.values(), Shortlist()) if isinstance(each, DraftVerify)}
# Drawn by the race, an answer is the verifier's own for the seed; by other uniforms, it follows the verifier's law.
RACED = [name for name, method in DRAFTED.items() if method.request.model_fields["sampler"].default == "race"]
DRAWN = [name for name in DRAFTED if name not in RACED]
# Of the product, those whose sides read the same passages: they answer any question.
SHARING = [name for name in METHODS if name in DRAFTED and type(DRAFTED[name]).reading is DraftVerify.reading]

Case = tuple[str, dict[str, Any]]  # a method and options


def cases(names: Iterable[str], options: Mapping[str, Sequence[dict[str, Any]]]) -> list[Case]:
    """Each method with its defaults, or each of its `options`, in all the ways to take turns that it knows."""
    return [
        (name, fields | turns)
        for name in names
        for fields in options.get(name, [{}])
        for turns in _turns(DRAFTED[name].request.model_fields)
    ]


def _turns(known: Container[str]) -> list[dict[str, Any]]:
    """Drafting ahead or not, and then with a verifier that decides by itself, too, or does not."""
    if "eager" in known:
        return [{"ahead": False}, {"ahead": True, "eager": False}, {"ahead": True, "eager": True}]
    return [{"ahead": False}, {"ahead": True}] if "ahead" in known else [{}]


def scheme_of(method: str, vocabulary: int, max_tokens: int, eos: tuple[int, ...] = (), **fields: Any) -> Scheme:
    """The scheme of both sides for a request with these fields."""
    return scheme_and_request(method, vocabulary, max_tokens, eos, **fields)[0]


def scheme_and_request(
    method: str, vocabulary: int, max_tokens: int, eos: tuple[int, ...] = (), **fields: Any
) -> tuple[Scheme, DraftRequest]:
    """As `scheme_of`, with the request."""
    chosen = DRAFTED[method]
    given = {"seed": 20, "temperature": 1.0} | ({"long_document": "?"} if method == "rapid" else {}) | fields
    request = chosen.request(question="?", prompt="?", method=method, max_tokens=max_tokens, **given)
    chosen.check(request)
    assert isinstance(request, DraftRequest)
    return chosen.scheme(open_message(chosen, request, 64, ESTIMATES, eos), request, vocabulary), request
