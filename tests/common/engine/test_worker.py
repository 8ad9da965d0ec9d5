"""Several answers on one engine thread: each gets its own tokens, and what goes wrong with one stays with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from common.answer.values import Work
from common.engine import batcher as peer_shares
from common.engine.jobs import DocumentJob
from common.engine.kv.line import KvTooLargeError
from common.engine.kv.memory import KvMemory
from common.engine.loop import MinimumTimes, Worker
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ContextError
from common.engine.model.packed import Feed
from common.sampling.race import Race
from tests.common.engine.greedy_client import GreedyClient, RaceDrafter, job

FOLDER = Path(__file__).resolve().parents[3] / "common" / "demo_model"
QUERY = [40, 41, 42]
LENGTH = 12


def load(**options: Any) -> Decoder:
    return Decoder.load(str(FOLDER / "draft"), tokenizer=str(FOLDER / "tokenizer"), dtype="float32", **options)


@cache
def loaded() -> Decoder:
    return load()


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """A model with memory of its own: a worker that died gives nothing back."""
    monkeypatch.setattr(loaded(), "memory", KvMemory(loaded().layout, loaded().max_context))
    return loaded()


@pytest.fixture
def worker(decoder: Decoder) -> Iterator[Worker]:
    worker = Worker(decoder, 0.003)
    yield worker
    worker.close()
    assert decoder.memory.used_bytes == 0


def documents(seed: int, count: int = 3) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(3, 2000, int(random.integers(5, 60))).tolist() for _ in range(count)]


def alone(decoder: Decoder, seed: int, **changes: object) -> list[int]:
    """The tokens of one answer by itself, on a worker of its own."""
    worker, client = Worker(decoder, 0.003), GreedyClient(LENGTH)
    worker.submit(
        job(decoder, client, documents(seed), QUERY, drafter=RaceDrafter(decoder.vocabulary, seed), **changes)
    )
    try:
        return client.wait()
    finally:
        worker.close()


def together(worker: Worker, seeds: Sequence[int], clients: Sequence[GreedyClient]) -> None:
    for seed, client in zip(seeds, clients, strict=True):
        drafter = RaceDrafter(worker.decoder.vocabulary, seed)
        worker.submit(job(worker.decoder, client, documents(seed), QUERY, drafter=drafter, peer=seed % 3))
    for client in clients:
        client.wait()


class TestManyAnswers:
    def test_each_gets_the_tokens_that_it_gets_alone(self, worker: Worker, decoder: Decoder) -> None:
        seeds = range(9)
        clients = [GreedyClient(LENGTH) for _ in seeds]
        together(worker, seeds, clients)
        assert [client.tokens for client in clients] == [alone(decoder, seed) for seed in seeds]

    def test_roll_backs_of_one_leave_the_others_alone(self, worker: Worker, decoder: Decoder) -> None:
        seeds = range(4)
        clients = [GreedyClient(LENGTH, rejects={3, 7, 10} if seed % 2 else set()) for seed in seeds]
        together(worker, seeds, clients)
        assert [client.tokens for client in clients] == [alone(decoder, seed) for seed in seeds]

    def test_mutant_swapped_logits(self, worker: Worker, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two answers of one pass that get each other's logits: the comparison above notices."""
        forward = Decoder.forward

        def swapped(decoder: Decoder, feeds: Sequence[Feed], *rest: Any) -> torch.Tensor:
            logits = forward(decoder, feeds, *rest)
            wanted = [feed for feed in feeds if feed.logits]
            if len(wanted) == 2 and len(logits) == 6:
                logits = torch.cat([logits[3:], logits[:3]])
            return logits

        expected = [alone(decoder, seed) for seed in (1, 2)]
        monkeypatch.setattr(Decoder, "forward", swapped)
        clients = [GreedyClient(LENGTH), GreedyClient(LENGTH)]
        together(worker, (1, 2), clients)
        assert [client.tokens for client in clients] != expected

    def test_passes_are_shared(self, worker: Worker, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes: list[int] = []
        forward = Decoder.forward

        def counted(decoder: Decoder, feeds: Sequence[Feed], *rest: Any) -> torch.Tensor:
            sizes.append(len(feeds))
            return forward(decoder, feeds, *rest)

        monkeypatch.setattr(Decoder, "forward", counted)
        together(worker, range(6), [GreedyClient(LENGTH) for _ in range(6)])
        assert len(sizes) < 6 * LENGTH / 2
        assert max(sizes) >= 5


class Raising(RaceDrafter):
    """A sampler that fails, at a position or for whole batches."""

    def __init__(self, vocabulary: int, where: str) -> None:
        super().__init__(vocabulary)
        self.where = where

    def race(self, position: int) -> Race | None:
        if self.where == "race" and position == 4:
            raise RuntimeError("no race")
        return super().race(position)

    def drafted(self, position: int, probabilities: Any, found: Any) -> Any:
        if self.where == "draft" and position == 4:
            raise RuntimeError("no draft")
        return super().drafted(position, probabilities, found)


class BadToken(GreedyClient):
    """A state machine whose path holds what no vocabulary has."""

    def work(self) -> Work | None:
        found = super().work()
        if found is None or len(found.path) < 4:
            return found
        return replace(found, path=(*found.path[:-1], 10**6))


class BadScores:
    """Weights that can't be had, or are no numbers."""

    def __init__(self, scores: NDArray[np.float64] | Exception) -> None:
        self.value = scores

    identity = "bad"

    def begin(self, *_: object) -> BadScores:
        return self

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        return True

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        if isinstance(self.value, Exception) and len(answer) == 4:
            raise self.value
        return np.zeros(3) if isinstance(self.value, Exception) else self.value

    def close(self) -> None: ...


class TestFailures:
    """One of three answers fails; its neighbours' tokens are what they are alone, and its memory is free."""

    def check(self, worker: Worker, bad: GreedyClient, kind: type[Exception], **changes: object) -> None:
        decoder = worker.decoder
        good = [GreedyClient(LENGTH), GreedyClient(LENGTH)]
        for seed, client in ((1, good[0]), (0, bad), (2, good[1])):
            own = changes if client is bad else {}
            drafter = RaceDrafter(decoder.vocabulary, seed)
            worker.submit(job(decoder, client, documents(seed), QUERY, **({"drafter": drafter} | own)))
        for client in good:
            client.wait()
        with pytest.raises(kind):
            bad.wait()
        assert [client.tokens for client in good] == [alone(decoder, seed) for seed in (1, 2)]

    def test_a_token_beyond_the_vocabulary(self, worker: Worker) -> None:
        self.check(worker, BadToken(LENGTH), ValueError)

    @pytest.mark.parametrize("where", ["race", "draft"])
    def test_a_sampler_that_fails(self, worker: Worker, where: str) -> None:
        self.check(worker, GreedyClient(LENGTH), RuntimeError, drafter=Raising(worker.decoder.vocabulary, where))

    @pytest.mark.parametrize("scores", [RuntimeError("none"), np.full(3, np.nan), np.zeros(2), np.zeros(0)])
    def test_scores_that_weigh_nothing(self, worker: Worker, scores: NDArray[np.float64] | Exception) -> None:
        kind = RuntimeError if isinstance(scores, Exception) else ValueError
        self.check(worker, GreedyClient(LENGTH), kind, scorer=BadScores(scores))

    def test_a_prompt_that_does_not_fit(self, worker: Worker) -> None:
        self.check(worker, GreedyClient(LENGTH), ContextError, reserve=5_000)

    def test_a_pass_that_fails_for_one_item(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel may run out of memory for one length: the others' feeds are run without it."""
        forward = Decoder.forward

        def fragile(decoder: Decoder, feeds: Sequence[Feed], *rest: Any) -> torch.Tensor:
            if any(len(feed.rows) == 2 for feed in feeds):
                raise RuntimeError("out of memory")
            return forward(decoder, feeds, *rest)

        monkeypatch.setattr(Decoder, "forward", fragile)
        prompt = job(worker.decoder, GreedyClient(1), documents(0, 2), QUERY).prompt
        self.check(worker, GreedyClient(LENGTH), RuntimeError, prompt=prompt)

    def test_an_answer_that_is_over_while_its_prompt_is_read(self, worker: Worker, decoder: Decoder) -> None:
        gone, good = GreedyClient(LENGTH), GreedyClient(LENGTH, on_token=lambda position: gone.end(None))
        worker.submit(job(decoder, good, documents(1), QUERY, drafter=RaceDrafter(decoder.vocabulary, 1)))
        worker.submit(job(decoder, gone, [[7] * 900], QUERY, peer="other"))
        assert good.wait() == alone(decoder, 1)
        assert len(gone.tokens) < LENGTH


class SlowScores(BadScores):
    """Weights of a model that is done when it is told so."""

    def __init__(self) -> None:
        super().__init__(np.zeros(3))
        self.done = False
        self.wake: Callable[[], None] = lambda: None

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        self.wake = wake
        return self.done


def test_a_slow_scorer_holds_up_its_own_answer_only(worker: Worker, decoder: Decoder) -> None:
    slow, quick, scores = GreedyClient(3), GreedyClient(60), SlowScores()
    worker.submit(job(decoder, slow, documents(3), QUERY, scorer=scores))
    worker.submit(job(decoder, quick, documents(4), QUERY))
    quick.wait()
    assert not slow.over
    assert not slow.tokens
    scores.done = True
    scores.wake()
    slow.wait()


class TestPrompts:
    def test_long_prompts_do_not_hold_up_steps(self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        """One answer at 40 ms steps, four newcomers whose prompts take half a second each: emulated hardware.

        Every pass that reads of the prompts makes a step of the answer, and reads no more than is believed to take one.
        """
        worker = Worker(decoder, 0.040, MinimumTimes(0.040, prompt=0.5e-3))
        forward, read = decoder.forward, list[tuple[int, int, bool]]()

        def noted(feeds: Sequence[Feed], *others: Any) -> torch.Tensor:
            prompts = sum(len(feed.tokens) for feed in feeds if len(feed.tokens) > 1)
            if prompts and started.is_set() and not runner.over:
                read.append((prompts, worker.times.budget(True), any(len(feed.tokens) == 1 for feed in feeds)))
            return forward(feeds, *others)

        monkeypatch.setattr(decoder, "forward", noted)
        try:
            runner, newcomers = GreedyClient(60), [GreedyClient(2) for _ in range(4)]
            started = threading.Event()
            runner.on_token = lambda position: started.set() if position == 5 else None
            worker.submit(job(decoder, runner, documents(1), QUERY))
            assert started.wait(60)
            for seed, client in enumerate(newcomers):
                text = np.random.default_rng(seed).integers(3, 2000, 900).tolist()
                worker.submit(job(decoder, client, [text], QUERY, peer=seed))
            runner.wait()
            for client in newcomers:
                client.wait()
            assert len(read) > 10
            assert all(prompts <= budget and steps for prompts, budget, steps in read)
            assert min(budget for _, budget, _ in read) < 900  # more after a pass for which the machine stood still
        finally:
            worker.close()

    def test_prompts_are_held_up_by_steps_of_those_that_go_first_only(
        self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three answers of one that has had all passes, and a question of another one: its prompt is read at once. On a
        machine that stood still meanwhile, what the former had may have faded; then it is tried again.
        """
        monkeypatch.setattr(peer_shares, "_FADES", 0.1)
        for first in (3, 4, 5):  # another document each time
            read = self.read_beside_three(decoder, monkeypatch, first)
            assert not any(steps for prompts, budget, steps in read if prompts > budget)
            if max(prompts for prompts, _, _ in read) > 2 * max(budget for _, budget, _ in read):
                break
        else:
            pytest.fail(f"read in small pieces: {read}")

    @staticmethod
    def read_beside_three(decoder: Decoder, monkeypatch: pytest.MonkeyPatch, first: int) -> list[tuple[int, int, int]]:
        """Tokens of prompts, the budget for them, and steps of each pass while the newcomer's prompt is read."""
        worker = Worker(decoder, 0.020, MinimumTimes(0.020, prompt=0.1e-3))
        forward, read = decoder.forward, list[tuple[int, int, int]]()
        busy, newcomer = [GreedyClient(150) for _ in range(3)], GreedyClient(3)

        def noted(feeds: Sequence[Feed], *others: Any) -> torch.Tensor:
            if (prompts := sum(len(feed.tokens) for feed in feeds if len(feed.tokens) > 1)) and started.is_set():
                read.append((prompts, worker.times.budget(True), sum(len(feed.tokens) == 1 for feed in feeds)))
            return forward(feeds, *others)

        started = threading.Event()
        busy[0].on_token = lambda position: started.set() if position == 30 else None
        with monkeypatch.context() as patch, closing(worker):
            patch.setattr(decoder, "forward", noted)
            for seed, client in enumerate(busy):
                worker.submit(job(decoder, client, documents(seed), QUERY, peer="busy"))
            assert started.wait(60)
            worker.submit(job(decoder, newcomer, [list(range(first, first + 900))], QUERY, peer="new"))
            newcomer.wait()
            assert not any(client.over for client in busy)
            for client in busy:
                client.wait()
        return read

    def test_documents_by_themselves_and_in_answers_are_read_once(self, worker: Worker, decoder: Decoder) -> None:
        document = np.random.default_rng(77).integers(3, 2000, 200).tolist()
        found: list[Any] = []
        ready = threading.Event()

        def done(states: Any) -> None:
            found.append(states)
            ready.set()

        worker.submit(DocumentJob(document, None, done, lambda error: None, lambda: False))
        assert ready.wait(60)
        before = decoder.document_cache.counters
        client = GreedyClient(2)
        worker.submit(job(decoder, client, [document, document], QUERY))
        client.wait()
        after = decoder.document_cache.counters
        assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)  # for both rows
        assert found[0][0][0].shape[1] == 200


class TestMemory:
    def test_answers_wait_for_room(self) -> None:
        decoder = load(kv_bytes=3 * 192 * 3 * 2 * 128 * 4 + 1000)
        worker = Worker(decoder, 0.003)
        try:
            clients = [GreedyClient(LENGTH) for _ in range(5)]
            for seed, client in enumerate(clients):
                texts = [text[:50] for text in documents(seed)]
                worker.submit(job(decoder, client, texts, QUERY, reserve=80))
            assert all(len(client.wait()) == LENGTH for client in clients)
        finally:
            worker.close()
        assert decoder.memory.used_bytes == 0

    def test_what_can_never_fit_is_refused(self) -> None:
        """At once: that others will give memory back is no reason to wait."""
        decoder = load(kv_bytes=200_000)
        decoder.memory.take(1, 64)
        worker, client = Worker(decoder, 0.003), GreedyClient(LENGTH)
        try:
            worker.submit(job(decoder, client, documents(1), QUERY))
            with pytest.raises(KvTooLargeError, match="kv_bytes"):
                client.wait()
        finally:
            worker.close()


def test_stale_passes_are_given_up(worker: Worker, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that nobody needs any more ends between two layers; the answer goes on from what it rolled back to."""
    client = GreedyClient(LENGTH)
    forward = Decoder.forward

    def rejected_meanwhile(decoder: Decoder, feeds: Sequence[Feed], interrupt: Any, waiting: Any) -> torch.Tensor:
        if len(client.tokens) == 6 and client.epoch == 0:
            client.epoch += 1
        return forward(decoder, feeds, interrupt, waiting)

    monkeypatch.setattr(Decoder, "forward", rejected_meanwhile)
    worker.submit(job(decoder, client, documents(5), QUERY, drafter=RaceDrafter(decoder.vocabulary, 5)))
    client.wait()
    assert client.given_up == 1
    monkeypatch.undo()
    assert client.tokens == alone(decoder, 5)


def test_a_thread_that_dies_is_told_of(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that no answer is to blame for ends the thread: the daemon must end, rather than serve nobody."""
    died: list[tuple[str, str]] = []
    told = threading.Event()

    def note(name: str, error: BaseException) -> None:
        died.append((name, type(error).__name__))
        told.set()

    worker = Worker(decoder, 0.003, died=note)
    monkeypatch.setattr(worker._batcher, "plan", None)
    worker.submit(job(decoder, GreedyClient(LENGTH), documents(1), QUERY))
    assert told.wait(60)
    assert died == [("decoder", "TypeError")]
