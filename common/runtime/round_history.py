"""What rounds of drafting and verifying with one cloud were seen to take."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from common.draft_policy.acceptance import PositionAcceptance
from common.draft_policy.estimators import RoundEstimates
from common.draft_policy.sizes import TokenSizes
from common.draft_policy.values import RoundTimes

CARRIED: Final = 66  # bytes that a message costs a link beside its frame: encryption, TCP and IP
_PROPOSAL: Final = 26  # bytes of a proposal's frame without tokens


@dataclass(slots=True)
class RoundHistory:
    """Times, acceptance and sizes of one method's rounds, for all answers of a device. Use it under `lock`."""

    estimates: RoundEstimates
    acceptance: PositionAcceptance = field(default_factory=PositionAcceptance)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _sizes: dict[tuple[tuple[int | None, float], ...], TokenSizes] = field(default_factory=dict, init=False)

    @classmethod
    def expecting(cls, draft: float, verify: float, rtt: float) -> Self:
        """Before the first round: seconds of a draft step, of a verifying pass, and of a round trip."""
        each = float(CARRIED + _PROPOSAL)
        times = RoundTimes(draft=draft, verify=verify, rtt=rtt, up_overhead=each, down_overhead=each)
        return cls(RoundEstimates(times))

    def sizes_of(self, believed: Mapping[int | None, float]) -> TokenSizes:
        """What was seen of proposals that are believed to have these sizes: options change what a token takes."""
        return self._sizes.setdefault(tuple(believed.items()), TokenSizes(believed))
