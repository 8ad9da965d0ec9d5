"""Messages that take long to take in: refused before the work where they can be, and nobody else waits for the work."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.answer.report import untold
from common.answer.request import AnswerFailed, RequestError
from common.daemon import threads as fair_thread
from common.methods.drafted.payloads import LatticeEntries, encode_lattice
from common.methods.rejection.scheme import LatticeJudge
from proto.codes import digest
from proto.messages import Busy, Cancel, Close, Closed, Error, Open, Propose, Ready, Sync, Verdict
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import Resident, Stranger, Town
from tests.daemons.streaming import wait_until

SESSION = 21
QUESTION = "What is the best-selling game of the kind I like?"
VOCABULARY = 2048
MOST = 200  # tokens of an answer


def opening(session: int = SESSION, **options: Any) -> Open:
    own = {"resolution": 64, "index_code": "short"} | options
    fields: dict[str, Any] = {"sources": "cloud", "placement": "cloud", "sampler": "rejection", "eos": ()}
    return replace(OPEN, session=session, method="qsv", options=json.dumps(own), max_tokens=MOST, **fields)


def lattice(positions: int = 1, resolution: int = 64, kept: int = 8) -> bytes:
    """A payload of distributions of `kept` tokens, the first of which was drawn."""
    ids, counts = np.arange(5, 5 + kept, dtype=np.uint32), np.ones(kept, np.uint32)
    counts[0] += resolution - kept
    return encode_lattice([(LatticeEntries(ids, counts), 5)] * positions, "short", VOCABULARY)


def propose(payload: bytes, number: int = 1, session: int = SESSION, prefix: int = digest(())) -> Propose:
    return Propose(session, number, 0, (prefix,), (), (), payload)


@pytest.fixture
def stranger(town: Town) -> Iterator[Stranger]:
    """With a session that proposes lattices."""
    stranger = town.stranger()
    stranger.send(opening())
    wait_until(lambda: bool(stranger.of(Ready)), "the session is open", 60.0)
    yield stranger
    stranger.send(Cancel(SESSION))
    stranger.close()
    town.check_that_all_is_free()


@contextmanager
def held_up(judge: type[LatticeJudge], patch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Reading proposals takes until the end of the block; yields how many were begun."""
    read, begun, end = judge.read, list[Propose](), threading.Event()

    def slowly(self: LatticeJudge, message: Propose) -> Any:
        begun.append(message)
        assert end.wait(120.0)
        return read(self, message)

    patch.setattr(judge, "read", slowly)
    patch.setattr("device.cloud_connection.CLOSING_PATIENCE", 3.0)  # reports are made without what comes behind it
    try:
        yield lambda: len(begun)
    finally:
        end.set()


def refused(stranger: Stranger) -> Error:
    wait_until(lambda: bool(stranger.of(Error)), "an error", 60.0)
    error: Error = stranger.of(Error)[0]
    return error


