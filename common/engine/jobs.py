"""Jobs of the engine, and the commonest of them: an answer. For the engine's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from common.answer.recorder import Recorder
from common.answer.values import Drawn, TreeWork
from common.engine.kv.claims import Claim, Part
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.sampling import Drafter, Sample
from common.engine.scorer import DocumentScorer, ScoringRun
from common.engine.sequences import AnswerRows, Feed, Prompt
from common.processors.processor import Processor
from common.sampling.joint import Joint

Measured = Callable[[int, float], None]  # told of every step: context length, seconds
Asked = TypeVar("Asked", bound=TreeWork)
Wanted = TypeVar("Wanted", bound=TreeWork)


class Client(Protocol[Asked]):
    """A model's part in an answer, as the engine sees it. The engine's thread may call any of this at any time."""

    @property
    def over(self) -> bool:
        """Whether nothing more is wanted."""
        ...

    @property
    def resting(self) -> bool:
        """Whether work will not come soon, so that the rows' memory can be given back until then."""
        ...

    @property
    def recorder(self) -> Recorder | None: ...

    def work(self) -> Asked | None:
        """The next reading; None while there is nothing to do. It is asked for just before a pass.

        What the rows hold beside it is rolled back, what they lack is fed.
        """
        ...

    def outdated(self, work: Asked) -> bool:
        """Whether work that is under way has become useless. Polled between layers: be quick."""
        ...

    def drawn(self, work: Asked, drawn: Sequence[Drawn], seconds: float) -> None:
        """Take the drafts of the `work.count` distributions, `seconds` after their pass began."""
        ...

    def gave_up(self, work: Asked, started: int) -> None:
        """Note that the pass that began at `started` (monotonic nanoseconds) was given up."""
        ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything about one answer that its decoding needs."""

    prompt: Prompt
    scorer: DocumentScorer
    drafter: Drafter
    reserve: int  # tokens that the answer may have
    joint: Joint | None = None  # decides where there are fetched documents
    processor: Processor | None = None
    measured: Measured = lambda context, seconds: None
    waited: Callable[[float], object] = lambda seconds: None  # told how long it was until there was memory


class Job(Protocol):
    """Work of the engine that needs tokens fed to the model."""

    peer: Hashable  # who is to be treated fairly

    @property
    def over(self) -> bool: ...

    @property
    def running(self) -> bool:
        """Whether somebody waits for its next token, rather than for its first."""
        ...

    @property
    def useless(self) -> bool:
        """Whether the feeds handed out last need not be computed any more. Polled between layers: be quick."""
        ...

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        """Feeds that are possible now. `wake` is called when there may be more. Raises what ends this job."""
        ...

    def fed(self, feed: Feed, tokens: int) -> None:
        """Note that the first `tokens` tokens of `feed` were fed."""
        ...

    @property
    def context(self) -> int:
        """Tokens in its longest row."""
        ...

    def samples(self) -> Sequence[Sample]:
        """The drafts to be drawn from the logits of the feed that was handed out, distribution by distribution.

        Raises `ScoringError`, or `ValueError` for scores that weigh nothing.
        """
        ...

    def drawn(self, drawn: Sequence[Drawn], seconds: float, step: bool) -> None:
        """Take these drafts, `seconds` after their pass began; `step`: it was a decode step of one token."""
        ...

    def gave_up(self, started: int) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def close(self) -> None:
        """Free what the job holds."""
        ...


def make_sample(assignment: Assignment, scoring: ScoringRun, path: list[int]) -> Sample:
    """The draft to be drawn behind the answer's tokens `path`. Raises as `Job.samples` does."""
    scores, prompt = scoring.scores(path), assignment.prompt
    if scores.shape != (len(prompt.documents),) or not np.isfinite(scores).all():
        raise ValueError(f"{len(prompt.documents)} documents need as many finite scores")
    gain = None if prompt.blank is None else assignment.scorer.gain
    adjustment = None if assignment.processor is None else assignment.processor.at(path)
    joint, drafter = assignment.joint, assignment.drafter
    return Sample(len(path), scores, drafter, prompt.absent, prompt.fetched, joint, gain, adjustment)


