"""The device's own coins draw from the mixture of both sides, also where the cloud's list is too short.

Over a grid of coins on which every boundary lies, each token's share is the law itself. G-tests with fixed coins reach
the temperatures that have no such grid; each mutant must fail one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from common.sampling.certificate import WHOLE, Decision, MissingThere, eta_fixed
from common.sampling.coins import Coin, CoinSampler, OwnMixture
from common.sampling.race import LocalRace, RaceSampler
from proto.codes import decode_probabilities, encode_probabilities

Floats = NDArray[np.float64]
VOCABULARY = 200
EVENS = (0.0, 0.0)
EVIDENCE = (0.0, 0.8)
RUNS = 3_000


def tensor(p: Floats) -> torch.Tensor:
    return torch.from_numpy(p.astype(np.float32))


def sides(seed: int) -> tuple[Floats, Floats]:
    """Two distributions with much beyond any short list, the cloud's as it is rounded."""
    draw = np.random.default_rng(seed)
    device, cloud = (draw.dirichlet(np.full(VOCABULARY, 0.03)) for _ in range(2))
    return device.astype(np.float32).astype(np.float64), decode_probabilities(encode_probabilities(cloud))


@dataclass
class Game:
    """A device with coins and a cloud that answers its questions."""

    device: Floats
    cloud: Floats
    entries: int
    kind: type[CoinSampler] = CoinSampler
    temperature: float = 1.0
    asked: int = 0

    def begin(self, coin: Coin, evidence: tuple[float, float] = EVIDENCE) -> Callable[[], int]:
        """A way to draw one token at a time."""
        size = len(self.device)
        sampler = self.kind(self.temperature, self.entries, size, coin=coin)
        over_there = RaceSampler(9, 0.0, self.entries, size)
        mine, theirs = sampler.draft(0, tensor(self.device)), over_there.draft(0, tensor(self.cloud))
        sent = over_there.pack(theirs)

        def draw() -> int:
            known = sampler.read("cloud", 0, sent)
            while not isinstance(outcome := sampler.aggregate("device", 0, mine, known, evidence), Decision):
                assert isinstance(outcome, MissingThere)
                assert outcome.ids == ()  # names would tell which tokens the device favours
                self.asked += 1
                supplied = over_there.supply(theirs, (), outcome.depth)
                known = sampler.complete(known, 0, (), outcome.depth, supplied)
            return outcome.token

        return draw

    def law(self, evidence: tuple[float, float] = EVIDENCE) -> Floats:
        eta = eta_fixed(*evidence) / WHOLE
        mixture = eta * self.device / self.device.sum() + (1 - eta) * self.cloud / self.cloud.sum()
        weights: Floats = mixture ** (1 / self.temperature)
        weights /= weights.sum()
        return weights

    def p_value(self, runs: int = RUNS) -> float:
        draw = self.begin(random.Random(4).random)
        return fit(Counter(draw() for _ in range(runs)), self.law(), runs)


def fit(counts: Counter[int], law: Floats, runs: int) -> float:
    """The p-value of a G-test, with the improbable tokens as one."""
    often = law * runs > 5
    seen = np.asarray([counts[token] for token in range(len(law))], dtype=float)
    seen, wanted = (np.append(each[often], each[~often].sum()) for each in (seen, law * runs))
    return float(stats.chi2.sf(2 * (seen * np.log(np.maximum(seen, 1e-300) / wanted)).sum(), len(seen) - 1))


