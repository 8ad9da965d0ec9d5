"""The verifier of one answer, as a pure state machine: judges proposals in their order, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from common.answer.prefix import Prefix
from common.answer.values import Action, Commit, Send, View, Work
from common.methods.drafted.machine.values import Judge, Proposed, RoundsConfig
from common.sampling.draws import Place
from proto.digest import extend
from proto.errors import malformed, too_large
from proto.fields import Side
from proto.limits import MOST_PROPOSED
from proto.messages import Sync
from proto.rounds import Propose, Verdict

MOST_PENDING: Final = 256  # proposals of an answer that wait to be judged

_WITHIN: Final = f"a proposal must have 1 to {MOST_PROPOSED} tokens, within the answer"
_KNOWN: Final = "proposed tokens must be of the vocabulary"
_NOTHING_BEHIND: Final = "nothing may be proposed behind the end of the sequence"


@dataclass(frozen=True, slots=True)
class Pending:
    """A proposal that waits."""

    message: Propose
    proposed: Sequence[Proposed]
    arrived: float  # seconds

    @property
    def end(self) -> int:
        return self.message.position + len(self.proposed)


class Verifying:
    """Judges what a drafter proposes. Proposals that follow each other are judged in one pass."""

    aggregator: ClassVar[Side] = "cloud"

    def __init__(self, config: RoundsConfig, judge: Judge) -> None:
        self.config = config
        self.epoch = 0  # counts changes of the prefix other than by what was verified
        self.stale = 0  # proposals for another prefix
        self.judged = 0  # tokens
        self.accepted = 0
        self._judge = judge
        self._prefix = Prefix()
        self._pending: deque[Pending] = deque()
        self._round = 0  # that was judged last
        self._whole = False  # whether all of it held, and nothing was added
        self._verdict: Verdict | None = None
        self._read = False  # the prompt

    @property
    def position(self) -> int:
        """Tokens that are decided."""
        return self._prefix.length

    def work(self) -> Work | None:
        """The distributions that the next verdict needs, or the first one, so that the prompt is read meanwhile."""
        batch = self._batch()
        path = tuple(self._prefix.path)
        if not batch:
            return None if self._read else Work(self.epoch, path)
        path += tuple(proposed.token for pending in batch for proposed in pending.proposed)
        count = len(path) - self.position + self._bonus(path)
        return Work(self.epoch, path[: self.position + count - 1], count=count)

    # --- events

    def check(self, message: Propose) -> None:
        """Refuse a proposal that no drafter can have sent, as far as that takes no work. Looks at nothing that changes.

        Raises `ProtocolError`.
        """
        self._judge.check(message)
        if any(token >= self.config.vocabulary for token in (*message.tail, *message.tokens)):
            raise malformed(_KNOWN)
        if any(token in self.config.eos for token in (*message.tail, *message.tokens[:-1])):
            raise malformed(_NOTHING_BEHIND)
        if len(message.tail) > message.position:
            raise malformed("a tail must lie within the answer")
        if message.position + max(1, len(message.tokens)) > self.config.max_tokens:
            raise malformed(_WITHIN)

    def wants(self, message: Propose) -> bool:
        """Whether a proposal is to be read: it neither was judged nor waits. Raises `ProtocolError` if many wait."""
        if message.round <= self._round or (self._pending and message.round <= self._pending[-1].message.round):
            return False
        if len(self._pending) >= MOST_PENDING:
            raise too_large(f"at most {MOST_PENDING} proposals of an answer may wait")
        return True

    def proposed(self, message: Propose, now: float, proposed: Sequence[Proposed] | None = None) -> list[Action]:
        """Take a proposal that arrives at `now`, in seconds; one that was judged gets the same verdict again.

        `proposed` is what the judge reads in it, where it has been asked already: that may take long. Raises
        `ProtocolError` for one that no drafter can have sent; then nothing has changed.
        """
        if not self.wants(message):
            if self._verdict is not None and message.round == self._round:
                return [Send(self._verdict)]
            self.stale += message.round <= self._round
            return []
        self.check(message)
        pending = Pending(message, self._judge.read(message) if proposed is None else proposed, now)
        self._check(pending)
        self._pending.append(pending)
        self._follow()
        return []

    def synchronised(self, message: Sync) -> list[Action]:
        """Adopt the tokens that are decided; where they are others than before, forget what was proposed.

        Asked again during a long pass, a verifier must not begin it anew. Raises `ProtocolError`.
        """
        if any(token >= self.config.vocabulary for token in message.tokens):
            raise malformed("the tokens of a Sync must be of the vocabulary")
        if len(message.tokens) > self.config.max_tokens:
            raise malformed("a Sync must not have more tokens than the answer may have")
        if list(message.tokens) != self._prefix.committed():
            self._pending.clear()
            self._verdict = None
            self._round = 0
            self._whole = False
            self._prefix = Prefix()
            for token in message.tokens:
                self._append(token)
            self.epoch += 1
        return [Send(Sync(self.config.session, 0, message.tokens, "cloud", False))] if message.wants_reply else []

    def drawn(self, work: Work, views: Sequence[View], seconds: float, now: float) -> list[Action]:
        """Judge the proposals for which `work` asked, by this side's own views at their positions.

        The pass ended at `now`, by the clock of `proposed`.
        """
        if work.epoch != self.epoch or work.position != self.position:
            return []
        self._read = True
        batch = self._asked_by(work)
        if not batch:
            return []
        proposed = [each for pending in batch for each in pending.proposed]
        judgement = self._judge.judge(Place(self.position, self._prefix.path_digest), proposed, views)
        for _ in batch:
            self._pending.popleft()
        last = batch[-1].message.round
        start, tokens = self.position, [each.token for each in proposed[: judgement.accepted]]
        self.judged += len(proposed)
        self.accepted += judgement.accepted
        token = () if judgement.token is None else (judgement.token,)
        self._round = last
        self._whole = judgement.accepted == len(proposed) and not token
        held = max(0.0, now - batch[-1].arrived)
        payload = judgement.payload
        verdict = Verdict(self.config.session, last, start, judgement.accepted, token, int(1e6 * held), payload)
        self._verdict = verdict
        for each in (*tokens, *token):
            self._append(each)
        if judgement.accepted < len(proposed):
            self.epoch += 1
        self._follow()
        decided = [
            Commit(start + place, each, False, None, None, {"cloud": True})
            for place, each in enumerate((*tokens, *token))
        ]
        return [*decided, Send(verdict)]

    # --- inside

    def _check(self, pending: Pending) -> None:
        tokens = [each.token for each in pending.proposed]
        if not 0 < len(tokens) <= MOST_PROPOSED or pending.end > self.config.max_tokens:
            raise malformed(_WITHIN)
        if any(token >= self.config.vocabulary for token in tokens):
            raise malformed(_KNOWN)
        if any(token in self.config.eos for token in tokens[:-1]):
            raise malformed(_NOTHING_BEHIND)

    def _follow(self) -> None:
        """Take the tail of the next proposal, and drop proposals for another prefix."""
        while self._pending:
            message = self._pending[0].message
            if self._whole and _continues(message, self._round, self.position):
                return
            known = self.position - (message.position - len(message.tail))
            if message.digest and 0 <= known <= len(message.tail):
                digest = self._prefix.path_digest
                for token in message.tail[known:]:
                    digest = extend(digest, token)
                if digest == message.digest[0]:
                    for token in message.tail[known:]:
                        self._append(token)
                    return
            self._pending.popleft()
            self.stale += 1

    def _batch(self) -> list[Pending]:
        """The proposals that are judged next: the first, and those that follow it without a gap."""
        batch: list[Pending] = []
        for pending in self._pending:
            if batch and (self.config.bonus or not _continues(pending.message, batch[-1].message.round, batch[-1].end)):
                break
            batch.append(pending)
        return batch

    def _asked_by(self, work: Work) -> list[Pending]:
        """The proposals that `work` was about; more may have come since."""
        found: list[Pending] = []
        path: list[Any] = list(self._prefix.path)
        for pending in self._batch():
            found.append(pending)
            path += [each.token for each in pending.proposed]
            count = len(path) - self.position + self._bonus(path)
            if count == work.count:
                return found
        return []

    def _bonus(self, path: Sequence[int]) -> int:
        """1 where a token is to be drawn behind `path`."""
        return int(self.config.bonus and not self.config.ends(path[-1], len(path)))

    def _append(self, token: int) -> None:
        self._prefix.extend(token)
        self._prefix.commit()


def _continues(message: Propose, before: int, end: int) -> bool:
    """Whether a proposal says that it follows the one of round `before`, which ends at position `end`."""
    return (message.digest, message.tail, message.round, message.position) == ((), (), before + 1, end)
