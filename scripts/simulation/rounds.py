"""Rounds of drafting and verifying under a virtual clock, one after the other, and models of what they depend on.

The policies are those of the daemons. An answer is a list of positions, each with its own outcome, so that policies can
be compared on the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.draft_policy.times import (
    DraftPlan,
    Extension,
    RoundEstimates,
    RoundOutcome,
    RoundTimes,
    bits_to_tell,
    expected_tokens_of,
    fixed_index_bits,
)
from common.sampling.rejection import quantise

KILOBIT: Final = 125.0  # bytes
LOW, HIGH = 40 * KILOBIT, 400 * KILOBIT  # bytes per second: the uplinks of quantize-sample-verify's section V-A
SLOT: Final = 0.1  # seconds between chances to change

_BISECTIONS = 60
_NODES = 64  # of the integral over a normal law
_CONFIDENCES = 50  # confidences that tables are made for
_RANKS = 4096  # tokens that the model's distributions lie on: a lattice of 256 has no unit for later ones
_STEEPEST = 60.0


@dataclass(frozen=True, slots=True)
class Positions:
    """Each position's confidence `[n]`, its acceptance `[n]` before any quantising, and a uniform number `[n]`.

    The token proposed at a position is accepted if its uniform number is less than the acceptance there. All that
    happens is a function of the position, so that every policy meets the same answer. `rounded` has the acceptances
    `[n]` at resolutions where they were measured.
    """

    confidences: NDArray[np.float64]
    acceptances: NDArray[np.float64]
    uniforms: NDArray[np.float64]
    rounded: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steady:
    """Every position alike, independent of the others: accepted with probability `alpha`, which is its confidence."""

    alpha: float

    def draw(self, tokens: int, seed: int) -> Positions:
        everywhere = np.full(tokens, self.alpha)
        return Positions(everywhere, everywhere, np.random.default_rng((seed, 1)).random(tokens))


@dataclass(frozen=True, slots=True)
class Varying:
    """Stretches that both models find easy, and others; the drafter's confidence tells them apart in part.

    The log-odds of a position's acceptance are m + `spread` · z, where z is normal with correlation `persistence`
    from one position to the next and m makes the mean acceptance `alpha`. The log-odds of the confidence are the same
    with independent normal noise of standard deviation `noise`. In short: where the drafter is 95 % sure, it is right
    about that often, and it is wrong in bursts.
    """

    alpha: float
    spread: float = 1.5
    persistence: float = 0.6
    noise: float = 0.7

    def draw(self, tokens: int, seed: int) -> Positions:
        random = np.random.default_rng((seed, 2))
        uniforms = np.random.default_rng((seed, 1)).random(tokens)
        news, heard = random.standard_normal(tokens), random.standard_normal(tokens)
        ease = np.empty(tokens)
        for place, one in enumerate(news):
            kept = self.persistence if place else 0.0
            ease[place] = kept * ease[place - 1] + np.sqrt(1.0 - kept**2) * one if place else one
        odds = _middle(self.alpha, self.spread) + self.spread * ease
        return Positions(_logistic(odds + self.noise * heard), _logistic(odds), uniforms)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Positions of two models' answers, one answer behind the other, [n]: an answer begins anywhere, and goes round.

    `acceptances` are those of whole distributions, `rounded` those at each resolution.
    """

    confidences: NDArray[np.float64]
    acceptances: NDArray[np.float64]
    rounded: Mapping[int, NDArray[np.float64]]

    @property
    def alpha(self) -> float:
        """The mean acceptance of whole distributions."""
        return float(self.acceptances.mean())

    def draw(self, tokens: int, seed: int) -> Positions:
        first = int(np.random.default_rng((seed, 2)).integers(len(self.confidences)))
        places = (first + np.arange(tokens)) % len(self.confidences)
        return Positions(
            self.confidences[places],
            self.acceptances[places],
            np.random.default_rng((seed, 1)).random(tokens),
            {resolution: shares[places] for resolution, shares in self.rounded.items()},
        )


@lru_cache(maxsize=256)
def _middle(alpha: float, spread: float) -> float:
    """m for which the mean acceptance is `alpha`, by bisection on Gauss and Hermite's quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    shares = weights / weights.sum()
    return _risen(-50.0, 50.0, lambda middle: float(shares @ _logistic(middle + spread * nodes)) < alpha)


def _risen(low: float, high: float, below: Callable[[float], bool]) -> float:
    """The least number, between these two, that is not `below`."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high


def _logistic(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-odds))
    return shares


@dataclass(frozen=True, slots=True)
class Constant:
    """So many bits for every token, and nothing lost: token identifiers, or a lattice of one resolution."""

    token_bits: int

    def bits(self, resolution: int | None, confidence: float) -> int:
        return self.token_bits

    def kept(self, resolution: int | None, confidence: float) -> float:
        return 1.0