class TestExactly:
    DEVICE = np.asarray([1, 1, 2, 12]) / 16
    CLOUD = np.asarray([8, 4, 2, 2]) / 16

    def test_every_combination_of_coins(self) -> None:
        """A list of two, m in 32nds: 9 and 5 of listed tokens, 14 of the device's others, 4 of the cloud's."""
        grids = [[Fraction(2 * k + 1, 2 * n) for k in range(n)] for n in (32, 18, 14)]
        coins: list[float] = []
        game = Game(self.DEVICE, self.CLOUD, 2)
        draw = game.begin(lambda: coins.pop(0), EVENS)
        counts: Counter[int] = Counter()
        for chosen in product(*grids):
            coins[:] = [*map(float, chosen), 0.5]
            counts[draw()] += 1
            assert not coins
        total = counts.total()
        assert {token: Fraction(count, total) for token, count in counts.items()} == {
            token: Fraction(weight, 32) for token, weight in enumerate((9, 5, 4, 14))
        }
        assert game.asked == total * 4 / 32  # the cloud's others

    @pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
    def test_picks_by_share(self, size: int) -> None:
        """Every token outside the list is picked for as long a part of the unit interval as it is probable."""
        draw = np.random.default_rng(size)
        mixture = draw.dirichlet(np.full(size, 0.3)).astype(np.float32)
        mixture[draw.random(size) < 0.2] = 0.0
        mixture[-1] += np.float32(0.1)
        own = CoinSampler(1.0, 2, size).draft(0, torch.from_numpy(mixture))
        assert isinstance(own, OwnMixture)
        without = np.flatnonzero(draw.random(size - 1) < 0.1)
        sums, most = own.outside(without)
        rest = mixture.astype(np.float64)
        rest[without] = 0.0
        assert sums.sum() == pytest.approx(rest.sum())
        assert most >= rest.max() / mixture.sum(dtype=np.float64)
        edges = rest.cumsum() / rest.sum()
        for token in np.flatnonzero(rest > 1e-9):
            for coin in (edges[token] - 1e-10, edges[token] - rest[token] / rest.sum() + 1e-10):
                assert own.pick(sums, without, float(coin)) == token


class TestLaw:
    @pytest.mark.parametrize(("temperature", "entries"), [(1.0, 2), (1.0, 32), (1.0, VOCABULARY), (0.7, 32), (0.3, 2)])
    def test_of_both(self, temperature: float, entries: int) -> None:
        game = Game(*sides(1), entries, temperature=temperature)
        assert game.p_value() > 1e-3
        assert (game.asked > 0) == (entries < VOCABULARY)

    @pytest.mark.parametrize("temperature", [1.0, 0.5])
    def test_of_each_side_alone(self, temperature: float) -> None:
        device, cloud = sides(2)
        sampler = CoinSampler(temperature, 8, VOCABULARY, coin=random.Random(5).random)
        mine, theirs = sampler.draft(0, tensor(device)), RaceSampler(0, 0.0, VOCABULARY, VOCABULARY)
        listed = theirs.read("cloud", 0, theirs.pack(theirs.draft(0, tensor(cloud))))
        for view, p in ((mine, device), (listed, cloud)):
            outcomes = [sampler.alone(0, view) for _ in range(RUNS)]
            law = (p / p.sum()) ** (1 / temperature)
            counts = Counter(each.token for each in outcomes if isinstance(each, Decision))
            assert fit(counts, law / law.sum(), RUNS) > 1e-3

    def test_at_low_temperature_is_the_most_probable(self) -> None:
        game = Game(*sides(8), 64, temperature=0.01)
        assert game.law().max() > 1 - 1e-6
        draw = game.begin(random.Random(1).random)
        assert {draw() for _ in range(50)} == {int(game.law().argmax())}

    def test_cloud_shares_add_up(self) -> None:
        """The mean share of the cloud is its weight, except beyond its list."""
        game = Game(*sides(4), VOCABULARY)
        sampler = CoinSampler(1.0, VOCABULARY, VOCABULARY, coin=random.Random(2).random)
        views = [sampler.draft(0, tensor(each)) for each in (game.device, game.cloud)]
        outcomes = [sampler.aggregate("device", 0, views[0], views[1], EVIDENCE) for _ in range(2000)]
        shares = [each.cloud_share for each in outcomes if isinstance(each, Decision) and each.cloud_share is not None]
        assert np.mean(shares) == pytest.approx(1 - eta_fixed(*EVIDENCE) / WHOLE, abs=0.04)


class OtherCoins(CoinSampler):
    """Draws anew when the longer list is there."""

    def _drawn(self, *arguments):  # type: ignore[no-untyped-def]
        self._open = None
        return super()._drawn(*arguments)


class ListIsAll(CoinSampler):
    """Takes the cloud's list for all of its tokens."""

    def _begin(self, *arguments):  # type: ignore[no-untyped-def]
        self._exact = False
        return super()._begin(*arguments)


class TakesEverything(CoinSampler):
    """Takes every token beyond the list."""

    def _begin(self, *arguments):  # type: ignore[no-untyped-def]
        return replace(super()._begin(*arguments), taken=0.0)


class CoolsEachSide(CoinSampler):
    """Forgets the temperature of listed tokens."""

    def _begin(self, *arguments):  # type: ignore[no-untyped-def]
        power, self._power = self._power, 0.0
        begun = super()._begin(*arguments)
        self._power = power
        return replace(begun, power=power)


