"""Messages that no drafter or verifier can have sent are refused, and change nothing."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from common.methods.coupled.scheme import encode_tokens
from common.methods.drafted.payloads import LatticeEntries, SparseEntries, encode_lattice, encode_sparse
from common.methods.drafted.verifying import MOST_PENDING
from common.sampling.race import RaceWinner
from proto.codes import digest
from proto.errors import ProtocolError
from proto.framing import decode
from proto.messages import MOST_PROPOSED, Propose, Sync, Verdict
from tests.common.methods.drafted.pump import Length, Pair, table_model
from tests.common.methods.drafted.refusals import SESSION, propose, refused_by_the_drafter, refused_by_the_verifier
from tests.common.methods.drafted.schemes import DRAFTED, cases, scheme_of
from tests.common.methods.drafted.test_faults import OPTIONS

VOCABULARY, TOKENS, EOS = 7, 24, (6,)
MODEL, DRAFTER = table_model(VOCABULARY, 1), table_model(VOCABULARY, 2)


def pair_of(method: str, **fields: Any) -> Pair:
    method, _, codec = method.partition(" ")
    fields |= {"draft_codec": codec} if codec else {}
    fields |= {"resolution": 4} if method == "qsv" or codec else {}
    return Pair(scheme_of(method, VOCABULARY, TOKENS, EOS, **fields), MODEL, MODEL, Length(4))


def sparse(*ids: int, codes: tuple[int, ...] | None = None) -> SparseEntries:
    return SparseEntries(np.asarray(ids, np.uint32), np.asarray(codes or [60000] * len(ids), np.uint16))


def scalars(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def units(*counts: tuple[int, int]) -> LatticeEntries:
    ids, numbers = zip(*counts, strict=True)
    return LatticeEntries(np.asarray(ids, np.uint32), np.asarray(numbers, np.uint32))


# Two positions of two codes each, whose bitmaps have one id. Ids out of order can't be spelled out: gaps are positive.
ONE_ID = b"\0\2" + 2 * (b"\5" + 2 * b"\xff\x7f" + b"\1\2")


def ids(tokens: tuple[int, ...], **fields: Any) -> Propose:
    return propose((), encode_tokens(tokens, VOCABULARY), **fields)


@pytest.mark.parametrize(
    ("method", "message", "said"),
    [
        ("coupled", propose((), b"\0\1\xe0"), "must be below"),
        ("coupled", ids((1,), tail=(VOCABULARY,), position=1), "of the vocabulary"),
        ("coupled", propose((), b"\0\0"), "at least one id"),
        ("coupled", propose((), b""), "format byte"),
        ("coupled", propose((), b"\0\x41"), "at most 64 ids"),
        ("coupled", propose((), b"\0\5\0"), "truncated"),
        ("coupled", propose((), b"\0\1\1"), "padded with zeros"),
        ("coupled", ids((1,) * MOST_PROPOSED, position=TOKENS - 1), "within the answer"),
        ("coupled", ids((1, 6, 1)), "after the end"),
        ("coupled", ids((1,), tail=(6,), position=1), "after the end"),
        ("coupled", ids((1,), tail=(1, 2), position=1), "within the answer"),
        ("coupled", propose((1,)), "in its payload"),
        ("dsd", propose((1, 2), encode_sparse([sparse(1, 2)])), "for each of its tokens"),
        ("dsd", propose((1,), encode_sparse([sparse(2, 3)])), "one of its distribution"),
        ("dsd", propose((1,), b"\7"), "format byte"),
        ("dsd", propose((1,), encode_sparse([sparse(1, VOCABULARY)])), "below 7"),
        ("dssd", propose((1, 2), scalars(0.5)), "for each of its tokens"),
        ("dssd", propose((1,), scalars(0.0)), "above 0"),
        ("dssd", propose((1,), scalars(1.5)), "above 0"),
        ("dssd", propose((1,), scalars(float("nan"))), "above 0"),
        ("qsv", propose((1,), encode_lattice([(units((1, 4)), 1)], "short", VOCABULARY)), "named in one place"),
        ("qsv", propose((), encode_lattice([(units((1, 4)), 1)], "fixed", VOCABULARY)), "format byte"),
        ("qsv", propose((), b"\1\0\1"), "resolution"),
        ("rapid", propose((1, 2), encode_sparse([sparse(1, 2)] * 2)), "one where a bonus is due"),
        ("rapid", propose((1, 2), encode_sparse([sparse(1, 2)] * 4)), "one where a bonus is due"),
        ("rapid", propose((), encode_sparse([sparse(1)])), "1 to 64 tokens"),
        ("rapid", propose((1,), b""), "format byte"),
        ("rapid", propose((1, 6), encode_sparse([sparse(1, 6)] * 3)), "one where a bonus is due"),
        ("rapid", propose((1,), encode_sparse([sparse(2, 3), sparse(1)])), "one of its distribution"),
        ("rapid", propose((1,), encode_sparse([sparse(1, 2), sparse(VOCABULARY)])), "below 7"),
        ("rapid", propose((1,), ONE_ID), "must have 2 ids"),
        ("rapid", propose((1,), encode_sparse([sparse(1)] * 66)), "at most 65"),
        ("rapid", propose((1,), encode_lattice([(units((1, 4)), None)] * 2, "short", VOCABULARY)), "format byte"),
        (
            "rapid lattice",
            propose((2,), encode_lattice([(units((1, 4)), None)] * 2, "short", VOCABULARY)),
            "one of its distribution",
        ),
        (
            "rapid lattice",
            propose((1,), encode_lattice([(units((1, 4)), None)], "short", VOCABULARY)),
            "a bonus is due",
        ),
        ("rapid lattice", propose((1,), b"\1\0\1"), "resolution"),
    ],
)
def test_of_a_drafter(method: str, message: Propose, said: str) -> None:
    refused_by_the_verifier(pair_of(method), message, said)


def test_more_proposals_than_may_wait() -> None:
    pair = pair_of("coupled", eager=False)
    tokens: list[int] = []
    with pytest.raises(ProtocolError, match=f"at most {MOST_PENDING}"):
        for number in range(MOST_PENDING + 1):
            message = ids((1,), round=number + 1, position=0, digest=(digest(tokens),))
            pair.cloud._pending.append(pair.cloud._pending[0]) if number else None
            pair.cloud.proposed(message, 0.0)


@pytest.mark.parametrize("tokens", [(VOCABULARY,), (1,) * (TOKENS + 1)])
def test_a_prefix_that_no_answer_has(tokens: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="Sync"):
        pair_of("dsd").cloud.synchronised(Sync(SESSION, 0, tokens, "cloud", False))


@pytest.mark.parametrize(
    ("method", "change", "said"),
    [
        ("coupled", {"accepted": 5}, "more tokens than were proposed"),
        ("coupled", {"accepted": 4, "token": (1,)}, "exactly if a bonus"),
        ("coupled", {"accepted": 2, "token": ()}, "must name the token"),
        ("coupled", {"accepted": 2, "token": (VOCABULARY,)}, "of the vocabulary"),
        ("dsd", {"accepted": 4, "token": ()}, "exactly if a bonus"),
        ("rapid", {"accepted": 4, "token": ()}, "exactly if a bonus"),
        ("rapid", {"accepted": 5}, "more tokens than were proposed"),
        ("rapid", {"accepted": 1, "token": ()}, "must name the token"),
        ("dsd", {"accepted": 1, "token": ()}, "must name the token"),
        ("dssd", {"accepted": 1, "token": (), "payload": b""}, "format byte"),
        ("dssd", {"accepted": 1, "token": (), "payload": encode_sparse([sparse(VOCABULARY)])}, "below 7"),
    ],
)
def test_of_a_verifier(method: str, change: dict[str, Any], said: str) -> None:
    pair = pair_of(method, seed=8, **({"top_k": 0} if method != "coupled" else {"eager": False}))
    refused_by_the_drafter(pair, said, **change)


def damage(payload: bytes, random: Random) -> bytes:
    """Cut off, made longer, or with another byte."""
    place = random.randrange(len(payload) + 1)
    return random.choice(
        (payload[:place], payload + random.randbytes(1), payload[:place] + random.randbytes(1) + payload[place + 1 :])
    )


@pytest.mark.parametrize(("method", "fields"), cases(DRAFTED, OPTIONS))
def test_damaged_payloads_are_refused_or_taken(method: str, fields: dict[str, Any]) -> None:
    """Whatever they are, nothing else goes wrong."""
    random = Random(3)
    refused = 0
    for seed in range(60):
        pair = Pair(scheme_of(method, VOCABULARY, TOKENS, EOS, seed=seed, **fields), DRAFTER, MODEL, Length(4))
        while not pair.up:
            pair.draft()
        told = decode(pair.up.popleft())
        assert isinstance(told, Propose)
        before = pair.cloud.work()
        try:
            pair.cloud.proposed(replace(told, payload=damage(told.payload, random)), 0.0)
        except ProtocolError:
            refused += 1
            assert pair.cloud.work() == before
            pair.received_by_cloud(told)
        assert pair.verify()
        verdict = decode(pair.down.popleft())
        if pair.scheme.config.eager:
            continue  # what it tells has no payload
        assert isinstance(verdict, Verdict)
        before = pair.device.work()
        try:
            pair.device.judged(replace(verdict, payload=damage(verdict.payload, random)))
        except ProtocolError:
            assert pair.device.work() == before
            assert pair.tokens == []
    assert refused


def test_a_distribution_that_would_not_have_rejected() -> None:
    """The device knows the draw, too: a verifier can't make it replace a token that its own numbers accept."""
    pair = pair_of("dssd", top_k=0)
    while not pair.up:
        pair.draft()
    drafted = pair.device.work(), pair.device._views[0]
    payload = encode_sparse([sparse(drafted[1].token)])
    with pytest.raises(ProtocolError, match="does not accept"):
        pair.device.judged(Verdict(SESSION, 1, 0, 0, (), 0, payload))


