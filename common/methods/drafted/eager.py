"""State machines of an answer whose verifier decodes between proposals.

That requires the same token on both sides for any proposal (coupled drafting). The answer is then the verifier's own,
and proposals only decide several tokens per pass. So it is as fast as without a drafter, or faster, and announces each
token at once. A late proposal helps with its undecided part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import islice
from typing import Final

from common.answer.values import Action, Send, View, Work
from common.methods.drafted.drafting import Drafting, Drafts, Judge, Lengths, RoundsConfig
from common.methods.drafted.verifying import MOST_JUDGED, Pending, Verifying, commit_of
from common.sampling.compiled import DrawPoint
from proto.codes import extend
from proto.errors import malformed, too_large
from proto.messages import MOST_PROPOSED, Decided, Defer, Propose, Sync, Verdict

MOST_AGAIN: Final = 16  # repetitions of all tokens, after lost connections


class EagerVerifying(Verifying):
    """Decides tokens by itself, or several at once by matching proposals.

    Waiting proposals are gapless, the first from within the decided tokens.
    """

    def __init__(self, config: RoundsConfig, judge: Judge, decodes_on: Callable[[], bool]) -> None:
        """`decodes_on`: may decide an unproposed token now."""
        super().__init__(config, judge)
        self._decodes_on = decodes_on
        self._again = 0  # repeated tokens

    def check(self, message: Propose | Defer) -> None:
        super().check(message)  # refuses `Defer`
        if len(message.digest) != 1 or message.tail:
            raise malformed("a proposal to an eager verifier must have the digest of its prefix, and no tail")

    def work(self) -> Work | None:
        path = self._prefix.path
        if path and self.config.ends(path[-1], len(path)):
            return None
        proposed = self._chain()
        if not proposed and self._read and not self._decodes_on():
            return None
        path = [*path, *(each.token for each in proposed)]
        count = len(proposed) + (not self.config.ends(path[-1], len(path)) if path else 1)
        return Work(self.epoch, tuple(path[: self.position + count - 1]), count=count)

    def synchronised(self, message: Sync) -> list[Action]:
        """Announce the tokens after those of `message`; adopt its tokens if they differ.

        Raises `ProtocolError`, also for endless requests, which cost less than answers.
        """
        known, own = len(message.tokens), self._prefix.committed()
        if tuple(own[:known]) != message.tokens:
            return super().synchronised(message)
        if self._again + len(own) - known > MOST_AGAIN * self.config.max_tokens:
            raise too_large(f"the tokens of an answer are sent {MOST_AGAIN} times at most")
        self._again += len(own) - known
        reply: list[Action] = []
        if message.wants_reply:
            reply.append(Send(Sync(self.config.session, 0, message.tokens, "cloud", False)))
        return reply + self._told(known, 0, 0.0)

    def drawn(self, work: Work, views: Sequence[View], seconds: float, now: float) -> list[Action]:
        if work.epoch != self.epoch or work.position != self.position:
            return []
        self._read = True
        start, proposed = self.position, self._chain()[: work.count]
        judgement = self._judge.judge(DrawPoint(start, self._prefix.path_digest), proposed, views)
        compared = min(judgement.accepted + 1, len(proposed))
        waiting = reversed(self._pending)
        last = next((each for each in waiting if each.message.position < start + compared), None)
        self.judged += len(proposed)
        self.accepted += judgement.accepted
        tokens = [each.token for each in proposed[: judgement.accepted]]
        if judgement.token is not None:
            tokens.append(judgement.token)
        for token in tokens:
            self._append(token)
        if judgement.accepted < len(proposed):
            self.epoch += 1
        self._advance()
        told = self._told(start, last.message.round if last else 0, max(0.0, now - last.arrived) if last else seconds)
        return [*(commit_of(position, token) for position, token in enumerate(tokens, start)), *told]

    # --- inside

    def _told(self, start: int, judged: int, held: float) -> list[Action]:
        """Announce the tokens from `start` on.

        `judged` is the last judged round, `held` the seconds since its arrival, or of the pass.
        """
        told: list[Action] = []
        for first in range(start, self.position, MOST_PROPOSED):
            tokens, digest = tuple(self._prefix.path[first : first + MOST_PROPOSED]), self._prefix.digest(first)
            told.append(Send(Decided(self.config.session, judged, first, digest, tokens, int(1e6 * held))))
        return told

    def _chain(self) -> list[View]:
        """The proposed tokens for one pass."""
        if not self._pending:
            return []
        known = self.position - self._pending[0].message.position
        chain = (each for pending in self._pending for each in pending.proposed)
        return list(islice(chain, known, known + MOST_JUDGED))

    def _follow(self) -> list[Action]:
        """Keep the latest proposal if it extends the previous one or the decided tokens."""
        pending = self._pending[-1]
        if len(self._pending) > 1:
            before = self._pending[-2]
            behind = reduce(extend, (each.token for each in before.proposed), before.message.digest[0])
            fits = pending.message.position == before.end and pending.message.digest == (behind,)
        else:
            fits = self._agrees(pending)
        if not fits or pending.end <= self.position:
            self._drop(self._pending.pop(), fits)
        return []

    def _advance(self) -> None:
        """Drop decided and mismatching proposals."""
        while self._pending:
            first = self._pending[0]
            fits = self._agrees(first)
            if fits and first.end > self.position:
                return
            self._drop(self._pending.popleft(), fits)

    def _drop(self, pending: Pending, decided: bool) -> None:
        if decided:
            self._round = max(self._round, pending.message.round)
        else:  # repeatable after lost ones
            self.stale += 1

    def _agrees(self, pending: Pending) -> bool:
        """Whether a proposal starts within the decided tokens and matches them."""
        start, prefix = pending.message.position, self._prefix
        if start > self.position or pending.message.digest != (prefix.digest(start),):
            return False
        decided = prefix.path[start : min(self.position, pending.end)]
        return decided == [each.token for each in pending.proposed[: len(decided)]]


def make_verifying(config: RoundsConfig, judge: Judge, decodes_on: Callable[[], bool]) -> Verifying:
    return EagerVerifying(config, judge, decodes_on) if config.eager else Verifying(config, judge)


def make_drafting(config: RoundsConfig, drafts: Drafts, lengths: Lengths) -> Drafting:
    return (EagerDrafting if config.eager else Drafting)(config, drafts, lengths)


class EagerDrafting(Drafting):
    """Drafts for an eager verifier; keeps drafts that match its tokens."""

    def decided_by_verifier(self, message: Decided) -> list[Action]:
        """Process decided tokens; fence off those that do not follow the prefix.

        Raises `ProtocolError` for impossible ones, without a change.
        """
        tokens, position = self._news(message), self.position
        if not tokens:
            self.counters.stale += 1
            return []
        drafted = self._prefix.path[position : position + len(tokens)]
        pairs = enumerate(zip(drafted, tokens, strict=False))
        same = next((at for at, (draft, token) in pairs if draft != token), len(drafted))
        rejected = same < len(drafted)
        self._count(message, same, rejected, len(tokens))
        actions: list[Action] = []
        for _ in range(same):
            actions += self._commit({"device": True})
        if same < len(tokens):
            confidences = [view.confidence for view in self._views[:1]]
            self._roll_back()
            self._confidences.extend(confidences)
            for token in tokens[same:]:
                self._prefix.extend(token)
                actions += self._commit({"device": False} if rejected else {})
                rejected = False
        else:
            while self._outstanding and self._outstanding[0][1] <= self.position:
                self._outstanding.popleft()
        self._known = self.position
        if not self._outstanding and not self._views:
            self._make_plan()
        return actions

    def reminded(self) -> list[Action]:
        actions = super().rejoined()
        self._draft_for_a_busy_one()
        return actions

    def rejoined(self) -> list[Action]:
        given_up = self.alone
        actions = super().rejoined()
        if given_up:
            self._draft_for_a_busy_one()
        return actions

    def judged(self, verdict: Verdict) -> list[Action]:
        """Raises `ProtocolError`: an eager verifier sends no verdicts."""
        raise malformed("an eager verifier must send no verdicts")

    # --- inside

    def _draft_for_a_busy_one(self) -> None:
        """Draft some tokens, though it does not pay.

        A verifier that fell silent without proposals waits for them.
        """
        if self.position > 0 and self.finished is None and self.state == "resting" and not self._outstanding:
            self._shortest = 1
            self._make_plan()

    def _behind_known(self, start: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (self._prefix.digest(start),), ()

    def _count(self, message: Decided, same: int, rejected: bool, told: int) -> None:
        """Note the proposals that `told` more tokens settle, `same` of them as drafted."""
        end, counters = self.position + same, self.counters
        judged = [each for each in self._outstanding if each[0].position <= end and (rejected or each[1] <= end)]
        counters.bonus += told - same - rejected
        if not judged:
            if message.round == 0:
                self._lengths.undrafted(message, told)
            return
        held = [min(end, stop) - proposal.position for proposal, stop in judged]
        last = judged[-1][0].round
        self._lengths.judged(message, held, last, same < told)
        counters.rounds += 1
        counters.proposed += sum(stop - proposal.position for proposal, stop in judged)
        counters.accepted += sum(held)
        counters.rejected += judged[-1][1] > end
