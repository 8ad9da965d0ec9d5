"""The thread that owns the model (DRAGON §3: Decoder).

Turn by turn it asks its jobs what they lack, lets the batcher choose, runs one forward pass over all of it, draws all
drafts, and hands them out. A pass is given up between two layers when nobody needs it any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Final

import torch

from common.answer.values import Drawn
from common.engine.batcher import SHORT, Batcher, PassTimes, PeerShares, Share, Wish
from common.engine.draw import Sample, draw
from common.engine.gate import Gate
from common.engine.jobs import Feed, Job
from common.engine.model.decoder import Decoder
from common.engine.model.errors import Preempted
from common.engine.model.packed import Item
from common.estimates.estimators import DecodeLine
from common.estimates.peer import TYPICAL_CONTEXT
from common.process.threads import Accounts, ByTurns, Died, TokenBucket, vital_thread
from common.sampling.race import RaceKernel

# --- emulation
# Hardware slower than this machine, for experiments.


@dataclass(frozen=True, slots=True)
class MinimumTimes:
    """Emulation of slower hardware: seconds that a pass takes at least."""

    step: float  # of a decode step
    context: float = 0.0  # more per token of context
    prompt: float = 0.0  # more per token of prompts

    def seconds(self, context: int, tokens: int) -> float:
        """Duration of a pass with steps at `context` tokens (0: no steps) and `tokens` tokens of prompts."""
        return (self.step + self.context * context if context else 0.0) + self.prompt * tokens

    def line(self, measured: DecodeLine) -> DecodeLine:
        """The decode line that profiling this hardware would find; `measured` is the machine's own."""
        return DecodeLine.of(self.context, max(self.step, measured.intercept), TYPICAL_CONTEXT)


# --- passes
# A feed's part in a forward pass, and the account of what passes were for.


@dataclass(frozen=True, slots=True)
class Entry:
    """A feed as it takes part in a pass, with how many of its tokens do."""

    job: Job
    feed: Feed
    tokens: int

    @property
    def item(self) -> Item:
        """The tokens to feed; logits are wanted once all of them are."""
        feed, left = self.feed, len(self.feed.tokens) - self.tokens
        parents = feed.parents if feed.parents is None or not left else feed.parents[:-left]
        return Item(feed.rows, feed.tokens[: self.tokens], 0 if left else feed.logits, parents)

    @property
    def step(self) -> bool:
        """Whether it is a decode step or verifies a proposal, rather than a prompt or a catch-up."""
        wanted = max(self.feed.logits, 1)
        return self.job.running and (len(self.feed.tokens) == 1 or (wanted > 1 and self.before < SHORT))

    @property
    def before(self) -> int:
        """Tokens per row before those whose distributions are wanted."""
        return len(self.feed.tokens) - self.feed.logits


@dataclass(slots=True)
class WorkDone:
    """Passes and tokens computed, and those computed in vain. Tokens count once per row."""

    passes: int = 0
    given_up: int = 0  # passes that ended between two layers
    rows: int = 0  # of whole passes
    tokens: int = 0  # fed in them
    seconds: float = 0.0  # of them
    stale: int = 0  # of them, those whose draft nobody wanted any more when the pass ended

    def __str__(self) -> str:
        share = self.stale / self.tokens if self.tokens else 0.0
        return (
            f"{self.passes} passes of {self.tokens / max(self.passes, 1):.1f} tokens, {share:.1%} of them for drafts "
            f"that were outdated when the pass ended; {self.given_up} passes given up"
        )


def prompt_tokens(entries: Sequence[Entry]) -> int:
    """Tokens of all rows that are not steps."""
    return sum(len(entry.feed.rows) * entry.tokens for entry in entries if not entry.step)


def in_order(feeds: Sequence[Feed], shares: Sequence[Share]) -> list[Share]:
    """The shares of a pass without those whose feed is behind others that the pass does not feed whole."""
    whole = {id(feeds[share.wish]) for share in shares if share.tokens == len(feeds[share.wish].tokens)}
    return [share for share in shares if whole.issuperset(map(id, feeds[share.wish].behind))]


# --- tasks
# Tasks beside the passes of a thread that owns a model. Peers that cause them have turns, and shares of its time.