class TestWork:
    def test_is_done_in_order(self, town: Town, stranger: Stranger) -> None:
        """A Sync between two proposals is taken in between them."""
        stranger.send(propose(lattice()))
        wait_until(lambda: bool(stranger.of(Verdict)), "the verdict", 60.0)
        stranger.send(Sync(SESSION, 0, (7, 7), "cloud", True))
        first, second = digest((7, 7)), digest((7, 7, 5))
        for number, (position, prefix) in enumerate([(2, first), (3, second)], 2):
            stranger.send(replace(propose(lattice(), number, prefix=prefix), position=position))
        wait_until(lambda: stranger.of(Verdict)[-1].round >= 2, "the verdicts", 60.0)
        assert [each.tokens for each in stranger.of(Sync)] == [(7, 7)]
        assert stranger.of(Error) == []

    def test_holds_up_neither_the_link_nor_the_engine(
        self, town: Town, device: Resident, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Answers of others are complete while a proposal is being read."""
        with held_up(LatticeJudge, monkeypatch) as begun:
            stranger.send(propose(lattice()))
            wait_until(lambda: begun() == 1, "the proposal is being read", 60.0)
            for fields in ({"method": "coupled"}, {"sources": "both"}):
                report = device.ask(QUESTION, max_tokens=12, **fields).report
                # But for what the cloud's documents say of them: telling that takes as long.
                assert (report.notes, report.degraded) == ((untold(12, 12),), ())
            assert stranger.of(Verdict) == []
        wait_until(lambda: bool(stranger.of(Verdict)), "the verdict", 60.0)

    def test_is_dropped_with_its_session(self, town: Town, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
        with held_up(LatticeJudge, monkeypatch) as begun:
            for number in range(1, 6):
                stranger.send(propose(lattice(), number))
            wait_until(lambda: begun() == 1, "the first one is being read", 60.0)
            stranger.send(Cancel(SESSION))
            town.check_that_all_is_free()
        stranger.send(opening(SESSION + 1))
        wait_until(lambda: len(stranger.of(Ready)) == 2, "another session is open", 60.0)
        stranger.send(replace(propose(lattice(), session=SESSION + 1)))
        wait_until(lambda: bool(stranger.of(Verdict)), "a verdict", 60.0)
        assert begun() == 2 and stranger.of(Error) == []
        stranger.send(Close(SESSION + 1, 0))
        wait_until(lambda: bool(stranger.of(Closed)), "the report", 60.0)

    def test_too_much_of_it_ends_the_session_that_wants_it(
        self, town: Town, device: Resident, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fair_thread, "MOST_WAITING", 2**14)
        with held_up(LatticeJudge, monkeypatch) as begun:
            for number in range(1, 40):
                stranger.link.send(propose(lattice(8), number))
                if number == 1:
                    wait_until(lambda: begun() == 1, "the first one is being read", 60.0)
            wait_until(lambda: bool(stranger.of(Busy)), "it is told to come later", 60.0)
            assert device.ask(QUESTION, method="coupled", max_tokens=6).report.notes == (untold(6, 6),)
        assert stranger.of(Busy)[0].session == SESSION

    def test_that_fails_ends_the_session_alone(self, town: Town, device: Resident, stranger: Stranger) -> None:
        payload = bytearray(lattice(2))
        payload[3] = 0xFF  # of more tokens than are told, which only reading shows
        stranger.send(propose(bytes(payload)))
        error = refused(stranger)
        assert (error.code, error.session) == ("malformed", SESSION)
        assert error.text.startswith("Proposal 1, at position 0, was refused: a bit stream")
        assert device.ask(QUESTION, method="coupled", max_tokens=6).report.notes == ()


class TestRefusals:
    @pytest.mark.parametrize(
        ("message", "said"),
        [
            (propose(lattice(1, 128)), "one of those that its answer was opened with"),
            (propose(lattice() + bytes(500)), "the bits of its positions"),
            (propose(lattice(2)[:6]), "the bits of its positions"),
            (propose(b"\1\x40\x7f"), "at most 64 positions"),
            (replace(propose(lattice()), position=MOST), "within the answer"),
            (replace(propose(lattice()), position=1, tail=(VOCABULARY,)), "of the vocabulary"),
            (replace(propose(lattice()), position=1, tail=(1, 2)), "a tail must lie"),
        ],
    )
    def test_come_before_the_work(
        self, town: Town, stranger: Stranger, monkeypatch: pytest.MonkeyPatch, message: Propose, said: str
    ) -> None:
        """At once, while the thread that would read is busy with another's."""
        other = town.stranger()
        other.send(opening(SESSION + 2))
        wait_until(lambda: bool(other.of(Ready)), "the session is open", 60.0)
        with held_up(LatticeJudge, monkeypatch) as begun:
            other.send(propose(lattice(), session=SESSION + 2))
            wait_until(lambda: begun() == 1, "the thread is busy", 60.0)
            stranger.send(message)
            error = refused(stranger)
            assert begun() == 1
        assert said in error.text and error.session == SESSION
        wait_until(lambda: bool(other.of(Verdict)), "the other goes on", 60.0)
        other.send(Cancel(SESSION + 2))

    def test_of_options_that_no_device_sends(self, town: Town) -> None:
        stranger = town.stranger()
        stranger.send(opening(resolution=1024, index_code="fixed"))
        error = refused(stranger)
        assert error.code == "unservable" and "too fine for index code 'fixed'" in error.text
        town.check_that_all_is_free()


class TestProposalsThatFit:
    """Of all 2,048 tokens a message of 65,536 bytes holds 15 distributions, or 14 and one behind them."""

    def test_the_longest_one(self, device: Resident) -> None:
        fields: dict[str, Any] = {"top_k": 0, "temperature": 2.0, "max_tokens": 40}
        report = device.ask(QUESTION, method="dsd", draft_length=15, **fields).report
        assert (report.notes, report.degraded) == ((), ())
        assert report.figures["proposed_per_round"] > 8

    def test_a_longer_one_is_refused_before_the_answer_begins(self, device: Resident) -> None:
        with pytest.raises(RequestError, match="draft_length may be 15 at most") as caught:
            device.begin(QUESTION, method="dsd", draft_length=16, top_k=0)
        assert caught.value.field == "draft_length"
        with pytest.raises(RequestError, match="draft_length may be 14 at most"):
            device.begin(QUESTION, method="rapid", long_document="horror", draft_length=15, top_k=0)

    def test_what_can_not_be_sent_is_named(self, device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no failure of the model."""
        monkeypatch.setattr(device.link, "limits", replace(device.link.limits, payload_bytes=64))
        with pytest.raises(AnswerFailed, match="can't be sent: a payload must be at most 64 bytes"):
            device.ask(QUESTION, method="dsd", top_k=0, temperature=2.0)

    @pytest.mark.parametrize("policy", ["heuristic", "goodput"])
    def test_policies_keep_to_it(self, device: Resident, policy: str) -> None:
        fields: dict[str, Any] = {"top_k": 0, "temperature": 2.0, "max_tokens": 60, "draft_policy": policy}
        report = device.ask(QUESTION, method="dsd", **fields).report
        assert (report.notes, report.degraded) == ((), ())