class AnswerJob(Generic[Wanted]):
    """An answer: its prompt is read, and then whatever its client wants to have read, until it is over."""

    def __init__(
        self,
        client: Client[Wanted],
        assignment: Assignment,
        peer: Hashable,
        end: Callable[[Exception], object],
        part: Part | None = None,
    ) -> None:
        """`end` ends the answer with the reason that its user is told. `part` is this job's of the KV memory that the
        answer claims for several jobs together; None: it claims what it needs by itself.
        """
        self.peer = peer
        self.assignment = assignment
        self.client = client
        self._work: Wanted | None = None  # the one whose feeds were handed out last
        self._paths: Sequence[list[int]] = ()  # the answer's tokens before each of its distributions
        self._part = part
        self._rows: AnswerRows | None = None
        self._scoring: ScoringRun | None = None
        self._begun = time.monotonic_ns()
        self._running = False
        self._end = end

    @property
    def over(self) -> bool:
        return self.client.over

    @property
    def running(self) -> bool:
        return self._running

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        """The documents that are not read yet, or else what the wanted distributions need.

        Nothing for now while there is no memory; a slow scorer holds back the last tokens of a path only.
        """
        self._work = None
        wanted = self.client.work()
        if wanted is None:
            if self.client.resting:
                self.close()
            return ()
        scoring, prompt = self._scored(), self.assignment.prompt
        if self._rows is None:
            room = self._room(decoder, wake)
            if room is None:
                return ()
            self._rows = AnswerRows(decoder, prompt, room)
        *documents, feed = self._rows.feeds(wanted)
        if feed.rows is not self._rows.rows:  # of a document, too
            return [*documents, feed]
        # Scores behind a tree's own tokens are waited for where they are needed: branches ask for many at once.
        if not scoring.ready(list(wanted.path), wake):
            before = () if wanted.tokens or documents else feed.tokens[: -wanted.count]
            return [*documents, Feed(feed.rows, before)] if before else documents
        self._work, self._paths = wanted, wanted.paths
        return [*documents, feed]

    @property
    def useless(self) -> bool:
        return self.client.over or (self._work is not None and self.client.outdated(self._work))

    @property
    def context(self) -> int:
        return 0 if self._rows is None else self._rows.rows.context

    def fed(self, feed: Feed, tokens: int) -> None:
        if self._rows is not None:
            self._rows.fed(feed, tokens)

    def samples(self) -> list[Sample]:
        if self._work is None or self._scoring is None:
            raise RuntimeError("nothing was asked for")
        if not self._running:
            self._running = True
            if self.client.recorder is not None:
                self.client.recorder.since("prefill", self._begun)
        return [make_sample(self.assignment, self._scoring, path) for path in self._paths]

    def drawn(self, drawn: Sequence[Drawn], seconds: float, step: bool) -> None:
        if self._work is None:
            return
        if step:
            self.assignment.measured(self.context, seconds)
        self.client.drawn(self._work, drawn, seconds)

    def gave_up(self, started: int) -> None:
        if self._work is not None:
            self.client.gave_up(self._work, started)

    def fail(self, error: Exception) -> None:
        self._end(error)

    def close(self) -> None:
        self._rows = None
        if self._part is not None:
            self._part.leave()
            self._part = None

    def _room(self, decoder: Decoder, wake: Callable[[], None]) -> Rows | None:
        """Empty rows for the prompt and the answer; None while others have the memory.

        Raises as `Decoder.need`, `Claim` and `Part.rows` do.
        """
        prompt = self.assignment.prompt
        if self._part is None:
            self._part = Claim([decoder.need(prompt.parts, prompt.query, self.assignment.reserve)]).parts[0]
        rows = self._part.rows(wake)
        if rows is not None:
            self.assignment.waited(self._part.waited)
        return rows

    def _scored(self) -> ScoringRun:
        """The scores of this answer's documents, begun before the prompt is read: a slow scorer reads it meanwhile."""
        if self._scoring is None:
            prompt = self.assignment.prompt
            self._scoring = self.assignment.scorer.begin(prompt.query, prompt.documents, prompt.similarity)
        return self._scoring
