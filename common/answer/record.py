"""Attribution, acceptance and decode times of an answer, noted down while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from common.answer.values import Commit, Mixing
from proto.fields import Side

RECENT = 256  # times that a median is taken over


class AnswerRecord:
    """Shares of this side's documents and of the cloud as a whole, by position. Guarded by the answer's lock."""

    def __init__(self) -> None:
        self.shares: list[tuple[float, ...]] = []  # [positions][docs + 1], empty where this side made no draft
        self.cloud_shares: list[float | None] = []
        self.apart = True  # documents had rows of their own, or what each of them says is known since
        self.accepted: list[tuple[bool | None, bool | None]] = []  # of (device, cloud), None: no draft was here
        self.expected: list[tuple[float, float] | None] = []  # acceptance of (device, cloud), Eq. 5
        self._remote_times: deque[float] = deque(maxlen=RECENT)  # milliseconds per decode step
        self._mixtures: dict[int, Mixing] = {}

    def drafted(self, position: int, mixtures: Sequence[Mixing]) -> None:
        """Note drafts from `position` on, whose mixtures are kept until their positions are decided."""
        for place, mixture in enumerate(mixtures, position):
            self._mixtures[place] = mixture

    def remote_decode(self, microseconds: int) -> None:
        """Note the time that the other side reports for one of its decode steps."""
        self._remote_times.append(microseconds / 1e3)

    @property
    def remote_decode_ms(self) -> float:
        """Median of the latest decode steps on the other side, 0 before the first."""
        return median(self._remote_times) if self._remote_times else 0.0

    def forget_before(self, position: int) -> None:
        """Forget drafts of positions that are decided, which came too late to count."""
        if self._mixtures:
            for late in [each for each in self._mixtures if each < position]:
                del self._mixtures[late]

    def commit(self, commit: Commit, role: Side) -> None:
        """Note a decided position; `role` is this side. What it skips was decided elsewhere."""
        if commit.position != len(self.shares):
            self._cut(commit.position)
        mixture = self._mixtures.pop(commit.position, None)
        if commit.accepted.get(role) is False:
            self._mixtures.clear()  # what followed the rejected draft
        self.shares.append(() if mixture is None else tuple(map(float, mixture.contributions(commit.token))))
        self.cloud_shares.append(commit.cloud_share)
        self.accepted.append((commit.accepted.get("device"), commit.accepted.get("cloud")))
        self.expected.append(commit.expected)

    def take(self, shares: Sequence[tuple[float, ...]]) -> None:
        """Take what each document says of the answer's tokens, for documents that shared a row."""
        self.shares[: len(shares)] = shares
        self.apart = True

    def withdraw(self, position: int) -> None:
        """Forget what was decided from `position` on."""
        if position < len(self.shares):
            self._cut(position)

    def _cut(self, length: int) -> None:
        """Make all lists `length` long; nothing is known of what is added."""
        more = length - len(self.shares)
        if more > 0:
            self.shares += [()] * more
            self.cloud_shares += [None] * more
            self.accepted += [(None, None)] * more
            self.expected += [None] * more
        elif more < 0:
            del self.shares[length:], self.cloud_shares[length:], self.accepted[length:], self.expected[length:]
