"""A drafter and a verifier with a slow link between them, under a virtual clock, so that policies choose lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from common.draft_policy.times import DraftPlan, Extension
from common.methods.drafted.lengths import PolicyLengths, RoundHistory, make_policy
from common.methods.drafted.method import DraftRequest, Scheme
from proto.messages import Decided, Propose, Verdict
from tests.common.methods.drafted.pump import Model, Pair

DRAFT: Final = 0.005  # seconds of a draft step
VERIFY: Final = 0.032  # of a pass of the verifier, where nothing else is said


@dataclass
class SlowLink:
    """Times of messages, of the models at its ends, and the time."""

    one_way: float  # seconds
    rate: float  # bytes per second, upward
    verify: float = VERIFY  # seconds
    draft: float = DRAFT  # seconds
    now: float = 0.0  # seconds

    def history(self) -> RoundHistory:
        """Estimates before the first round."""
        return RoundHistory.expecting(DRAFT, self.verify, 2 * self.one_way)


class PlannedLengths:
    """Implements `Lengths` by the daemons' own, and notes what was proposed."""

    def __init__(self, scheme: Scheme, request: DraftRequest, link: SlowLink, history: RoundHistory) -> None:
        policy = make_policy(request, scheme.token_bytes, scheme.config, history)
        self._lengths = PolicyLengths(policy, history, lambda: 2 * link.one_way, lambda: link.now)
        self.proposals: list[int] = []  # tokens of each; 0 for a token that was left to the verifier

    @property
    def most_ahead(self) -> int:
        return self._lengths.most_ahead

    def plan(self, confidences: Sequence[float]) -> DraftPlan:
        return self._lengths.plan(confidences)

    def extension(self, confidence: float, drafted: int) -> Extension:
        return self._lengths.extension(confidence, drafted)

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        self.proposals.append(len(confidences))
        self._lengths.proposed(message, confidences, steps)

    def undrafted(self, message: Decided, tokens: int) -> None:
        self.proposals += [0] * tokens
        self._lengths.undrafted(message, tokens)

    def judged(self, message: Verdict | Decided, accepted: Sequence[int], last: int, token: bool) -> None:
        self._lengths.judged(message, accepted, last, token)


@dataclass
class SlowPair(Pair):
    """Both sides of one answer, each thing that happens taking its time."""

    link: SlowLink = field(default_factory=lambda: SlowLink(0.0, 1e9))

    @property
    def now(self) -> float:
        return self.link.now

    @property
    def draft_seconds(self) -> float:
        return self.link.draft

    @property
    def verify_seconds(self) -> float:
        return self.link.verify

    def draft(self) -> bool:
        self.link.now += self.link.draft if self.device.work() is not None else 0.0
        return super().draft()

    def verify(self) -> bool:
        self.link.now += self.link.verify if self.cloud.work() is not None else 0.0
        return super().verify()

    def deliver_up(self) -> bool:
        if self.up:
            self.link.now += self.link.one_way + len(self.up[0]) / self.link.rate
        return super().deliver_up()

    def deliver_down(self) -> bool:
        self.link.now += self.link.one_way if self.down else 0.0
        return super().deliver_down()


def answer(
    scheme: Scheme,
    request: DraftRequest,
    drafter: Model,
    verifier: Model,
    link: SlowLink,
    history: RoundHistory,
    until: int | None = None,
) -> tuple[list[int], list[int]]:
    """The tokens of an answer, and the lengths of its proposals. What its rounds showed is noted in `history`.

    No more happens when there are `until` tokens.
    """
    lengths = PlannedLengths(scheme, request, link, history)
    pair = SlowPair(scheme, drafter, verifier, lengths, link=link)
    return pair.run(until), lengths.proposals
