"""Drafting ahead with coupled draws against published methods round by round: predicted, and simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from common.draft_policy.goodput import Goodput
from common.draft_policy.lattice_bits import fixed_index_bits, short_index_bits
from common.draft_policy.rules import Fixed
from common.draft_policy.sizes import TokenSizes
from common.draft_policy.times import ahead_seconds, coupled_acceptance, keeps_up, synchronous_seconds
from common.draft_policy.values import RoundTimes
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.simulation.models import LOW, Constant, ConstantRate, Steady
from scripts.simulation.rounds import RoundScenario
from tests.scripts.simulation.whole_answers import simulate_ahead, simulate_rounds

ALPHAS: Final = (0.7, 0.9, 0.97)
MOST_LENGTH: Final = 32
SEED: Final = 3_000_000
TOKEN_BYTES: Final = 2.0  # a token's identifier
PROBABILITY_BYTES: Final = 8.0  # q(x) as float64
SUPPORT: Final = 3  # tokens of a sure drafter's lattice distribution
NOTE: Final = (
    "Draft step 5 ms, pass 32 ms, round trip 50 ms. Coupled draws accept midway between their bounds. Times over those "
    "of coupled draws drafted ahead, in chunks as `Goodput` chooses them; rivals have their best length."
)


@dataclass(frozen=True, slots=True)
class Case:
    """A link and the published method that it is compared on; `bits` of a token proposed there."""

    link: str
    rival: str
    rate: float
    overhead: float
    bits: int


CASES: Final = (
    Case("100 Mb/s", "dssd", 12.5e6, 0.0, round(8 * (TOKEN_BYTES + PROBABILITY_BYTES))),
    Case("40 kb/s, 150 bytes a round", "qsv, fixed index", LOW, 150.0, fixed_index_bits(64, 50_272) + 2),
    Case("40 kb/s, 150 bytes a round", "qsv, short index", LOW, 150.0, short_index_bits(64, 50_272, SUPPORT) + 2),
)


def run(results: Results, tokens: int) -> None:
    """Compare; `tokens` of each simulated answer."""
    rows, samples = [], []
    for case in CASES:
        times = RoundTimes(draft=0.005, verify=0.032, rtt=0.05, up_rate=case.rate, up_overhead=case.overhead)
        for alpha in ALPHAS:
            coupled = sum(coupled_acceptance(1.0 - alpha)) / 2
            predicted = _predicted(times, case, alpha, coupled)
            simulated = _simulated(times, case, alpha, coupled, int(predicted[2]), tokens)
            rows.append(
                [
                    case.link,
                    case.rival,
                    f"{alpha:g}",
                    f"{1e3 * predicted[0]:.1f} / {1e3 * simulated[0]:.1f}",
                    f"{1e3 * predicted[1]:.1f} / {1e3 * simulated[1]:.1f}",
                    f"{predicted[1] / predicted[0]:.2f} / {simulated[1] / simulated[0]:.2f}",
                ]
            )
            samples.append([case.link, case.rival, alpha, predicted, simulated])
    results.samples("drafting ahead", samples)
    heads = ["uplink", "rival", "its α", "ahead ms/token", "rival ms/token", "gain, times"]
    results.table("Drafting ahead: predicted / simulated", Table(heads, rows), NOTE)


def _predicted(times: RoundTimes, case: Case, alpha: float, coupled: float) -> tuple[float, float, float]:
    """Seconds per token ahead and of the rival, and the rival's length."""
    lengths = range(1, MOST_LENGTH + 1)
    ahead = min(
        ahead_seconds(times, coupled, length, TOKEN_BYTES) for length in lengths if keeps_up(times, length, TOKEN_BYTES)
    )
    rival, length = min((synchronous_seconds(times, alpha, length, case.bits / 8), length) for length in lengths)
    return ahead, rival, float(length)


def _simulated(
    times: RoundTimes, case: Case, alpha: float, coupled: float, length: int, tokens: int
) -> tuple[float, float]:
    """Seconds per token ahead and of the rival at this length."""
    uplink = ConstantRate(case.rate)
    ids = Constant(round(8 * TOKEN_BYTES))
    ahead = RoundScenario(times, Steady(coupled), ids, uplink, tokens)
    rival = RoundScenario(times, Steady(alpha), Constant(case.bits), uplink, tokens)
    chunks = Goodput(TokenSizes({None: TOKEN_BYTES}), ahead=True)
    return (
        1 / simulate_ahead(ahead, chunks, SEED).throughput,
        1 / simulate_rounds(rival, Fixed(length), SEED).throughput,
    )
