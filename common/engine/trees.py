"""Answers whose next tokens are a tree: one model grows it node by node, another verifies it in one pass (EdgeLLM)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from common.answer.values import ROOT, TreeWork
from common.engine.jobs import Asking, AskingJob, Assignment
from common.engine.kv.claims import Part
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.sequences import DocumentParts, Feed, Prompt


class TreeClient(Asking[TreeWork], Protocol):
    """One model's part in an answer."""

    def work(self) -> TreeWork | None:
        """The model's next reading; None while there is nothing to do. It is asked for just before a pass."""
        ...


class TreeRows:
    """The rows `[document][query][answer so far][tree]` of one answer. For the thread that owns the decoder.

    `feed` compares what the rows hold with what they should. Of the tree that they hold it keeps the path that the
    answer took, and what follows it in the tree that is wanted now.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows) -> None:
        """`rows` are empty ones with room for a tree, too."""
        self.documents = DocumentParts(decoder, prompt, rows)
        self.rows = rows
        self._query = list(prompt.query)
        self._chain: list[int] = []  # what the rows hold after the documents: a chain,
        self._tokens: list[int] = []  # and a tree
        self._parents: list[int] = []
        self._missing: list[int] = []  # of the chain, in the feed that was made last
        self._wanted = TreeWork(0, ())

    def feed(self, wanted: TreeWork) -> Feed:
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

    def _keep(self, chain: Sequence[int], wanted: TreeWork) -> None:
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


class TreeJob(AskingJob[TreeWork, TreeRows]):
    """One model's part in an answer: the prompt is read, and then whatever the client wants to have read."""

    def __init__(
        self,
        client: TreeClient,
        assignment: Assignment,
        peer: Hashable,
        end: Callable[[Exception], object],
        part: Part | None = None,
    ) -> None:
        super().__init__(client, assignment, peer, end, part)
        self.client = client

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        """The documents that are not read yet, or else what the wanted distributions need."""
        self._work = None
        wanted = self.client.work()
        if wanted is None:
            return ()
        scoring, prompt = self._scored(), self.assignment.prompt
        if self._rows is None:
            room = self._room(decoder, wake)
            if room is None:
                return ()
            self._rows = TreeRows(decoder, prompt, room)
        if self._rows.documents.unread:
            return self._rows.documents.feeds()
        # Scores behind a tree's own tokens are waited for where they are needed: branches ask for many at once.
        if not scoring.ready(list(wanted.path), wake):
            return ()
        self._work, self._paths = wanted, wanted.paths
        return [self._rows.feed(wanted)]