@pytest.mark.parametrize("message", [Verdict(SESSION, 9, 0, 1, (1,), 0, b""), Verdict(SESSION, 1, 3, 1, (1,), 0, b"")])
def test_a_verdict_of_another_round_or_place_is_fenced_off(message: Verdict) -> None:
    pair = pair_of("dsd", top_k=0)
    while not pair.up:
        pair.draft()
    assert pair.device.judged(message) == []
    assert pair.device.counters.stale == 1
    assert len(pair.run()) > 0


@pytest.mark.parametrize("eager", [False, True])
def test_no_pass_judges_more_tokens_than_a_proposal_has(eager: bool) -> None:
    """However many wait in a row; those behind them have their turn."""
    tokens = 8 * MOST_PROPOSED
    pair = Pair(scheme_of("coupled", VOCABULARY, tokens, EOS, eager=eager), MODEL, MODEL, Length(4))
    drafted: list[int] = []
    for number in range(8):
        message = ids((1,) * MOST_PROPOSED, round=number + 1, position=len(drafted), digest=(digest(drafted),))
        if number and not eager:
            message = replace(message, digest=())
        assert not pair.cloud.proposed(message, 0.0)
        drafted += [1] * MOST_PROPOSED
    while len(pair.cloud.decided) < tokens:
        work = pair.cloud.work()
        assert work is not None
        assert 1 <= work.count <= MOST_PROPOSED + 1
        pair.cloud.drawn(work, [RaceWinner(1)] * work.count, 0.0, 0.0)
    assert pair.cloud.decided == drafted
