"""Attribution, acceptance and decode times of an answer, noted down while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from common.engine.sampling import Mixing
from common.session.values import Commit
from proto.fields import Side

RECENT = 256  # decode times that a median is taken over


class AnswerRecord:
    """Shares of this side's documents and of the cloud as a whole, by position. Guarded by the answer's lock."""

    def __init__(self) -> None:
        self.shares: list[tuple[float, ...]] = []  # [positions][docs], empty where this side made no draft
        self.cloud_shares: list[float | None] = []
        self.accepted: list[tuple[bool | None, bool | None]] = []  # of (device, cloud), None: no draft was here
        self.expected: list[tuple[float, float] | None] = []  # acceptance of (device, cloud), Eq. 5
        self._local_times: deque[float] = deque(maxlen=RECENT)  # milliseconds per decode step
        self._remote_times: deque[float] = deque(maxlen=RECENT)
        self._mixtures: dict[int, Mixing] = {}

    def drafted(self, position: int, mixture: Mixing, seconds: float) -> None:
        """Note a draft at `position`, whose mixture is kept until the position is decided."""
        self._mixtures[position] = mixture
        self._local_times.append(1e3 * seconds)

    def remote_decode(self, microseconds: int) -> None:
        """Note the time that the other side reports for one of its decode steps."""
        self._remote_times.append(microseconds / 1e3)

    @property
    def local_decode_ms(self) -> float:
        """Median of the latest decode steps on this side, 0 before the first."""
        return median(self._local_times) if self._local_times else 0.0

    @property
    def remote_decode_ms(self) -> float:
        """As `local_decode_ms`, of the other side."""
        return median(self._remote_times) if self._remote_times else 0.0

    def forget(self, position: int) -> None:
        """Forget the draft at `position`, which came too late to count."""
        self._mixtures.pop(position, None)

    def commit(self, commit: Commit, role: Side) -> None:
        """Note a decided position; `role` is this side."""
        mixture = self._mixtures.pop(commit.position, None)
        if commit.accepted.get(role) is False:
            self._mixtures.clear()  # what followed the rejected draft
        shares: Iterable[float] = () if mixture is None else mixture.contributions(commit.token)
        self.shares.append(tuple(float(share) for share in shares))
        self.cloud_shares.append(commit.cloud_share)
        self.accepted.append((commit.accepted.get("device"), commit.accepted.get("cloud")))
        self.expected.append(commit.expected)

    def withdraw(self, position: int) -> None:
        del self.shares[position:]
        del self.cloud_shares[position:]
        del self.accepted[position:]
        del self.expected[position:]
