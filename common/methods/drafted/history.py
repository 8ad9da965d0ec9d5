"""Times of rounds of drafting and verifying with one cloud, as they were seen."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from common.draft_policy.acceptance import ConfidenceAcceptance, PositionAcceptance
from common.draft_policy.estimators import RoundEstimates
from common.draft_policy.goodput import Trials
from common.draft_policy.sizes import TokenSizes
from common.draft_policy.values import RoundTimes
from common.estimates.peer_estimates import PeerEstimates

PROBE: Final = 16  # bytes of a probe's frame
_PROPOSAL: Final = 26  # of a proposal's, without tokens
_VERDICT: Final = 22


@dataclass(slots=True)
class RoundHistory:
    """Times, acceptance and sizes of one method's rounds, for all answers of a device. Use it under `lock`.

    Sizes are what a message has beyond a probe: the round trip is a probe's, and has in it what that takes, with all
    that a link makes of any message (encryption, TCP, IP).
    """

    estimates: RoundEstimates
    acceptance: PositionAcceptance = field(default_factory=PositionAcceptance)
    confidence: ConfidenceAcceptance = field(default_factory=ConfidenceAcceptance)
    trials: Trials = field(default_factory=Trials)
    undrafted: int = 0  # tokens since the last proposal
    lock: threading.Lock = field(default_factory=threading.Lock)
    _sizes: dict[tuple[tuple[int | None, float], ...], TokenSizes] = field(default_factory=dict, init=False)

    @classmethod
    def expecting(cls, draft: float, verify: float, rtt: float) -> Self:
        """Before the first round: seconds of a draft step, of a verifying pass, and of a round trip."""
        up, down = float(_PROPOSAL - PROBE), float(_VERDICT - PROBE)
        times = RoundTimes(draft=draft, verify=verify, rtt=rtt, up_overhead=up, down_overhead=down)
        return cls(RoundEstimates(times))

    @classmethod
    def of(cls, peer: PeerEstimates, method: str, draft: float) -> RoundHistory:
        """That of `method` with `peer`; a draft step is believed to take `draft` seconds before the first round."""
        now = peer.estimates
        return peer.histories.of(cls, method, lambda: cls.expecting(draft, now.cloud_decode, now.rtt))

    def sizes_of(self, believed: Mapping[int | None, float]) -> TokenSizes:
        """Sizes seen of proposals that are believed to have these: options change what a token takes."""
        return self._sizes.setdefault(tuple(believed.items()), TokenSizes(believed))
