"""The thread that owns the model (DRAGON §3: Decoder).

It looks for answers with work, runs their next steps, pre-empts a step between two layers when its prefix was
rejected, and hands the drafts to the answers. Steps of several answers that feed one token each are one forward
pass.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from common.model.decoder import Decoder
from common.model.errors import ContextError, Preempted
from common.runtime.answer import Answer
from common.runtime.decoding import Decoding
from common.runtime.request import AnswerFailed, RequestError
from common.scoring.worker import ScoringError
from common.speculation.values import Work

log = logging.getLogger(__name__)

DecodeFloor = Callable[[int], float]  # seconds that a step must at least take, by context length (emulation)


class Prepare(Protocol):
    """Prefills an answer's rows, on the decoder thread."""

    def __call__(self, decoder: Decoder, *, interrupt: Callable[[], bool]) -> Decoding: ...


Measured = Callable[[int, float], None]  # told of every finished step: context length, seconds


@dataclass(slots=True)
class Job:
    """An answer as the decoder thread sees it."""

    answer: Answer
    prepare: Prepare
    measured: Measured
    decoding: Decoding | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One answer's next step."""

    job: Job
    decoding: Decoding
    work: Work
    path: list[int]
    tokens: list[int]


class DecoderThread:
    """Runs until closed. `submit` may be called from any thread."""

    def __init__(self, decoder: Decoder, floor: DecodeFloor | None = None) -> None:
        self._decoder = decoder
        self._floor = floor
        self._jobs: list[Job] = []
        self._errands: deque[Callable[[Decoder], None]] = deque()
        self._jobs_lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)
        self._thread.start()

    def submit(self, answer: Answer, prepare: Prepare, measured: Measured) -> None:
        """Decode for `answer` until it is over; `prepare` prefills and `measured` is told, on the decoder thread."""
        with self._jobs_lock:
            self._jobs.append(Job(answer, prepare, measured))
        self._wake.set()

    def errand(self, run: Callable[[Decoder], None]) -> None:
        """Call `run` once on the decoder thread, between two rounds of steps. It must not raise."""
        self._errands.append(run)
        self._wake.set()

    def wake(self) -> None:
        """Some answer may have work, or has no more of it."""
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            if not self._run_errand() | self._round():
                self._wake.wait()

    def _run_errand(self) -> bool:
        """One at a time, so that errands hold the answers up by no more than a prefill each."""
        if not self._errands:
            return False
        self._errands.popleft()(self._decoder)
        return True

    def _round(self) -> bool:
        """One step of every answer that has work; returns whether there was any."""
        steps = [step for job in self._current_jobs() if (step := self._next_step(job)) is not None]
        together = [step for step in steps if len(step.tokens) == 1]
        if len(together) > 1:
            self._guarded(together, self._step_together)
            steps = [step for step in steps if len(step.tokens) != 1]
        for step in steps:
            self._guarded([step], self._step_alone)
        return bool(steps or together)

    def _current_jobs(self) -> list[Job]:
        with self._jobs_lock:
            self._jobs = [job for job in self._jobs if not job.answer.over]
            return list(self._jobs)

    def _next_step(self, job: Job) -> Step | None:
        if job.decoding is None:
            started = time.monotonic_ns()
            try:
                job.decoding = job.prepare(self._decoder, interrupt=lambda: job.answer.over)
                if job.answer.recorder is not None:
                    job.answer.recorder.since("prefill", started)
            except Preempted:
                return None
            except ContextError as error:
                job.answer.end(RequestError(f"The prompt does not fit: {error}.", "prompt"))
                return None
            except Exception:
                self._fail(job)
                return None
        found = job.answer.work()
        if found is None:
            return None
        work, path = found
        return Step(job, job.decoding, work, path, job.decoding.feed(path))

    def _guarded(self, steps: list[Step], run: Callable[[list[Step]], None]) -> None:
        """A step that fails ends its answers and nothing else."""
        started = time.monotonic_ns()
        try:
            run(steps)
        except Preempted:
            for step in steps:
                step.job.answer.gave_up(step.work, started)
        except Exception:
            for step in steps:
                self._fail(step.job)

    def _fail(self, job: Job) -> None:
        log.exception("decoding failed")
        job.answer.end(AnswerFailed("The model failed while decoding; the daemon's log says why."))

    def _step_alone(self, steps: list[Step]) -> None:
        (step,) = steps
        started = time.perf_counter()
        interrupt = lambda: step.job.answer.outdated(step.work)  # noqa: E731 - polled between layers
        logits = step.decoding.logits(step.tokens, interrupt)
        self._hand_in(step, logits, started, interrupt)

    def _step_together(self, steps: list[Step]) -> None:
        started = time.perf_counter()

        def interrupt() -> bool:
            return all(step.job.answer.outdated(step.work) for step in steps)

        batch = [(step.decoding.rows, step.tokens[0]) for step in steps]
        results = self._decoder.step_many(batch, interrupt)
        for step in steps:
            step.decoding.fed(step.tokens)
        for step, logits in zip(steps, results, strict=True):
            if not step.job.answer.outdated(step.work):
                self._hand_in(step, logits, started, interrupt)

    def _hand_in(self, step: Step, logits: torch.Tensor, started: float, interrupt: Callable[[], bool]) -> None:
        try:
            drafted = step.decoding.draft(step.work, step.path, logits)
        except ScoringError as error:  # this answer's alone, whatever others the pass was for
            step.job.answer.end(AnswerFailed(str(error)))
            return
        if self._floor is not None:
            self._wait_out(self._floor(step.decoding.rows.context), started, interrupt)
        seconds = time.perf_counter() - started
        draft = replace(drafted.draft, decode_time=int(seconds * 1e6))
        step.job.answer.drafted(draft, drafted.mixture, seconds)
        if step.tokens:
            step.job.measured(step.decoding.rows.context, seconds)

    def _wait_out(self, seconds: float, started: float, interrupt: Callable[[], bool]) -> None:
        """Emulate slower hardware: a step takes at least `seconds`, and can be pre-empted all the while."""
        while (left := started + seconds - time.perf_counter()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if interrupt() or self._closing:
                raise Preempted