@dataclass(frozen=True, slots=True)
class Lattice:
    """Lattice distributions of power laws: the token of rank r has the probability c / r^s.

    c is the confidence and s what makes the sum 1. Their number of tokens K and their total variation distance from the
    lattice are computed, by Reznik's rounding; the acceptance is taken to fall by that distance, relative to itself.
    The token costs ceil(log2 K) bits more.
    """

    vocabulary: int

    def bits(self, resolution: int | None, confidence: float) -> int:
        resolution = _asked(resolution)
        support, _ = _rounded(resolution, _nearest(confidence))
        return fixed_index_bits(resolution, self.vocabulary) + bits_to_tell(support)

    def kept(self, resolution: int | None, confidence: float) -> float:
        _, distance = _rounded(_asked(resolution), _nearest(confidence))
        return 1.0 - distance


def _asked(resolution: int | None) -> int:
    if resolution is None:
        raise ValueError("lattice distributions need a resolution: plan one")
    return resolution


def _nearest(confidence: float) -> int:
    return min(_CONFIDENCES - 1, max(1, round(confidence * _CONFIDENCES)))


@lru_cache(maxsize=4096)
def _rounded(resolution: int, place: int) -> tuple[int, float]:
    """Tokens of the lattice distribution nearest to the power law of this confidence, and its distance from it."""
    law = _power_law(place / _CONFIDENCES)
    units = quantise(law, resolution)
    return int((units > 0).sum()), float(np.abs(units / resolution - law).sum() / 2)


def _power_law(confidence: float) -> NDArray[np.float64]:
    ranks = np.log(np.arange(1, _RANKS + 1))
    weights = np.exp(
        -_risen(0.0, _STEEPEST, lambda middle: bool(1.0 / np.exp(-middle * ranks).sum() < confidence)) * ranks
    )
    law: NDArray[np.float64] = weights / weights.sum()
    return law


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Bytes per second that never change; inf: unlimited."""

    rate: float

    def draw(self, seed: int) -> ConstantRate:
        return self

    def finish(self, start: float, size: float) -> float:
        return start + size / self.rate


@dataclass(frozen=True, slots=True)
class TwoStateRate:
    """A Markov chain of two rates: at the end of every slot it may change, and a message may see several slots.

    The paper leaves both probabilities open, and changes its chain once per round. Time is what real channels go by;
    with .1 of each, a state lasts ten slots on average, about twenty rounds.
    """

    rise: float = 0.1  # probability of low to high, per slot
    fall: float = 0.1  # of high to low
    low: float = LOW  # bytes per second
    high: float = HIGH
    slot: float = SLOT  # seconds

    def draw(self, seed: int) -> TwoStateUplink:
        return TwoStateUplink(self, np.random.default_rng((seed, 3)))


@dataclass(slots=True)
class TwoStateUplink:
    """One uplink of the chain."""

    model: TwoStateRate
    random: np.random.Generator
    states: list[bool] = field(default_factory=list)  # whether slot i is one of the high rate

    def finish(self, start: float, size: float) -> float:
        now, left = start, float(size)
        index = int(now / self.model.slot)
        while True:
            rate = self.model.high if self._is_high(index) else self.model.low
            end = (index + 1) * self.model.slot
            if left <= rate * (end - now):
                return now + left / rate
            left -= rate * max(0.0, end - now)
            now, index = end, index + 1

    def _is_high(self, index: int) -> bool:
        model = self.model
        while len(self.states) <= index:
            if not self.states:
                self.states.append(bool(self.random.random() < model.rise / (model.rise + model.fall)))
                continue
            before = self.states[-1]
            self.states.append(before ^ bool(self.random.random() < (model.fall if before else model.rise)))
        return self.states[index]


# Each draws an answer of so many positions, or an uplink from second 0 on, the same for the same seed.
ConfidenceModel = Steady | Varying | Recorded
UplinkModel = ConstantRate | TwoStateRate
# Each tells the second at which bytes have left that begin to at a second; those never decrease.
Uplink = ConstantRate | TwoStateUplink
# Each tells the bits of a proposed token with its distribution, and the share of the acceptance that rounding leaves.
Payload = Constant | Lattice


REMEMBERED = 16  # confidences of the prefix that a policy is told

Extends = Callable[[float, int], Extension]  # `DraftPolicy.extension`


@dataclass(frozen=True, slots=True)
class RoundScenario:
    """Everything that the time of an answer depends on.

    `times` are the true ones but for the uplink's rate, which `uplink` has. Policies are told estimates that begin with
    them and with an unlimited uplink.
    """

    times: RoundTimes
    positions: ConfidenceModel
    payload: Payload
    uplink: UplinkModel
    tokens: int = 500

    def estimates(self) -> RoundEstimates:
        """The drafter's knowledge before its first round: everything but the uplink's rate."""
        return RoundEstimates(self.times.at_rate(inf))


@dataclass(slots=True)
class Proposal:
    """One proposal, and how it will be judged."""

    place: int  # of its first token
    plan: DraftPlan
    confidences: tuple[float, ...]
    steps: int  # of the drafter: one more than tokens where the last one was not proposed
    accepted: int
    size: int  # bytes

    @property
    def length(self) -> int:
        return len(self.confidences)

    @property
    def rejected(self) -> bool:
        return self.accepted < self.length


def acceptance(scenario: RoundScenario, answer: Positions, place: int, plan: DraftPlan) -> float:
    """Probability that the token proposed at a position is accepted: measured at this resolution, or as modelled."""
    measured = None if plan.resolution is None else answer.rounded.get(plan.resolution)
    if measured is not None:
        return float(measured[place])
    kept = scenario.payload.kept(plan.resolution, float(answer.confidences[place]))
    return kept * float(answer.acceptances[place])


def propose(scenario: RoundScenario, answer: Positions, place: int, plan: DraftPlan, extension: Extends) -> Proposal:
    """The proposal of `plan` from position `place` on; nothing is proposed behind the answer's last position."""
    confidences: list[float] = []
    bits, steps, accepted, whole = 0, 0, 0, True
    for drafted in range(min(plan.length, scenario.tokens - place)):
        confidence = float(answer.confidences[place + drafted])
        extended, steps = extension(confidence, drafted), steps + 1
        if drafted and extended == "none":
            break
        confidences.append(confidence)
        bits += scenario.payload.bits(plan.resolution, confidence)
        whole = whole and bool(answer.uniforms[place + drafted] < acceptance(scenario, answer, place + drafted, plan))
        accepted += whole
        if extended == "last":
            break
    return Proposal(place, plan, tuple(confidences), steps, accepted, ceil(bits / 8 + scenario.times.up_overhead))


