"""Lagged weights: a function of question, documents and answer prefix, whenever the slow model is done."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.sampling.mixture import GRID
from common.scoring import lagged
from common.scoring.lagged import LaggedRun, LaggedScorer, Relevance, scored_length
from common.scoring.worker import ScoringError, ScoringRequest, ScoringThread

DOCUMENTS = ((1, 2), (3,), (), (4, 5, 6))
QUERY = (9, 8)


def text_of(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


def relevance_of(document: str, text: str) -> float:
    """Some number in [0, 1) that any change of either text changes."""
    digest = hashlib.sha256(f"{document}|{text}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


class Table:
    """A relevance model without a model. `before` is called before every computation."""

    identity = "table"

    def __init__(self, before: Callable[[str], None] = lambda text: None) -> None:
        self.before = before

    def relevance(self, documents: Sequence[str]) -> Relevance:
        def compute(text: str) -> NDArray[np.float64]:
            self.before(text)
            return np.asarray([relevance_of(document, text) for document in documents])

        return compute


def direct(period: int, scale: float, answer: Sequence[int]) -> list[float]:
    """The rule, written down: positions [kn, (k+1)n) use x_<(k-1)n, and nothing for k <= 1."""
    k = len(answer) // period
    prefix = [] if k <= 1 else answer[: (k - 1) * period]
    text = text_of([*QUERY, *prefix])
    found = [scale * relevance_of(text_of(document), text) if document else 0.0 for document in DOCUMENTS]
    return [round(score / GRID) * GRID for score in found]


class Manual:
    """Scores when a test says so: what was asked for ahead stays undone until `finish`, or until it is awaited."""

    def __init__(self) -> None:
        self.asked: list[ScoringRequest] = []

    def ahead(self, request: ScoringRequest) -> None:
        self.asked.append(request)

    def drop(self, request: ScoringRequest) -> None:
        self.asked = [asked for asked in self.asked if asked is not request]

    def finish(self) -> None:
        if self.asked:
            request = self.asked.pop(0)
            request.scores = request.compute()
            request.done.set()

    def result(self, request: ScoringRequest, first: bool = False) -> NDArray[np.float64]:
        if not request.done.is_set():
            self.asked = [request, *(asked for asked in self.asked if asked is not request)]
            self.finish()
        assert request.scores is not None
        return request.scores


def walk(period: int, steps: Sequence[tuple[int, int, int]]) -> None:
    """Follow a path that is cut, grown by any number of tokens at once, and scored, each time as `direct` says.

    A step is (tokens cut off, tokens added, requests that the model finishes before).
    """
    manual = Manual()
    scorer = LaggedScorer(Table(), text_of, period, 3.0)
    run = scorer.begin(QUERY, DOCUMENTS, [0.0] * 4)
    scorer.close()
    run._thread = cast(ScoringThread, manual)
    answer: list[int] = []
    for number, (cut, grown, finished) in enumerate(steps):
        for _ in range(finished):
            manual.finish()
        del answer[max(len(answer) - cut, 0) :]
        answer += [100 * number + index for index in range(grown)]
        np.testing.assert_array_equal(run.scores(answer), direct(period, 3.0, answer))


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.integers(0, 3)), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), STEPS)
def test_any_path_and_any_timing_score_as_the_rule_says(period: int, steps: list[tuple[int, int, int]]) -> None:
    walk(period, steps)


STRAIGHT = [(0, 1, 1)] * 20
ROLLED_BACK = [(0, 7, 1), (3, 4, 1), (0, 9, 0), (8, 8, 2), (0, 1, 1), (0, 1, 1), (0, 1, 1), (2, 3, 1)]


@pytest.mark.parametrize("steps", [STRAIGHT, ROLLED_BACK])
class TestMutants:
    """Rules that look alike and are wrong."""

    def test_the_prefix_without_the_lag(
        self, steps: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lagged, "scored_length", lambda position, period: position // period * period)
        with pytest.raises(AssertionError):
            walk(3, steps)

    def test_whatever_was_finished_last(
        self, steps: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = LaggedRun.scores

        def newest(self: LaggedRun, answer: Sequence[int]) -> NDArray[np.float64]:
            scores = right(self, answer)
            done = [request.scores for request in self._requests.values() if request.scores is not None]
            return done[-1] if done else scores

        monkeypatch.setattr(LaggedRun, "scores", newest)
        with pytest.raises(AssertionError):
            walk(3, steps)


def test_a_prefix_is_told_by_its_tokens_and_not_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    walk(3, ROLLED_BACK)
    right = LaggedRun._request
    monkeypatch.setattr(LaggedRun, "_request", lambda self, prefix: right(self, tuple(range(len(prefix)))))
    with pytest.raises(AssertionError):
        walk(3, ROLLED_BACK)


def test_the_lag_is_between_one_period_and_two() -> None:
    assert [scored_length(position, 4) for position in range(17)] == [0] * 8 + [4] * 4 + [8] * 4 + [12]


def test_answers_at_the_same_time_share_the_thread() -> None:
    """Three decoders wander on paths of their own; the model gives way to the others at random points."""
    draws_of_model = random.Random(3)

    def hesitate(text: str) -> None:
        for _ in range(draws_of_model.randrange(40)):
            os.sched_yield()

    scorer = LaggedScorer(Table(hesitate), text_of, 2, 5.0)

    def wander(seed: int) -> int:
        draws = random.Random(seed)
        run = scorer.begin(QUERY, DOCUMENTS, [0.0] * 4)
        answer: list[int] = []
        for _ in range(120):
            del answer[max(len(answer) - draws.choice([0, 0, 0, 3]), 0) :]
            answer += [draws.randrange(4) for _ in range(draws.choice([1, 1, 1, 5]))]
            np.testing.assert_array_equal(run.scores(answer), direct(2, 5.0, answer))
        return len(answer)

    with ThreadPoolExecutor(3) as decoders:
        assert all(length > 20 for length in decoders.map(wander, range(3)))
    scorer.close()
    cost = scorer.cost
    assert cost.calls + cost.dropped > 60
    assert cost.waits > 0


class Gate:
    """Holds the model up, and says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.entered = threading.Semaphore(0)
        self.passes = threading.Semaphore(0)

    def __call__(self, text: str) -> None:
        self.asked.append(text)
        self.entered.release()
        assert self.passes.acquire(timeout=60)