Task = Callable[[], None]

SHARE: Final = 0.25  # seconds of the thread's time that the tasks of one owner may take, per second
BURST: Final = 0.5  # seconds that they may take at once
SHARE_OF_ALL: Final = 0.5  # the same of all owners together, but for the daemon itself
BURST_OF_ALL: Final = 1.0
SLICE: Final = 0.005  # seconds of a round after which the next task is left to the next one


class Tasks:
    """Waiting tasks, run between two passes. Owners that have overdrawn their account wait, and all of them while they
    have overdrawn the one that they share; the daemon's own tasks, of the owner None, do not.
    """

    def __init__(self) -> None:
        self._waiting = ByTurns[Task]()
        self._accounts = Accounts(SHARE, BURST)
        self._of_all = TokenBucket(SHARE_OF_ALL, BURST_OF_ALL, time.monotonic())
        self._lock = threading.Lock()

    def add(self, owner: Hashable, task: Task) -> None:
        """Let `task` wait, which must not raise. From any thread."""
        with self._lock:
            self._waiting.add(owner, task)

    def run(self) -> bool:
        """One round: the daemon's own tasks for as long as a slice, and the owners' by turns for as long; whether there
        were any.
        """
        now = time.monotonic()
        with self._lock:
            due = [owner for owner in self._waiting if not self._until_due(owner, now)]
        self._run(None, SLICE)
        left = SLICE
        for owner in due:
            if owner is not None and left > 0.0:
                spent, ended = self._run(owner, left)
                self._accounts.of(owner, ended).charge(ended, spent)
                self._of_all.charge(ended, spent)
                left -= spent
        return bool(due)

    def _run(self, owner: Hashable, most: float) -> tuple[float, float]:
        """Run the owner's tasks until `most` seconds are over; the seconds that they took, and when they ended."""
        began = ended = time.monotonic()
        while ended - began < most and (task := self._take(owner)) is not None:
            task()
            ended = time.monotonic()
        return ended - began, ended

    def wait(self) -> float | None:
        """Seconds until a task is due, None where none waits."""
        now = time.monotonic()
        with self._lock:
            return min((self._until_due(owner, now) for owner in self._waiting), default=None)

    def _until_due(self, owner: Hashable, now: float) -> float:
        return 0.0 if owner is None else max(self._of_all.wait(now), self._accounts.of(owner, now).wait(now))

    def _take(self, owner: Hashable) -> Task | None:
        with self._lock:
            return self._waiting.take(owner) if owner in self._waiting else None


# --- worker

log = logging.getLogger(__name__)

_Part = tuple[slice, int]  # one answer's rows of a pass's logits, and at how many positions it wants them

LOOK_AGAIN = 1.0  # seconds; a job that has waited for memory for too long finds out when it is looked at


