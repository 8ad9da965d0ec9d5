"""Proposals fit their message: those that may not are refused before the answer begins, or made shorter."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from common.answer.request import RequestError
from common.methods.drafted.drafting import DraftView
from common.methods.drafted.method import Scheme
from common.methods.drafted.payloads import HEAD, SparseEntries, encode_sparse, largest_sparse
from common.transport.sending import largest_payload
from proto.errors import ProtocolError
from proto.framing import decode, encode
from proto.messages import MOST_UNITS, Propose, Sync
from tests.common.methods.drafted.pump import Length, Pair, table_model
from tests.common.methods.drafted.schemes import scheme_of

LARGE, EMBEDDED = 151_936, 4096  # vocabularies
TOKENS = 64
ALL: dict[str, Any] = {"top_k": 0}


def largest(scheme: Scheme, vocabulary: int, top_k: int) -> DraftView:
    """A draft from the distribution that takes the most bytes: tokens alike, with the first distances of two bytes."""
    kept, drawing = top_k or vocabulary, cast(Any, scheme.drafter)
    weights = torch.full((vocabulary,), 0.5 / vocabulary)
    weights[[*range(0, vocabulary, 129), *range(vocabulary - kept, vocabulary)][:kept]] = 1.0 / vocabulary
    view: DraftView = drawing.drafted(0, weights / weights.sum(), None)
    return view


def sent(scheme: Scheme, view: DraftView, length: int) -> bytes:
    """A proposal of so many such drafts, as it leaves."""
    config = scheme.config
    tokens, payload = scheme.drafts.pack([view] * (length + config.lookahead), length)
    return encode(Propose(1, 1, 0, (1,), (), tokens, payload), largest_payload(config.vocabulary))


@pytest.mark.parametrize(
    ("method", "vocabulary", "fields", "most"),
    [
        ("dsd", LARGE, ALL, 1),
        ("dsd", EMBEDDED, ALL, 7),
        ("dsd", LARGE, {"top_k": 4000}, 46),
        ("dsd", EMBEDDED, {"top_k": 3000}, 10),
        ("rapid", EMBEDDED, ALL, 6),
        ("rapid", LARGE, {"top_k": 20_000}, 9),
        ("qsv", LARGE, {"resolution": 1024, "draft_temperature": 2.0}, 4),
        ("qsv", LARGE, {"resolution": 128, "index_code": "fixed"}, 32),
        ("rapid", LARGE, {"draft_codec": "lattice", "resolution": 512} | ALL, 7),
    ],
)
def test_a_proposal_has_as_many_tokens_as_fit(method: str, vocabulary: int, fields: dict[str, Any], most: int) -> None:
    """Of the distributions that take most, the longest proposal leaves and one more token does not."""
    scheme = scheme_of(method, vocabulary, TOKENS, draft_length=most, **fields)
    assert scheme.config.most == most
    view = largest(scheme, vocabulary, fields.get("top_k", 10))
    assert isinstance(decode(sent(scheme, view, most), largest_payload(vocabulary)), Propose)
    with pytest.raises(ProtocolError, match=r"at most|more"):
        sent(scheme, view, most + 1)
    with pytest.raises(
        RequestError, match=f"A proposal of {most + 1} tokens .* draft_length may be {most} at most"
    ) as bad:
        scheme_of(method, vocabulary, TOKENS, draft_length=most + 1, **fields)
    assert bad.value.field == "draft_length"


@pytest.mark.parametrize(
    ("method", "vocabulary", "fields", "said"),
    [
        ("dsd", LARGE, ALL, "607808 bytes with top_k = 0 and a vocabulary of 151936 tokens"),
        ("dsd", EMBEDDED, ALL | {"draft_length": 8}, "65536 bytes with top_k = 0 and a vocabulary of 4096 tokens"),
        ("rapid", LARGE, ALL, "Not one token with its distribution fits"),
        ("rapid", LARGE, {"draft_codec": "lattice", "draft_length": 64}, "draft_length may be 63 at most"),
        ("qsv", EMBEDDED, {"resolution": 1024}, f"{MOST_UNITS} units are shared among distributions of 1024"),
        ("qsv", EMBEDDED, {"resolution": 1024, "index_code": "fixed"}, "too fine for index code 'fixed'"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, vocabulary: int, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        scheme_of(method, vocabulary, TOKENS, **fields)


@pytest.mark.parametrize(
    "fields", [{}, {"draft_codec": "lattice"} | ALL, {"draft_length": 5, "verifier": "device"} | ALL]
)
def test_what_fits_is_not(fields: dict[str, Any]) -> None:
    """With both models on the device nothing travels."""
    fields |= {"sources": "device"} if "verifier" in fields else {}
    assert scheme_of("rapid", LARGE, TOKENS, **fields).config.lookahead


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("dsd", {"draft_policy": "heuristic"} | ALL),
        ("rapid", {"draft_policy": "heuristic"} | ALL),
        ("qsv", {"draft_policy": "heuristic", "resolution": 1024}),
    ],
)
def test_a_policy_that_wants_more_gets_what_fits(method: str, fields: dict[str, Any]) -> None:
    scheme = scheme_of(method, EMBEDDED, TOKENS, **fields)
    model = table_model(EMBEDDED, 1, sharpness=0.01)
    pair = Pair(scheme, model, model, Length(64))
    lengths = []
    while pair.device.finished is None:
        while pair.draft():
            pass
        for frame in pair.up:
            assert len(frame) <= largest_payload(EMBEDDED)
            message = decode(frame)
            assert not isinstance(message, Sync)
        assert pair.deliver_up()
        lengths.append(sum(len(each.proposed) for each in pair.cloud._pending))
        assert pair.verify() and pair.deliver_down()
    assert max(lengths) == scheme.config.most < 64
    assert len(pair.tokens) == TOKENS


@pytest.mark.parametrize("vocabulary", [1, 7, 300, EMBEDDED, LARGE])
def test_no_position_takes_more_than_told(vocabulary: int) -> None:
    random = np.random.default_rng(vocabulary)
    for count in {1, min(2, vocabulary), (vocabulary + 7) // 8, (vocabulary + 1) // 2, vocabulary}:
        most = HEAD + largest_sparse(count, vocabulary)
        for ids in (random.choice(vocabulary, count, replace=False), np.arange(vocabulary - count, vocabulary)):
            codes = np.full(count, 9, np.uint16)
            assert len(encode_sparse([SparseEntries(np.sort(ids).astype(np.uint32), codes)])) <= most