class EtaOfTheOther(CoinSampler):
    def _drawn(self, position, own, cloud, eta):  # type: ignore[no-untyped-def]
        return super()._drawn(position, own, cloud, 1.0 - eta)


@pytest.mark.parametrize("mutant", [OtherCoins, ListIsAll, TakesEverything, CoolsEachSide, EtaOfTheOther])
def test_mutant_is_caught(mutant: type[CoinSampler]) -> None:
    assert Game(*sides(1), 4, kind=mutant, temperature=0.6).p_value() < 1e-9
    assert Game(*sides(1), 4, temperature=0.6).p_value() > 1e-3


class TestLies:
    """A cloud that contradicts itself learns no more of the coins."""

    def asking(self, sampler: CoinSampler, mine: LocalRace, cloud: LocalRace) -> MissingThere:
        while isinstance(outcome := sampler.aggregate("device", 0, mine, cloud, EVIDENCE), Decision):
            pass
        assert isinstance(outcome, MissingThere)
        return outcome

    def test_another_list_after_a_question_degrades(self) -> None:
        device, cloud = sides(6)
        sampler = CoinSampler(1.0, 2, VOCABULARY, coin=random.Random(8).random)
        mine, theirs, other = (sampler.draft(0, tensor(each)) for each in (device, cloud, sides(7)[1]))
        tokens = Counter[int]()
        for _ in range(RUNS // 2):
            self.asking(sampler, mine, theirs)
            outcome = sampler.aggregate("device", 0, mine, other, EVIDENCE)
            assert isinstance(outcome, Decision)
            assert outcome.degraded
            tokens[outcome.token] += 1
        assert fit(tokens, device / device.sum(), RUNS // 2) > 1e-3  # by coins that were not asked about

    def test_another_weight_after_a_question_degrades(self) -> None:
        device, cloud = sides(6)
        sampler = CoinSampler(1.0, 2, VOCABULARY, coin=random.Random(8).random)
        mine, theirs = (sampler.draft(0, tensor(each)) for each in (device, cloud))
        self.asking(sampler, mine, theirs)
        outcome = sampler.aggregate("device", 0, mine, theirs, (0.0, 5.0))
        assert isinstance(outcome, Decision)
        assert outcome.degraded

    def test_a_list_with_other_last_bits_goes_on(self) -> None:
        """A cloud that comes back computes its draft anew."""
        device, cloud = sides(6)
        sampler = CoinSampler(1.0, 2, VOCABULARY, coin=random.Random(8).random)
        mine, theirs, again = (sampler.draft(0, tensor(each)) for each in (device, cloud, cloud * (1 + 2.0**-11)))
        assert again.entries.codes.tolist() != theirs.entries.codes.tolist()
        asked = self.asking(sampler, mine, theirs)
        assert sampler.aggregate("device", 0, mine, again, EVIDENCE) == asked

    def test_same_list_gets_the_same_question(self) -> None:
        device, cloud = sides(6)
        sampler = CoinSampler(1.0, 2, VOCABULARY, coin=random.Random(8).random)
        mine, theirs = (sampler.draft(0, tensor(each)) for each in (device, cloud))
        asked = self.asking(sampler, mine, theirs)
        assert all(sampler.aggregate("device", 0, mine, theirs, EVIDENCE) == asked for _ in range(100))

    def test_impossible_lists_end(self) -> None:
        """Lists that claim too much or next to nothing have a token all the same."""
        sampler = CoinSampler(0.5, 4, VOCABULARY, coin=random.Random(3).random)
        mine = sampler.draft(0, tensor(sides(5)[0]))
        for value, count in ((1.0, 4), (2.0**-31, 4), (2.0**-31, 1), (1.0, 1)):
            claimed = np.zeros(VOCABULARY)
            claimed[:count] = value
            listed = sampler.read("cloud", 0, sampler.pack(sampler.draft(0, tensor(claimed))))
            for _ in range(50):
                outcome = sampler.aggregate("device", 0, mine, listed, (0.0, 9.0))
                assert isinstance(outcome, Decision | MissingThere)
                if isinstance(outcome, Decision):
                    assert outcome.token < VOCABULARY


def test_coins_are_the_systems() -> None:
    """Nobody can compute them from a seed."""
    sampler = CoinSampler(1.0, 4, VOCABULARY)
    assert isinstance(getattr(sampler._coin, "__self__", None), random.SystemRandom)
    with pytest.raises(ValueError, match="up to 1"):
        CoinSampler(1.5, 4, VOCABULARY)