def verdict_size(scenario: RoundScenario, proposal: Proposal) -> int:
    """Bytes of a verdict."""
    times = scenario.times
    return ceil(times.down_overhead + proposal.rejected * times.down_rejected)


class SynchronousRounds:
    """One answer, a round at a time: for simulations, and for policies that learn from it."""

    def __init__(self, scenario: RoundScenario, seed: int) -> None:
        self._scenario = scenario
        self._answer = scenario.positions.draw(scenario.tokens, seed)
        self._uplink: Uplink = scenario.uplink.draw(seed)
        self._seen: list[float] = []
        self.now = 0.0
        self.place = 0  # positions that are decided

    @property
    def finished(self) -> bool:
        return self.place >= self._scenario.tokens

    @property
    def confidences(self) -> list[float]:
        """Of the latest decided positions that the drafter has computed: of a bonus it has not."""
        return self._seen[-REMEMBERED:]

    def expected_tokens(self, plan: DraftPlan) -> float:
        """Tokens that a proposal of this plan decides on average: QSV Eqs. 14 and 15, from the true acceptances."""
        places = range(self.place, min(self.place + plan.length, self._scenario.tokens))
        return expected_tokens_of([acceptance(self._scenario, self._answer, place, plan) for place in places])

    def step(self, plan: DraftPlan, extension: Extends) -> RoundOutcome:
        """Draft, send, verify, and have the verdict back. Raises `ValueError` once the answer has ended."""
        scenario, times = self._scenario, self._scenario.times
        if self.finished:
            raise ValueError(f"the answer has ended at its {scenario.tokens} tokens")
        proposal = propose(scenario, self._answer, self.place, plan, extension)
        length, accepted = proposal.length, proposal.accepted
        sent = self.now + proposal.steps * times.draft
        arrived = self._uplink.finish(sent, proposal.size) + times.rtt / 2
        verify, down = times.verify + length * times.verify_token, verdict_size(scenario, proposal)
        heard = arrived + verify + times.rtt / 2 + down / times.down_rate
        tokens = min(accepted + 1, scenario.tokens - self.place)
        self._seen += proposal.confidences[: accepted + 1]
        outcome = RoundOutcome(
            length=length,
            accepted=accepted,
            tokens=tokens,
            seconds=heard - self.now,
            verdict_seconds=heard - sent,
            verify_seconds=verify,
            bytes_up=proposal.size,
            bytes_down=down,
            resolution=plan.resolution,
            confidences=proposal.confidences,
        )
        self.now, self.place = heard, self.place + tokens
        return outcome
