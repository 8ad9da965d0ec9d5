"""Answers whose next tokens are a tree: one model grows it node by node, another verifies it in one pass (EdgeLLM)."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from common.engine.jobs import Assignment, in_memory, make_sample
from common.engine.sampling import Drawn, Sample
from common.engine.sequences import DocumentParts, Feed, Prompt
from common.model.decoder import Decoder
from common.model.tree import ROOT
from common.scoring.interface import ScoringRun
from common.tracing.recorder import Recorder
from common.trees.rounds import Reading


class TreeClient(Protocol):
    """One model's part in an answer, as the engine sees it. The engine's thread may call any of this at any time."""

    @property
    def over(self) -> bool:
        """Whether nothing more is wanted."""
        ...

    @property
    def recorder(self) -> Recorder | None: ...

    def work(self) -> Reading | None:
        """What the model is to read next; None while there is nothing to do. It is asked for just before a pass."""
        ...

    def outdated(self, work: Reading) -> bool:
        """Whether work that is under way has become useless. Polled between layers: be quick."""
        ...

    def drawn(self, work: Reading, drawn: Sequence[Drawn], seconds: float) -> None:
        """Take the drafts of the `work.count` distributions, `seconds` after their pass began."""
        ...

    def gave_up(self, work: Reading, started: int) -> None:
        """Note that the pass that began at `started` (monotonic nanoseconds) was given up."""
        ...


class TreeRows:
    """The rows `[document][query][answer so far][tree]` of one answer. For the thread that owns the decoder.

    `feed` compares what the rows hold with what they should. Of the tree that they hold it keeps the path that the
    answer took, and what follows it in the tree that is wanted now.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, reserve: int) -> None:
        """Takes memory; `reserve` counts a tree's tokens, too. Raises as `Decoder.take_rows` does."""
        self.documents = DocumentParts(decoder, prompt, reserve)
        self.rows = self.documents.rows
        self._query = list(prompt.query)
        self._chain: list[int] = []  # what the rows hold after the documents: a chain,
        self._tokens: list[int] = []  # and a tree
        self._parents: list[int] = []
        self._missing: list[int] = []  # of the chain, in the feed that was made last
        self._wanted = Reading(0, ())

    def feed(self, wanted: Reading) -> Feed:
        """Tokens to feed, so that the last `wanted.count` of `[query][wanted.path][tree]` give logits."""
        chain = [*self._query, *wanted.path]
        self._keep(chain, wanted)
        self._truncate(len(chain) + len(wanted.tokens) - wanted.count)
        missing = self._missing = chain[len(self._chain) :]
        self._wanted = wanted
        parents = None
        if wanted.tokens:
            # A chain that is read with the tree behind it is the tree's beginning.
            before = len(missing)
            parents = [*range(ROOT, before - 1), *(before + parent for parent in wanted.parents)]
        return Feed(self.rows, [*missing, *wanted.tokens[len(self._tokens) :]], wanted.count, parents)

    def fed(self, feed: Feed, tokens: int) -> None:
        """Note that the first `tokens` tokens of `feed` were part of a pass."""
        if feed.rows is not self.rows:
            self.documents.fed(feed)
            return
        self._chain += self._missing[:tokens]
        nodes = len(self._tokens) + max(0, tokens - len(self._missing))
        self._tokens, self._parents = list(self._wanted.tokens[:nodes]), list(self._wanted.parents[:nodes])

    def _keep(self, chain: Sequence[int], wanted: Reading) -> None:
        """Drop what the rows hold beside what is wanted, and move the rest together."""
        held = len(self._chain)
        if self._chain != chain[:held]:
            pairs = enumerate(zip(self._chain, chain, strict=False))
            self._truncate(next((place for place, (one, other) in pairs if one != other), min(held, len(chain))))
            return
        kept: list[int] = []
        for token in chain[held:]:
            if (child := self._child(kept[-1] if kept else ROOT, token)) is None:
                break
            kept.append(child)
        path = len(kept)
        if held + path == len(chain):
            places = {ROOT: kept[-1] if kept else ROOT}
            for place, (token, parent) in enumerate(zip(wanted.tokens, wanted.parents, strict=True)):
                child = self._child(places[parent], token)
                if child is None or (kept and child <= kept[-1]):
                    break
                places[place] = child
                kept.append(child)
        self.rows.keep(held, kept)
        self._chain = list(chain[: held + path])
        nodes = len(kept) - path
        self._tokens, self._parents = list(wanted.tokens[:nodes]), list(wanted.parents[:nodes])

    def _child(self, node: int, token: int) -> int | None:
        pairs = enumerate(zip(self._tokens, self._parents, strict=True))
        return next((place for place, pair in pairs if pair == (token, node)), None)

    def _truncate(self, length: int) -> None:
        """Drop the last tokens, so that the rows hold `length` at most behind their documents."""
        nodes = max(0, length - len(self._chain))
        del self._tokens[nodes:], self._parents[nodes:], self._chain[length:]
        self.rows.fed = len(self._chain) + len(self._tokens)


class TreeJob:
    """One model's part in an answer: the prompt is read, and then whatever the client wants to have read."""

    def __init__(
        self, client: TreeClient, assignment: Assignment, peer: Hashable, end: Callable[[Exception], object]
    ) -> None:
        """`end` ends the answer with the reason that its user is told."""
        self.peer = peer
        self.client = client
        self.assignment = assignment
        self._work: Reading | None = None  # the one whose feed was handed out last
        self._rows: TreeRows | None = None
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

    @property
    def useless(self) -> bool:
        return self.client.over or (self._work is not None and self.client.outdated(self._work))

    @property
    def context(self) -> int:
        return 0 if self._rows is None else self._rows.rows.context

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        """The documents that are not read yet, or else what the wanted distributions need."""
        self._work = None
        wanted = self.client.work()
        if wanted is None:
            return ()
        prompt = self.assignment.prompt
        if self._scoring is None:
            self._scoring = self.assignment.scorer.begin(prompt.query, prompt.documents, prompt.similarity)
        if self._rows is None:
            self._rows = in_memory(decoder, lambda: TreeRows(decoder, prompt, self.assignment.reserve))
            if self._rows is None:
                return ()
        if self._rows.documents.unread:
            return self._rows.documents.feeds()
        # Scores behind a tree's own tokens are waited for where they are needed: branches ask for many at once.
        if not self._scoring.ready(list(wanted.path), wake):
            return ()
        self._work = wanted
        return [self._rows.feed(wanted)]

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
        return [make_sample(self.assignment, self._scoring, path) for path in self._work.paths]

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
        if self._rows is not None:
            self._rows.documents.close()
            self._rows = None
