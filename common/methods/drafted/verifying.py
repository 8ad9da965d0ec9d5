"""The verifier of one answer as a state machine: judges proposals once, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol

from common.answer.driver import Driver, ModelSeat, StateMachine
from common.answer.values import Action, Commit, Prefix, Send, SideDraft, View, Work
from common.methods.drafted.drafting import Judge, ProposedToken, RoundsConfig
from common.sampling.compiled import DrawPoint
from proto.codes import extend
from proto.errors import malformed, too_large
from proto.messages import MOST_PROPOSED, Decided, Defer, Propose, Side, Sync, Verdict

MOST_PENDING: Final = 256  # per answer
MOST_PENDING_BYTES: Final = 2**24  # of payloads; decoded, up to six times as much
MOST_JUDGED: Final = MOST_PROPOSED  # tokens per pass: each needs a distribution per document

_WITHIN: Final = f"a proposal must have 1 to {MOST_PROPOSED} tokens, within the answer"
_KNOWN: Final = "proposed tokens must be of the vocabulary"
_NOTHING_BEHIND: Final = "nothing may be proposed after the end of the sequence"


@dataclass(frozen=True, slots=True)
class Pending:
    """A waiting proposal, or deferred tokens."""

    message: Propose | Defer
    proposed: Sequence[ProposedToken]
    arrived: float  # seconds

    @property
    def end(self) -> int:
        count = self.message.count if isinstance(self.message, Defer) else len(self.proposed)
        return self.message.position + count


class Verifying:
    """Judges proposals and decides deferred tokens. Consecutive proposals share a pass."""

    aggregator: ClassVar[Side] = "cloud"

    def __init__(self, config: RoundsConfig, judge: Judge) -> None:
        self.config = config
        self.epoch = 0  # other changes of the prefix than by verification
        self.stale = 0  # proposals for another prefix
        self.judged = 0  # tokens
        self.accepted = 0
        self._judge = judge
        self._prefix = Prefix()
        self._pending: deque[Pending] = deque()
        self._round = 0  # judged last
        self._whole = False  # wholly accepted, without an added token
        self._verdict: Verdict | None = None
        self._read = False  # the prompt

    @property
    def position(self) -> int:
        return self._prefix.length

    @property
    def decided(self) -> list[int]:
        return self._prefix.committed()

    def work(self) -> Work | None:
        """The next verdict's distributions; initially one, to read the prompt early."""
        batch = self._batch()
        path = tuple(self._prefix.path)
        if not batch:
            return None if self._read else Work(self.epoch, path)
        path += tuple(proposed.token for pending in batch for proposed in pending.proposed)
        count = len(path) - self.position + self._bonus(batch[-1], path)
        return Work(self.epoch, path[: self.position + count - 1], count=count)

    # --- events

    def check(self, message: Propose | Defer) -> None:
        """Cheaply reject a message, without reading changing state. Raises `ProtocolError`."""
        if isinstance(message, Propose):
            self._judge.check(message)
            tokens, least = message.tokens, max(1, len(message.tokens))
        else:
            tokens, least = (), message.count
            if not self.config.defers:
                raise malformed("nothing may be deferred in an answer whose verifier decides by itself, or never may")
        if any(token >= self.config.vocabulary for token in (*message.tail, *tokens)):
            raise malformed(_KNOWN)
        if any(token in self.config.eos for token in (*message.tail, *tokens[:-1])):
            raise malformed(_NOTHING_BEHIND)
        if len(message.tail) > message.position:
            raise malformed("a tail must lie within the answer")
        if message.position + least > self.config.max_tokens:
            raise malformed(_WITHIN)

    def wants(self, message: Propose | Defer) -> bool:
        """Whether a message is new and fits; others count as lost.

        Raises `ProtocolError` if too many wait.
        """
        if message.round <= self._round or (self._pending and message.round <= self._pending[-1].message.round):
            return False
        if len(self._pending) >= MOST_PENDING:
            raise too_large(f"at most {MOST_PENDING} proposals of an answer may wait")
        waiting = sum(_size(pending.message) for pending in self._pending)
        return not waiting or waiting + _size(message) <= MOST_PENDING_BYTES

    def proposed(self, message: Propose, now: float, proposed: Sequence[ProposedToken] | None = None) -> list[Action]:
        """Process a proposal of time `now` (seconds), or repeat its verdict.

        `proposed` is the judge's earlier reading. Raises `ProtocolError` for an invalid proposal, without a change.
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
        return self._follow()

    def deferred(self, message: Defer, now: float) -> list[Action]:
        """Process deferred tokens; ignore repeated ones.

        Raises `ProtocolError` if invalid, without a change.
        """
        if self.wants(message):
            self.check(message)
            self._pending.append(Pending(message, (), now))
            return self._follow()
        return []

    def synchronised(self, message: Sync) -> list[Action]:
        """Adopt the decided tokens; forget proposals if they differ.

        A repeated Sync must not restart a long pass. Raises `ProtocolError`.
        """
        if any(token >= self.config.vocabulary for token in message.tokens):
            raise malformed("the tokens of a Sync must be of the vocabulary")
        if len(message.tokens) > self.config.max_tokens:
            raise malformed("a Sync must not have more tokens than the answer may have")
        actions: list[Action] = []
        tokens, own = message.tokens, tuple(self._prefix.committed())
        if tokens != own:
            if tokens[: len(own)] == own:
                actions = self._take(tokens[len(own) :])
            else:
                self._prefix = Prefix()
                for token in tokens:
                    self._append(token)
            self._pending.clear()
            self._verdict = None
            self._round = 0
            self._whole = False
            self.epoch += 1
        if message.wants_reply:
            actions.append(Send(Sync(self.config.session, 0, tokens, "cloud", False)))
        return actions

    def drawn(self, work: Work, views: Sequence[View], seconds: float, now: float) -> list[Action]:
        """Judge the proposals of `work` by this side's views. The pass ended at `now`."""
        if work.epoch != self.epoch or work.position != self.position:
            return []
        self._read = True
        batch = self._asked_by(work)
        if not batch:
            return []
        if isinstance(message := batch[0].message, Defer):
            return self._decided(message, views, seconds)
        proposed = [each for pending in batch for each in pending.proposed]
        judgement = self._judge.judge(DrawPoint(self.position, self._prefix.path_digest), proposed, views)
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
        decided = [commit_of(place, each) for place, each in enumerate((*tokens, *token), start)]
        return [*decided, Send(verdict), *self._follow()]

    # --- inside

    def _decided(self, message: Defer, views: Sequence[View], seconds: float) -> list[Action]:
        start, digest = self.position, self._prefix.path_digest
        token = self._judge.judge(DrawPoint(start, digest), (), views).token
        assert token is not None  # by `RoundsConfig.defers`
        self._append(token)
        ended = self.config.ends(token, self.position)
        told = Decided(self.config.session, message.round, start, digest, (token,), int(1e6 * seconds))
        actions: list[Action] = [commit_of(start, token), Send(told)]
        pending = self._pending.popleft()
        if message.count > 1 and not ended:
            behind = (self._prefix.path_digest,)
            rest = replace(message, position=self.position, digest=behind, tail=(), count=message.count - 1)
            self._pending.appendleft(replace(pending, message=rest))
            return actions
        self._round, self._whole, self._verdict = message.round, not ended, None
        return actions + self._follow()

    def _check(self, pending: Pending) -> None:
        tokens = [each.token for each in pending.proposed]
        if not 0 < len(tokens) <= MOST_PROPOSED or pending.end > self.config.max_tokens:
            raise malformed(_WITHIN)
        if any(token >= self.config.vocabulary for token in tokens):
            raise malformed(_KNOWN)
        if any(token in self.config.eos for token in tokens[:-1]):
            raise malformed(_NOTHING_BEHIND)

    def _follow(self) -> list[Action]:
        """Take the next proposal's tail, and drop mismatching proposals."""
        while self._pending:
            message = self._pending[0].message
            if self._whole and _continues(message, self._round, self.position):
                return []
            known = self.position - (message.position - len(message.tail))
            if message.digest and 0 <= known <= len(message.tail):
                digest = self._prefix.path_digest
                for token in message.tail[known:]:
                    digest = extend(digest, token)
                if digest == message.digest[0]:
                    return self._take(message.tail[known:])
            self._pending.popleft()
            self.stale += 1
        return []

    def _take(self, tokens: Sequence[int]) -> list[Action]:
        """Append the drafter's tokens.

        A replacement drawn by the drafter came from this side's distribution, so this side's documents have shares.
        """
        actions: list[Action] = [commit_of(self.position, token) for token in tokens[:1] if self._left_to_drafter]
        for token in tokens:
            self._append(token)
        return actions

    @property
    def _left_to_drafter(self) -> bool:
        """Whether the drafter draws a rejected token's replacement."""
        verdict = self._verdict
        if verdict is None or verdict.token or self._whole:
            return False
        return verdict.position + verdict.accepted == self.position

    def _batch(self) -> list[Pending]:
        """The next proposals without a gap, for one pass."""
        batch: list[Pending] = []
        tokens = 0
        for pending in self._pending:
            tokens += len(pending.proposed)
            if batch and (tokens > MOST_JUDGED or not self._judged_with(pending, batch[-1])):
                break
            batch.append(pending)
        return batch

    def _judged_with(self, pending: Pending, before: Pending) -> bool:
        if self.config.bonus or isinstance(pending.message, Defer) or isinstance(before.message, Defer):
            return False
        return _continues(pending.message, before.message.round, before.end)

    def _asked_by(self, work: Work) -> list[Pending]:
        """More proposals may have arrived since."""
        found: list[Pending] = []
        path: list[Any] = list(self._prefix.path)
        for pending in self._batch():
            found.append(pending)
            path += [each.token for each in pending.proposed]
            count = len(path) - self.position + self._bonus(pending, path)
            if count == work.count:
                return found
        return []

    def _bonus(self, last: Pending, path: Sequence[int]) -> int:
        """1 if a bonus follows `path`, else 0."""
        if isinstance(last.message, Defer):
            return 1
        return int(self.config.bonus and not self.config.ends(path[-1], len(path)))

    def _append(self, token: int) -> None:
        self._prefix.extend(token)
        self._prefix.commit()


def commit_of(position: int, token: int) -> Commit:
    """A decision by this side's distribution."""
    return Commit(position, token, False, None, None, {"cloud": True})


def _size(message: Propose | Defer) -> int:
    return len(message.payload) if isinstance(message, Propose) else 0


def _continues(message: Propose | Defer, before: int, end: int) -> bool:
    """Whether `message` directly follows round `before`, ending at `end`."""
    return (message.digest, message.tail, message.round, message.position) == ((), (), before + 1, end)


# --- part


class RoundsMachine(StateMachine, Protocol):
    """The drafter's or the verifier's state machine."""

    def work(self) -> Work | None: ...

    def drawn(self, work: Work, views: Sequence[View], seconds: float, now: float) -> list[Action]: ...


def rounds_part(driver: Driver, machine: RoundsMachine) -> ModelSeat[Work]:
    """The part that draws for `machine`."""

    def drawn(work: Work, drawn: Sequence[SideDraft], seconds: float, now: float) -> Sequence[object]:
        driver.record.drafted(work.position, drawn)
        return machine.drawn(work, [draft.view for draft in drawn], seconds, now)

    return ModelSeat(driver, machine.work, drawn)
