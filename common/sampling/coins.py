"""The sampler of privacy `secret`: the device draws every token by coins that nobody else has.

The cloud is asked as at temperature 0: its list has its most probable tokens, and its drafts are guesses that no token
depends on. So the cloud sees no noise that it could turn tokens into inequalities with. The device draws from m^(1/T),
with m = η p + (1 - η) q, p its own mixture and q the cloud's, in attempts:

    listed    each token i that the cloud lists has the weight m_i^(1/T)
    others    together they have (η p' + (1 - η) q') · c^(1/T - 1): p' and q' are the probabilities that p has outside
              the list and that the list leaves over, c is a bound of m for each of them
    draw      by these weights. Of the others, the device's token follows p outside the list and the cloud's follows q.
              It is taken with probability (m_i / c)^(1/T - 1), else the next attempt begins

An attempt gives token i with a probability proportional to m_i^(1/T), whatever the list. If it needs a probability that
the list leaves open, the device asks for a list twice as long and keeps its coins.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.certificate import WHOLE, Decision, MissingThere, Outcome, RaceView, eta_fixed
from common.sampling.race import Found, LocalRace, RaceSampler
from proto.messages import Side

Coin = Callable[[], float]  # uniform in [0, 1)
Floats = NDArray[np.float64]

_BLOCK: Final = 256  # tokens whose probabilities are summed once per draft
_SLACK: Final = 1.0 + 2.0**-10  # lists are ordered by rounded probabilities
_LAST_BITS: Final = 2.0**-9  # a draft that is made anew after a reconnection differs by less

system_coin: Coin = secrets.SystemRandom().random


@dataclass(frozen=True, slots=True, eq=False)
class OwnMixture(LocalRace):
    """The device's mixture in the processor's memory, with its most probable tokens as the list."""

    numbers: NDArray[np.float32]  # [vocab]
    blocks: Floats  # sums of `_BLOCK` tokens each

    def at(self, ids: Any) -> Floats:
        """Probabilities of tokens."""
        found: Floats = self.numbers[ids].astype(np.float64) / self.blocks.sum()
        return found

    def outside(self, ids: NDArray[np.int64]) -> tuple[Floats, float]:
        """Sums of the blocks without the tokens `ids`, and an upper bound of any other token's probability."""
        sums = self.blocks.copy()
        np.subtract.at(sums, ids // _BLOCK, self.numbers[ids].astype(np.float64))
        mine = self.entries.ids.astype(np.int64)
        others = mine[~np.isin(mine, ids)]
        if len(others):
            return sums.clip(0.0), float(self.at(others).max()) * _SLACK
        return sums.clip(0.0), float(self.at(mine).min()) * _SLACK if self.threshold > 0 else 0.0

    def pick(self, sums: Floats, ids: NDArray[np.int64], coin: float) -> int:
        """The token at the share `coin` of the probability outside `ids`; `sums` are those of `outside`."""
        edges = sums.cumsum()
        place = coin * edges[-1]
        block = min(int(np.searchsorted(edges, place, "right")), int(np.flatnonzero(sums)[-1]))
        start = block * _BLOCK
        inside = self.numbers[start : start + _BLOCK].astype(np.float64)
        inside[ids[(ids >= start) & (ids < start + _BLOCK)] - start] = 0.0
        within = int(np.searchsorted(inside.cumsum(), place - (edges[block] - sums[block]), "right"))
        return start + min(within, int(np.flatnonzero(inside)[-1]))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One draw's coins with the list that it began with."""

    position: int
    eta: float
    power: float  # 1 / T - 1
    own: OwnMixture | None
    base: RaceView | None  # the cloud's list
    token: int | None  # None: one of the cloud's beyond the list
    settled: bool  # `token` is certain
    rest: float  # probability that the list leaves over
    bound: float  # c
    place: float  # coin of the cloud's token
    taken: float  # coin of the acceptance

    def agrees(self, cloud: RaceView, eta: float) -> bool:
        """Whether `cloud` is the list that this attempt began with, or a longer one, in perhaps other last bits."""
        if self.base is None or abs(eta - self.eta) > _LAST_BITS:
            return False
        known = ((q, cloud.speed_of.get(token)) for token, q in self.base.speed_of.items())
        return all(
            q <= cloud.threshold * (1 + _LAST_BITS) if now is None else abs(now / q - 1) <= _LAST_BITS
            for q, now in known
        )

    def weight(self, token: int, q: float) -> float:
        """m of a token."""
        return self.eta * (0.0 if self.own is None else float(self.own.at(token))) + (1.0 - self.eta) * q

    def accepted(self, token: int, q: float) -> bool:
        return bool(self.taken < (self.weight(token, q) / self.bound) ** self.power)

    def resolve(self, cloud: RaceView | None, coin: Coin) -> int | bool:
        """The token; False if it is rejected, True if a longer list must decide."""
        if self.settled and self.token is not None:
            return self.token
        if self.token is not None:
            known = None if cloud is None else cloud.speed_of.get(self.token)
            most = 0.0 if cloud is None else min(cloud.threshold, left(cloud), self.rest)
            if self.accepted(self.token, known or 0.0):
                return self.token
            return known is None and self.accepted(self.token, most)
        assert self.base is not None and cloud is not None
        further = sorted((-q, token) for token, q in cloud.speed_of.items() if token not in self.base.speed_of)
        edges = np.cumsum([-q for q, _ in further])
        place = self.place * self.rest
        if not len(edges) or place >= edges[-1]:
            if cloud.threshold > 0:
                return True
            if not len(edges):
                return False
            place = coin() * edges[-1]
        q, token = further[min(int(np.searchsorted(edges, place, "right")), len(further) - 1)]
        return token if self.accepted(token, -q) else False


def left(cloud: RaceView) -> float:
    """The probability that a list leaves to other tokens."""
    return max(0.0, 1.0 - float(cloud.speeds.sum())) if cloud.threshold > 0 else 0.0


class CoinSampler(RaceSampler):
    """The device's side at privacy `secret`, above temperature 0."""

    def __init__(
        self, temperature: float, entries: int, vocabulary: int, *, exact: bool = True, coin: Coin = system_coin
    ) -> None:
        """`temperature` is above 0 and up to 1. Without `exact` the cloud's tokens beyond its list are never drawn."""
        if not 0.0 < temperature <= 1.0:
            raise ValueError(f"coins draw at temperatures above 0 and up to 1, not {temperature}")
        super().__init__(0, 0.0, entries, vocabulary, exact=exact, hide_ids=True)
        self._power = 1.0 / temperature - 1.0
        self._coin = coin
        self._open: Attempt | None = None  # waits for a longer list

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> LocalRace:
        view = super().drafted(position, probabilities.cpu(), found)
        numbers = view.probabilities.numpy()
        blocks = np.add.reduceat(numbers, np.arange(0, len(numbers), _BLOCK), dtype=np.float64)
        race = (view.position, view.entries, view.speeds, view.threshold, view.probabilities, view.race)
        return OwnMixture(*race, numbers, blocks)

    def rivals(self, view: object) -> list[tuple[int, float]]:
        """Empty: coins can't be foreseen."""
        return []

    def alone(self, position: int, view: Any) -> Outcome:
        """A token of one side's mixture, after its temperature."""
        mine = isinstance(view, OwnMixture)
        return self._drawn(position, view if mine else None, None if mine else view, float(mine))

    def aggregate(
        self, role: Side, position: int, device: Any, cloud: RaceView, evidence: tuple[float, float]
    ) -> Outcome:
        return self._drawn(position, device, cloud, eta_fixed(*evidence) / WHOLE)

    def _drawn(self, position: int, own: OwnMixture | None, cloud: RaceView | None, eta: float) -> Outcome:
        attempt, self._open = self._open, None
        if attempt is None or attempt.position != position or cloud is None:
            attempt = None
        elif not attempt.agrees(cloud, eta):
            if own is not None:  # the question told something of the coins; another list must not learn more
                alone = self._drawn(position, own, None, 1.0)
                return replace(alone, degraded=True) if isinstance(alone, Decision) else alone
            attempt = None
        while True:
            attempt = attempt or self._begin(position, own, cloud, eta)
            outcome = attempt.resolve(cloud, self._coin)
            if outcome is True:
                assert cloud is not None
                self._open = attempt
                return MissingThere((), min(2 * len(cloud.entries.ids), self._vocabulary))
            if outcome is not False:
                return Decision(outcome, self._share(attempt, cloud, outcome))
            attempt = None

    def _begin(self, position: int, own: OwnMixture | None, cloud: RaceView | None, eta: float) -> Attempt:
        listed = cloud if cloud is not None else own
        assert listed is not None
        ids = listed.entries.ids.astype(np.int64)
        q = np.zeros(len(ids)) if cloud is None else cloud.speeds / (1.0 if cloud.threshold > 0 else cloud.speeds.sum())
        rest = left(cloud) if cloud is not None and self._exact else 0.0
        sums, cap = own.outside(ids) if own is not None else (np.zeros(1), 0.0)
        mine = 0.0 if own is None else eta * float(sums.sum() / own.blocks.sum())
        theirs = (1.0 - eta) * rest
        bound = eta * cap + ((1.0 - eta) * min(listed.threshold, rest) if rest else 0.0)
        weights = (1.0 - eta) * q + (0.0 if own is None else eta * own.at(ids))
        scale = max(float(weights.max()), bound)
        known = (weights / scale) ** (self._power + 1.0)
        others = (bound / scale) ** self._power * (mine + theirs) / scale
        edges = known.cumsum()
        coins = [self._coin() for _ in range(4)]
        place = coins[0] * (edges[-1] + others)
        token: int | None = None
        if settled := bool(place < edges[-1] or mine + theirs <= 0.0):
            token = int(ids[min(int(np.searchsorted(edges, place, "right")), int(np.flatnonzero(known)[-1]))])
        elif own is not None and coins[1] * (mine + theirs) < mine:
            token = own.pick(sums, ids, coins[2])
        return Attempt(
            position, eta, self._power, own, cloud, token, settled, rest, bound, place=coins[2], taken=coins[3]
        )

    def _share(self, attempt: Attempt, cloud: RaceView | None, token: int) -> float:
        """The cloud's share in a token's probability; what it does not list counts as 0."""
        q = 0.0 if cloud is None else cloud.speed_of.get(token, 0.0)
        whole = attempt.weight(token, q)
        return (1.0 - attempt.eta) * q / whole if whole > 0 else 0.0
