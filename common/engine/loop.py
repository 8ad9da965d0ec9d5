"""The model's thread (DRAGON §3: Decoder).

Each turn collects feeds, lets the batcher choose, runs one pass, and delivers the drafts. A pass stops between two
layers when all of its jobs are useless.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Final

import torch

from common.answer.values import SideDraft
from common.engine.batcher import Batcher, PassTimes, TenantShares, is_step
from common.engine.draw import Sample, draw
from common.engine.gate import Gate
from common.engine.jobs import Job
from common.engine.model.decoder import Decoder
from common.engine.model.errors import Preempted
from common.engine.model.packed import Feed
from common.estimates.estimators import TYPICAL_CONTEXT, DecodeLine
from common.process.threads import Accounts, ByTurns, Died, TokenBucket, vital_thread
from common.sampling.race import RaceKernel

# --- emulation


@dataclass(frozen=True, slots=True)
class MinimumTimes:
    """Minimum seconds of a pass on slower hardware."""

    step: float  # of a decode step
    context: float = 0.0  # more per token of context
    prompt: float = 0.0  # more per token of prompts

    def seconds(self, context: int, tokens: int) -> float:
        """Seconds of a pass with steps at `context` (0: none) and `tokens` prompt tokens."""
        return (self.step + self.context * context if context else 0.0) + self.prompt * tokens

    def line(self, measured: DecodeLine) -> DecodeLine:
        """The decode line from profiling this hardware; `measured` is the machine's."""
        return DecodeLine.of(self.context, max(self.step, measured.intercept), TYPICAL_CONTEXT)


# --- passes


@dataclass(slots=True)
class WorkDone:
    """Computed passes and tokens, some wasted. Tokens count once per row."""

    passes: int = 0  # complete passes
    given_up: int = 0  # passes stopped between two layers
    rows: int = 0  # in all passes
    tokens: int = 0
    seconds: float = 0.0  # of all passes
    stale: int = 0  # tokens fed for jobs that were useless when the pass ended

    def __str__(self) -> str:
        share = self.stale / self.tokens if self.tokens else 0.0
        return (
            f"{self.passes} passes of {self.tokens / max(self.passes, 1):.1f} tokens, {share:.1%} of them for drafts "
            f"that were outdated when the pass ended; {self.given_up} passes given up"
        )


# --- tasks
# Work between two passes. Each peer has its turns and a share of the time.

Task = Callable[[], None]

SHARE: Final = 0.25  # seconds per second that the tasks of one tenant may take
BURST: Final = 0.5  # seconds that they may take at once
SHARE_OF_ALL: Final = 0.5  # seconds per second for all tenants' tasks, except the daemon's own
BURST_OF_ALL: Final = 1.0
SLICE: Final = 0.005  # seconds of a round; the next task then waits for the next round


class Tasks:
    """Waiting tasks, run between two passes.

    A tenant with an overdrawn account waits, and all tenants do while their common account is overdrawn. The tenant
    None is the daemon itself and never waits.
    """

    def __init__(self) -> None:
        self._waiting = ByTurns[Task]()
        self._accounts = Accounts(SHARE, BURST)
        self._of_all = TokenBucket(SHARE_OF_ALL, BURST_OF_ALL, time.monotonic())
        self._lock = threading.Lock()

    def add(self, tenant: Hashable, task: Task) -> None:
        """Adds a task. It must not raise. From any thread."""
        with self._lock:
            self._waiting.add(tenant, task)

    def run(self) -> bool:
        """Runs the daemon's own tasks for a slice, then the tenants'. Returns whether any was due."""
        now = time.monotonic()
        with self._lock:
            due = [tenant for tenant in self._waiting if not self._until_due(tenant, now)]
        self._run(None, SLICE)
        left = SLICE
        for tenant in due:
            if tenant is not None and left > 0.0:
                spent, ended = self._run(tenant, left)
                self._accounts.of(tenant, ended).charge(ended, spent)
                self._of_all.charge(ended, spent)
                left -= spent
        return bool(due)

    def _run(self, tenant: Hashable, most: float) -> tuple[float, float]:
        """Returns the seconds spent and the end time."""
        began = ended = time.monotonic()
        while ended - began < most and (task := self._take(tenant)) is not None:
            task()
            ended = time.monotonic()
        return ended - began, ended

    def wait(self) -> float | None:
        """Seconds until a task is due, or None."""
        now = time.monotonic()
        with self._lock:
            return min((self._until_due(tenant, now) for tenant in self._waiting), default=None)

    def _until_due(self, tenant: Hashable, now: float) -> float:
        return 0.0 if tenant is None else max(self._of_all.wait(now), self._accounts.of(tenant, now).wait(now))

    def _take(self, tenant: Hashable) -> Task | None:
        with self._lock:
            return self._waiting.take(tenant) if tenant in self._waiting else None


# --- worker

log = logging.getLogger(__name__)

