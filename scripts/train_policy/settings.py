"""Networks and answers that policies of drafting are trained on and compared on.

Times and rates are those of quantize-sample-verify's section V-A: 5 ms a draft step, 32 ms a verifying pass, an uplink
of 40 and 400 kb/s, downlink and round trip free. Its transition probabilities are not told; three are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from common.draft_policy.lattice_bits import fixed_index_bits
from common.draft_policy.values import RESOLUTIONS, RoundTimes
from scripts.simulated_rounds.confidences import ConfidenceModel, Steady, Varying
from scripts.simulated_rounds.payloads import Lattice
from scripts.simulated_rounds.scenario import RoundScenario
from scripts.simulated_rounds.uplinks import HIGH, LOW, ConstantRate, TwoStateRate, UplinkModel

VOCABULARY: Final = 50_272
TIMES: Final = RoundTimes(draft=0.005, verify=0.032)
INDEX: Final = "fixed"
PAYLOAD: Final = Lattice(VOCABULARY, INDEX)
NETWORKS: Final[Mapping[str, UplinkModel]] = {
    "40 kb/s": ConstantRate(LOW),
    "400 kb/s": ConstantRate(HIGH),
    "Markov, 5 s": TwoStateRate(0.02, 0.02),
    "Markov, 1 s": TwoStateRate(0.1, 0.1),
    "Markov, 0.2 s": TwoStateRate(0.5, 0.5),
}  # seconds that a state lasts on average
ALPHAS: Final = (0.7, 0.9)
ANSWERS: Final[Mapping[str, type[Steady] | type[Varying]]] = {"steady": Steady, "varying": Varying}
# What a drafter knows before its first proposal: the index, and the token among about eight.
TOKEN_BYTES: Final[Mapping[int | None, float]] = {
    resolution: (fixed_index_bits(resolution, VOCABULARY) + 3) / 8 for resolution in RESOLUTIONS
}


def scenario(positions: ConfidenceModel, uplink: UplinkModel, tokens: int) -> RoundScenario:
    """An answer of these models."""
    return RoundScenario(TIMES, positions, PAYLOAD, uplink, tokens)