def test_what_a_roll_back_made_useless_is_not_computed() -> None:
    gate = Gate()
    scorer = LaggedScorer(Table(gate), text_of, 2, 1.0)
    gate.passes.release()
    run = scorer.begin(QUERY, DOCUMENTS, [0.0] * 4)
    run.scores([])  # waits for the empty prefix, the only call so far
    other = scorer.begin((7,), DOCUMENTS, [0.0] * 4)
    assert gate.entered.acquire(timeout=60) and gate.entered.acquire(timeout=60)  # the other answer's call is under way
    run.scores([1, 2])
    run.scores([1, 3])
    forgotten = scorer.begin((6,), DOCUMENTS, [0.0] * 4)
    del forgotten
    gate.passes.release(2)
    other.scores([])
    run.scores([1, 3, 4, 4])
    gate.passes.release(9)
    scorer.close()
    assert gate.asked[:3] == ["9 8", "7", "9 8 1 3"]
    assert "9 8 1 2" not in gate.asked
    assert "6" not in gate.asked
    assert scorer.cost.dropped >= 2


def test_what_is_awaited_goes_first_and_a_full_queue_loses_its_oldest() -> None:
    order: list[int] = []
    entered, gate = threading.Event(), threading.Event()

    def request(name: int) -> ScoringRequest:
        def compute() -> NDArray[np.float64]:
            order.append(name)
            entered.set()
            assert name or gate.wait(60)
            return np.asarray([float(name)])

        return ScoringRequest(compute)

    thread = ScoringThread(capacity=2)
    requests = [request(name) for name in range(5)]
    thread.ahead(requests[0])
    assert entered.wait(60)
    for waiting in requests[1:4]:
        thread.ahead(waiting)  # the first of three falls out
    with ThreadPoolExecutor(1) as decoder:
        awaited = decoder.submit(thread.result, requests[4])
        while not thread._awaited:
            assert not awaited.done()
        gate.set()
        assert awaited.result() == [4.0]
    assert thread.result(requests[1]) == [1.0]
    assert [thread.result(waiting) for waiting in requests[2:4]] == [[2.0], [3.0]]
    thread.close()
    assert order[:2] == [0, 4]
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert thread.cost.dropped == 1
    assert (thread.cost.first_waits, thread.cost.calls) == (0, 5)


@pytest.mark.parametrize("wrong", [float("nan"), None])
def test_a_failure_is_one_answers_alone(wrong: float | None, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Table):
        def relevance(self, documents: Sequence[str]) -> Relevance:
            right = super().relevance(documents)

            def compute(text: str) -> NDArray[np.float64]:
                if not text.startswith("5"):
                    return right(text)
                if wrong is None:
                    raise RuntimeError("out of memory")
                return np.full(len(documents), wrong)

            return compute

    scorer = LaggedScorer(Broken(), text_of, 2, 1.0)
    with pytest.raises(ScoringError, match="could not be scored; the daemon's log says why"):
        scorer.begin((5,), DOCUMENTS, [0.0] * 4).scores([])
    assert np.isfinite(scorer.begin(QUERY, DOCUMENTS, [0.0] * 4).scores([])).all()
    scorer.close()
    assert "scoring failed" in caplog.text


def test_whoever_waits_when_the_daemon_stops_is_told() -> None:
    gate = Gate()
    scorer = LaggedScorer(Table(gate), text_of, 2, 1.0)
    busy = scorer.begin((7,), DOCUMENTS, [0.0] * 4)
    assert gate.entered.acquire(timeout=60)
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(scorer.begin(QUERY, DOCUMENTS, [0.0] * 4).scores, [])
        while not scorer._thread._awaited:
            assert not waiting.done()
        closing = threads.submit(scorer.close)
        while not scorer._thread._closing:
            assert not closing.done()
        gate.passes.release()
        with pytest.raises(ScoringError, match="stopping"):
            waiting.result()
    np.testing.assert_array_equal(busy.scores([]).shape, (4,))


def test_the_identity_says_what_changes_the_numbers() -> None:
    scorers = [LaggedScorer(Table(), text_of, *settings) for settings in ((8, 1.0), (9, 1.0), (8, 1.5))]
    assert len({scorer.identity for scorer in scorers}) == 3
    assert scorers[0].identity == "table:every 8:1.0"
    for scorer in scorers:
        scorer.close()