_Part = tuple[slice, int]  # one answer's rows of the logits, and its number of positions

LOOK_AGAIN = 1.0  # longest seconds between two turns, in which jobs check their wait for memory


class Worker:
    """Runs the model's thread until closed.

    Any thread may call `submit`, `on_model_thread` and `wake`.
    """

    def __init__(
        self,
        decoder: Decoder,
        step: float,
        minimum: MinimumTimes | None = None,
        died: Died | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`step`: profiled seconds of a decode step. `died` is called if the thread ends by itself.

        Workers with a common `gate` compute one at a time, and lend their turn while a streamed layer loads.
        """
        self.decoder = decoder
        self._gate = gate
        self._waiting = None if gate is None or decoder.streamed is None else gate.lend
        self.times = PassTimes(max(step, 0.0 if minimum is None else minimum.step))
        if decoder.streamed is not None:
            self.times.token = 0.0  # until measured: reading the weights takes most of a pass
        self.done = WorkDone()
        self._minimum = minimum
        self._batcher = Batcher()
        self._shares = TenantShares()
        self._kernel = RaceKernel(decoder.vocabulary, decoder.torch_device)
        self._jobs: list[Job] = []
        self._running = 0  # jobs that had begun at the last turn
        self._tasks = Tasks()
        self._new: deque[Job] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = vital_thread(self._run, "decoder", died)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._new.append(job)
        self._wake.set()

    def on_model_thread(self, run: Task, tenant: Hashable = None) -> None:
        """Calls `run` once on this thread, between two passes. It must not raise.

        `tenant`: the peer charged for it; None means the daemon itself.
        """
        self._tasks.add(tenant, run)
        self._wake.set()

    def wake(self) -> None:
        """Requests a turn soon: some job's work has changed."""
        self._wake.set()

    @property
    def idle(self) -> bool:
        """From any thread."""
        return not self._jobs and not self._new

    @property
    def row_seconds(self) -> float:
        """Seconds for one more token in a row, in all running answers."""
        return self.times.row * max(1, self._running)

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()
        if self.done.passes:
            log.info("decoding: %s", self.done)

    # --- the thread

    def _run(self) -> None:
        with torch.inference_mode():
            while not self._closing:
                self._wake.clear()
                if not self._gated_turn():
                    self._release()
                    self._wake.wait(self._rest())
            for job in self._jobs:
                job.close()

    def _gated_turn(self) -> bool:
        if self._gate is None:
            return self._turn()
        with self._gate.turn(self):
            busy = self._turn()
        if not busy:
            self._gate.rests(self)
        return busy

    def _turn(self) -> bool:
        busy = self._tasks.run()
        self._renew_jobs()
        wanted, held = self._wanted()
        if not wanted:
            return busy
        running = any(job.running and job.tenant not in held for job in self._jobs)
        chosen = self._batcher.plan(self._shares.admitted(wanted, self.times), self.times.budget(running))
        began = time.perf_counter()
        self._pass([feed for feed in chosen if self._fits(feed)])
        peers = {feed.job.tenant for feed in wanted}
        self._shares.note(peers, chosen, time.perf_counter() - began, self.times)
        return True

    def _rest(self) -> float | None:
        due = self._tasks.wait()
        if not self._jobs:
            return due
        return LOOK_AGAIN if due is None else min(due, LOOK_AGAIN)

    def _renew_jobs(self) -> None:
        while self._new:
            self._jobs.append(self._new.popleft())
        for job in self._jobs:
            if job.over:
                job.close()
        self._jobs = [job for job in self._jobs if not job.over]
        self._running = sum(job.running for job in self._jobs)

    def _wanted(self) -> tuple[list[Feed], Set[Hashable]]:
        """Also returns the tenants held back in this turn."""
        asking = Counter(job.tenant for job in self._jobs)
        while asking:
            held = self._shares.held(asking)
            wanted: list[Feed] = []
            for job in self._jobs:
                if job.tenant in asking and job.tenant not in held:
                    try:
                        feeds = job.feeds(self.decoder, self.wake)
                        for feed in feeds:
                            feed.job, feed.running = job, job.running
                        wanted += feeds
                    except Exception as error:
                        _blame(job, error)
            if wanted:
                return wanted, held
            asking = Counter({tenant: asking[tenant] for tenant in held})
        return [], frozenset()

    def _fits(self, feed: Feed) -> bool:
        """A refusal ends only this feed's job."""
        try:
            self.decoder.check_feed(feed)
        except Exception as error:
            _blame(feed.job, error)
            return False
        return True

    def _pass(self, feeds: Sequence[Feed]) -> None:
        if not feeds:
            return
        started, clock = time.monotonic_ns(), time.perf_counter()

        def useless() -> bool:
            return all(feed.job.useless for feed in feeds)

        failure = ""
        try:
            logits = self.decoder.forward(feeds, useless, self._waiting)
        except Preempted:
            self.done.given_up += 1
            _give_up(feeds, started)
            return
        except Exception as error:
            if len(feeds) == 1:
                _blame(feeds[0].job, error)
                return
            failure = type(error).__name__
        if failure:  # after `except`, which frees the error and its memory
            self._isolate(feeds, failure)
            return
        for feed in feeds:
            try:
                feed.job.fed(feed)
            except Exception as error:
                _blame(feed.job, error)
        self._count(feeds)
        drawn = self._draw(feeds, logits)
        steps = [feed for feed in feeds if is_step(feed)]
        stepped = sum(feed.size for feed in steps)
        further = stepped - sum(len(feed.rows) for feed in steps)
        prompts = sum(feed.size for feed in feeds) - stepped
        # Further tokens of steps cost as much as prompt tokens.
        if not self._wait_out(steps, prompts + further, clock, useless):
            _give_up(feeds, started)
            return
        seconds = time.perf_counter() - clock
        self.done.seconds += seconds
        self.times.observe(seconds, bool(steps), prompts, further, stepped)
        for feed, drafts in drawn:
            try:
                feed.job.drawn(drafts, seconds, is_step(feed) and len(feed.tokens) == 1)
            except Exception as error:
                _blame(feed.job, error)
        if drawn:
            self._release()

    def _release(self) -> None:
        """Writes new documents' states to disk while no answer waits."""
        if self.decoder.document_cache.unwritten:
            self.decoder.document_cache.release()

    def _count(self, feeds: Sequence[Feed]) -> None:
        self.done.passes += 1
        self.done.rows += sum(len(feed.rows) for feed in feeds)
        self.done.tokens += sum(feed.size for feed in feeds)
        self.done.stale += sum(feed.size for feed in feeds if feed.job.useless)

    def _isolate(self, feeds: Sequence[Feed], failure: str) -> None:
        """Only the failing job must end."""
        log.warning("a pass over %d items failed with %s; they are run one by one", len(feeds), failure)
        for feed in feeds:
            if not feed.job.over:
                self._pass([feed])

    def _draw(self, feeds: Sequence[Feed], logits: torch.Tensor) -> list[tuple[Feed, list[SideDraft]]]:
        asking: list[tuple[Feed, Sequence[Sample]]] = []
        parts: list[_Part] = []
        start = 0
        for feed in feeds:
            part = slice(start, start + len(feed.rows) * feed.logits)
            start = part.stop
            if not feed.logits or feed.job.useless:
                continue
            try:
                asking.append((feed, feed.job.samples()))
                parts.append((part, feed.logits))
            except Exception as error:
                _blame(feed.job, error)
        if not asking:
            return []
        results = iter(self._results(logits, parts, [each for _, each in asking]))
        drawn = []
        for feed, each in asking:
            own = list(islice(results, len(each)))
            drafts = [draft for draft in own if not isinstance(draft, Exception)]
            failures = (error for error in own if isinstance(error, Exception))
            if (failure := next(failures, None)) is not None:
                _blame(feed.job, failure)
            else:
                drawn.append((feed, drafts))
        return drawn

    def _results(
        self, logits: torch.Tensor, parts: Sequence[_Part], samples: Sequence[Sequence[Sample]]
    ) -> list[SideDraft | Exception]:
        """Draws each part by itself if there is no memory to join them."""
        try:
            ordered = _by_position(logits, parts)
        except Exception as error:
            if len(parts) == 1:
                return [error] * len(samples[0])
        else:
            return draw(ordered, [sample for each in samples for sample in each], self._kernel)
        alone = zip(parts, samples, strict=True)
        return [draft for part, each in alone for draft in self._results(logits, [part], [each])]

    def _wait_out(self, steps: Sequence[Feed], tokens: int, started: float, useless: Callable[[], bool]) -> bool:
        """Emulates slower hardware. Returns False if the pass was abandoned meanwhile."""
        if self._minimum is None:
            return True
        least = self._minimum.seconds(max((feed.job.context for feed in steps), default=0), tokens)
        while (left := started + least - time.perf_counter()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if useless() or self._closing:
                return False
        return True


def _blame(job: Job, error: Exception) -> None:
    try:
        job.fail(error)
    except Exception as other:  # one job's error must not end the thread
        log.error("ending an answer failed with %s", type(other).__name__)


def _give_up(feeds: Sequence[Feed], started: int) -> None:
    for feed in feeds:
        feed.job.gave_up(started)


def _by_position(logits: torch.Tensor, parts: Sequence[_Part]) -> torch.Tensor:
    """Joins the `parts` of `logits` `[rows of all, vocab]`. Each part `[rows * count]` becomes `[count * rows]`."""
    if sum(part.stop - part.start for part, _ in parts) == len(logits) and all(count == 1 for _, count in parts):
        return logits
    ordered = [
        logits[part] if count == 1 else logits[part].unflatten(0, (-1, count)).transpose(0, 1).flatten(0, 1)
        for part, count in parts
    ]
    return torch.cat(ordered)