class Worker:
    """Runs the model's thread until closed. `submit`, `task` and `wake` may be called from any thread."""

    def __init__(
        self,
        decoder: Decoder,
        step: float,
        minimum: MinimumTimes | None = None,
        died: Died | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`step` is what a decode step takes as profiled, in seconds; `died` is told if the thread ends by itself.

        Workers that share a `gate` compute one at a time. Who waits for a streamed layer lets others have turns.
        """
        self.decoder = decoder
        self._gate = gate
        self._waiting = None if gate is None or decoder.streamed is None else gate.lend
        self.times = PassTimes(max(step, 0.0 if minimum is None else minimum.step))
        if decoder.streamed is not None:
            self.times.token = 0.0  # until some were measured: reading the weights takes most of a pass
        self.done = WorkDone()
        self._minimum = minimum
        self._batcher = Batcher()
        self._shares = PeerShares()
        self._kernel = RaceKernel(decoder.vocabulary, decoder.torch_device)
        self._jobs: list[Job] = []
        self._running = 0  # of these, those that had begun at the last turn
        self._tasks = Tasks()
        self._new: deque[Job] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = vital_thread(self._run, "decoder", died)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Work on `job` until it is over."""
        self._new.append(job)
        self._wake.set()

    def task(self, run: Task, owner: Hashable = None) -> None:
        """Call `run` once on this thread, between two passes, at the cost of the peer `owner`; None: it is this
        daemon's own. It must not raise.
        """
        self._tasks.add(owner, run)
        self._wake.set()

    def wake(self) -> None:
        """Look at the jobs again: one may have something to do, or nothing any more."""
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether there is no job, as of now. On any thread."""
        return not self._jobs and not self._new

    @property
    def row_seconds(self) -> float:
        """Seconds that one token more in a row of an answer costs all answers that are running, together."""
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
                    self.decoder.document_cache.release()
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
        """One pass; returns whether there was anything to do."""
        busy = self._tasks.run()
        self._renew_jobs()
        wanted, held = self._wanted()
        if not wanted:
            return busy
        running = any(job.running and job.peer not in held for job in self._jobs)
        wishes = [
            Wish(job.peer, len(feed.rows), len(feed.tokens), job.running, max(feed.logits, 1)) for job, feed in wanted
        ]
        shares = in_order([feed for _, feed in wanted], self._plan(wishes, self.times.budget(running)))
        entries = [Entry(*wanted[share.wish], share.tokens) for share in shares]
        began = time.perf_counter()
        self._pass([entry for entry in entries if self._fits(entry)])
        self._shares.note(wishes, shares, time.perf_counter() - began, self.times)
        return True

    def _rest(self) -> float | None:
        """Seconds until there may be something to do although nobody has said so."""
        due = self._tasks.wait()
        if not self._jobs:
            return due
        return LOOK_AGAIN if due is None else min(due, LOOK_AGAIN)

    def _plan(self, wishes: Sequence[Wish], budget: int) -> list[Share]:
        admitted = self._shares.admitted(wishes, self.times)
        chosen = self._batcher.plan([wishes[index] for index in admitted], budget)
        return [Share(admitted[share.wish], share.tokens) for share in chosen]

    def _renew_jobs(self) -> None:
        while self._new:
            self._jobs.append(self._new.popleft())
        for job in self._jobs:
            if job.over:
                job.close()
        self._jobs = [job for job in self._jobs if not job.over]
        self._running = sum(job.running for job in self._jobs)

    def _wanted(self) -> tuple[list[tuple[Job, Feed]], Set[Hashable]]:
        """Feeds that are possible now, and the peers that are held back, whose jobs were not asked."""
        asking = Counter(job.peer for job in self._jobs)
        while asking:
            held = self._shares.held(asking)
            wanted: list[tuple[Job, Feed]] = []
            for job in self._jobs:
                if job.peer in asking and job.peer not in held:
                    with _Blame(job):
                        wanted += [(job, feed) for feed in job.feeds(self.decoder, self.wake)]
            if wanted:
                return wanted, held
            asking = Counter({peer: asking[peer] for peer in held})
        return [], frozenset()

    def _fits(self, entry: Entry) -> bool:
        """Whether the decoder takes the entry; a refusal ends its job and nothing else."""
        with _Blame(entry.job):
            self.decoder.check_feed(entry.item)
            return True
        return False

    def _pass(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        started, clock = time.monotonic_ns(), time.perf_counter()
        jobs = [entry.job for entry in entries]

        def useless() -> bool:
            return all(job.useless for job in jobs)

        failure = ""
        try:
            logits = self.decoder.forward([entry.item for entry in entries], useless, self._waiting)
        except Preempted:
            self.done.given_up += 1
            _give_up(jobs, started)
            return
        except Exception as error:
            if len(entries) == 1:
                with _Blame(entries[0].job):
                    raise
                return
            failure = type(error).__name__
        if failure:  # the error is gone, and with it the memory of what it broke off
            self._isolate(entries, failure)
            return
        self._settle(entries)
        self._count(entries)
        drawn = self._draw(entries, logits)
        stepping = [entry for entry in entries if entry.step]
        further = sum(len(entry.feed.rows) * (entry.tokens - 1) for entry in stepping)
        if not self._wait_out(entries, further, clock, useless):
            _give_up(jobs, started)
            return
        seconds = time.perf_counter() - clock
        self.done.seconds += seconds
        stepped = sum(len(entry.feed.rows) * entry.tokens for entry in stepping)
        self.times.observe(seconds, bool(stepping), prompt_tokens(entries), further, stepped)
        for entry, drafts in drawn:
            with _Blame(entry.job):
                entry.job.drawn(drafts, seconds, entry.step and len(entry.feed.tokens) == 1)
        if drawn:
            self.decoder.document_cache.release()

    def _count(self, entries: Sequence[Entry]) -> None:
        tokens = [len(entry.feed.rows) * entry.tokens for entry in entries]
        self.done.passes += 1
        self.done.rows += sum(len(entry.feed.rows) for entry in entries)
        self.done.tokens += sum(tokens)
        self.done.stale += sum(count for entry, count in zip(entries, tokens, strict=True) if entry.job.useless)

    def _isolate(self, entries: Sequence[Entry], failure: str) -> None:
        """A pass failed: run its entries one by one, so that only the one at fault ends."""
        log.warning("a pass over %d items failed with %s; they are run one by one", len(entries), failure)
        for entry in entries:
            if not entry.job.over:
                self._pass([entry])

    def _settle(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            with _Blame(entry.job):
                entry.job.fed(entry.feed, entry.tokens)

    def _draw(self, entries: Sequence[Entry], logits: torch.Tensor) -> list[tuple[Entry, list[Drawn]]]:
        """The drafts of those that asked for distributions and still want them."""
        asking: list[tuple[Entry, Sequence[Sample]]] = []
        parts: list[_Part] = []
        start = 0
        for entry in entries:
            count = entry.item.logits
            part = slice(start, start + len(entry.feed.rows) * count)
            start = part.stop
            if not count or entry.job.useless:
                continue
            with _Blame(entry.job):
                asking.append((entry, entry.job.samples()))
                parts.append((part, count))
        if not asking:
            return []
        results = iter(self._results(logits, parts, [each for _, each in asking]))
        drawn = []
        for entry, each in asking:
            drafts = [next(results) for _ in each]
            with _Blame(entry.job):
                drawn.append((entry, [_unless_failed(draft) for draft in drafts]))
        return drawn

    def _results(
        self, logits: torch.Tensor, parts: Sequence[_Part], samples: Sequence[Sequence[Sample]]
    ) -> list[Drawn | Exception]:
        """The drafts of all `samples`, by part. Each part is drawn by itself where there is no memory to join them."""
        try:
            ordered = _by_position(logits, parts)
        except Exception as error:
            if len(parts) == 1:
                return [error] * len(samples[0])
        else:
            return draw(ordered, [sample for each in samples for sample in each], self._kernel)
        alone = zip(parts, samples, strict=True)
        return [draft for part, each in alone for draft in self._results(logits, [part], [each])]

    def _wait_out(self, entries: Sequence[Entry], further: int, started: float, useless: Callable[[], bool]) -> bool:
        """Emulate slower hardware, on which `further` tokens of steps cost what a prompt's do; False when the pass was
        given up meanwhile.
        """
        if self._minimum is None:
            return True
        contexts = [entry.job.context for entry in entries if entry.step]
        least = self._minimum.seconds(max(contexts, default=0), prompt_tokens(entries) + further)
        while (left := started + least - time.perf_counter()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if useless() or self._closing:
                return False
        return True


class _Blame:
    """Confine what goes wrong inside to one job, which it ends."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        try:
            self._job.fail(error)
        except Exception as other:  # whatever it is, it is one job's affair
            log.error("ending an answer failed with %s", type(other).__name__)
        return True


def _unless_failed(draft: Drawn | Exception) -> Drawn:
    if isinstance(draft, Exception):
        raise draft
    return draft


def _give_up(jobs: Sequence[Job], started: int) -> None:
    for job in jobs:
        job.gave_up(started)


def _by_position(logits: torch.Tensor, parts: Sequence[_Part]) -> torch.Tensor:
    """Those `parts` of `logits` `[rows of all, vocab]`, joined: each a slice `[rows * count]`, which becomes
    `[count * rows]`.
    """
    if sum(part.stop - part.start for part, _ in parts) == len(logits) and all(count == 1 for _, count in parts):
        return logits
    ordered = [
        logits[part] if count == 1 else logits[part].unflatten(0, (-1, count)).transpose(0, 1).flatten(0, 1)
        for part, count in parts
    ]
    return torch.cat(ordered)
