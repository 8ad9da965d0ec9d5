"""The suite `qsv`: its laws and verdicts, and a short run. How long anything takes is not tested."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from common.figures import MOST_LINES
from scripts.bench.measuring import Spread
from scripts.bench.methods.measure import Drafted
from scripts.bench.methods.plan import TARGET
from scripts.bench.qsv.analysis import Asked, orderings
from scripts.bench.qsv.changing import changing_table
from scripts.bench.qsv.laws import Drafting, distance, entropy, probability
from scripts.bench.qsv.plan import DDQN, FIXED, FULL, HEURISTIC, QS, RESOLUTIONS, SQ, UPLINKS
from scripts.bench.qsv.reading import Computed
from scripts.bench.qsv.suite import DRAWN

pytestmark = pytest.mark.suite

P, Q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.3, 0.5])


class TestLaws:
    def test_sampling_before_rounding_follows_neither_model(self) -> None:
        """Worked by hand: q rounds to (.25, .25, .5)."""
        position = Drafting.inexact(P, Q, 4)
        assert position.law() == pytest.approx([0.45, 0.35, 0.20])
        assert distance(position.law(), P) == pytest.approx(0.05)

    @pytest.mark.parametrize("resolution", [1, 4, 16])
    def test_sampling_behind_the_rounding_follows_the_target(self, resolution: int) -> None:
        assert Drafting.exact(P, Q, resolution).law() == pytest.approx(P, abs=1e-12)

    def test_a_drawn_token_without_a_unit_is_accepted(self) -> None:
        target, drafter = np.asarray([0.9, 0.0, 0.1]), np.asarray([0.8, 0.1, 0.1])
        assert Drafting.inexact(target, drafter, 2).accepted() == pytest.approx([0.8 * 0.9, 0.0, 0.1])

    @pytest.mark.parametrize("length", [1, 2, 3])
    def test_answers_of_an_exact_order_have_the_targets_probability(self, length: int) -> None:
        positions = [Drafting.exact(P, Q, 4), Drafting.exact(Q, P, 3), Drafting.exact(P, P, 2), Drafting.exact(Q, Q, 1)]
        tokens = [0, 2, 1, 0]
        expected = np.prod([each.target[token] for each, token in zip(positions, tokens, strict=True)])
        assert probability(tokens, positions, length) == pytest.approx(expected)

    def test_all_answers_together_are_certain(self) -> None:
        """In rounds of two drafts, of which the token behind a whole one is the target's."""
        positions = [Drafting.inexact(P, Q, 4), Drafting.inexact(Q, P, 4), Drafting.inexact(P, Q, 2)]
        total = sum(probability(tokens, positions, 2) for tokens in product(range(3), repeat=3))
        assert total == pytest.approx(1.0)
        first = sum(probability((0, *others), positions, 2) for others in product(range(3), repeat=2))
        assert first == pytest.approx(0.45)

    def test_entropy_is_in_nats(self) -> None:
        assert entropy(np.asarray([0.5, 0.5, 0.0])) == pytest.approx(np.log(2))


class TestChanging:
    """Over an uplink of two rates; milliseconds per token by seed."""

    TIMES: ClassVar[dict[str, tuple[float, ...]]] = {
        TARGET.name: (30.0, 30.0, 30.0),
        FIXED[0].name: (20.0, 25.0, 20.0),
        FIXED[1].name: (16.0, 10.0, 40.0),
        DDQN.name: (10.0, 10.0, 16.0),
    }

    def test_ratios_are_of_the_same_seed_to_the_best_of_the_fixed(self) -> None:
        ways = (TARGET, *FIXED[:2], DDQN)
        found = [
            Drafted(mode=way.name, question=seed, report=self.report(way.name, milliseconds))
            for way in ways
            for seed, milliseconds in enumerate(self.TIMES[way.name])
        ]
        table = changing_table(found, ways)
        assert [row[0] for row in table.rows] == [way.name for way in ways]
        # The second fixed length has the highest median, 62.5 tokens per second; by seed DDQN has 1.6, 1 and 2.5 times.
        assert [str(row[3]).split()[0] for row in table.rows] == ["0.53", "0.80", "1.00", "1.60"]
        assert [row[1] for row in table.rows] == ["–", *["0.75, 3.5"] * 3]

    @staticmethod
    def report(way: str, milliseconds: float) -> dict[str, Any]:
        return {
            "tokens": 101,
            "ttft": 0.2,
            "seconds": 0.2 + milliseconds / 10,
            "figures": {} if way == TARGET.name else {"proposed_per_round": 3.5, "rounds": 101},
            "device": {"acceptance": 0.75, "accepted": 0},
            "cloud": {"acceptance": None},
        }


def asked(right: int, surprise: float) -> Asked:
    return Asked((True,) * right + (False,) * (96 - right), ((surprise, surprise),) * 96, tuple(range(12)) * 8)


def verdicts(exact: int, sampled: float, ddqn: float, off: float = 1e-14, count: int = 7) -> dict[str, bool | None]:
    """Of answers whose exact ways have `exact` right ones of 96 at temperature 1, where the target has 60."""
    ways = [(TARGET, 60), (SQ[16], 40), (QS[16], exact), (DDQN, 60)]
    answers = {(way.name, at): asked(right, at) for way, right in ways for at in (0.2, 1.0)}
    losses = {0.2: 0.0, 1.0: sampled}
    laws = {
        (resolution, at): Computed({"target": 0.6, "S-Q": 0.6 - lost}, lost, lost, (0.1, 0.1), off)
        for resolution in RESOLUTIONS
        for at, lost in losses.items()
    }
    speeds = {
        (UPLINKS[0], way.name): Spread.of(
            [per_second, *[per_second - 0.6] * (count // 2), *[per_second + 0.6] * (count // 2)]
        )
        for way, per_second in ((TARGET, 30.0), (QS[64], 40.0), (HEURISTIC[64], 42.0), (DDQN, ddqn))
    }
    return {each.said.rpartition("kb/s: ")[2]: each.shows for each in orderings(answers, laws, speeds)}


def test_more_answers_to_the_same_questions_tell_no_more_of_others() -> None:
    """Eight answers that are alike make no interval narrower."""
    surprises = tuple((0.1 * number, 0.3) for number in range(12))
    once = Asked((True,) * 12, surprises, tuple(range(12)))
    eight = Asked((True,) * 96, surprises * 8, tuple(range(12)) * 8)
    assert eight.entropy == pytest.approx(once.entropy)
    assert eight.entropy_interval == pytest.approx(once.entropy_interval)
    assert once.entropy_interval[0] < once.entropy < once.entropy_interval[1]


def test_orderings_that_show() -> None:
    found = verdicts(exact=58, sampled=0.1, ddqn=45.0)
    assert len(found) == 7
    assert all(found.values())


def test_orderings_that_do_not_show() -> None:
    found = verdicts(exact=20, sampled=0.0, ddqn=38.0)
    shown = {said for said, shows in found.items() if shows}
    assert shown == {
        "token entropy grows with temperature in every way",
        "S-Q and Q-S of fixed length are faster than the target alone",
    }
    assert None not in found.values()


def test_a_law_that_is_off_is_not_the_targets_whatever_few_answers_say() -> None:
    said = "Q-S keeps the target's quality, with or without dynamic lengths"
    assert verdicts(exact=58, sampled=0.1, ddqn=45.0)[said] is True
    assert verdicts(exact=58, sampled=0.1, ddqn=45.0, off=0.01)[said] is False


def test_intervals_that_overlap_leave_it_open() -> None:
    found = verdicts(exact=58, sampled=0.1, ddqn=41.0)
    assert found["DDQN is faster than the heuristic, ℓ 64"] is None
    assert found["DDQN is faster than a fixed length, ℓ 64"] is None
    assert verdicts(exact=58, sampled=0.1, ddqn=40.5)["DDQN is faster than the heuristic, ℓ 64"] is False


def test_too_few_answers_leave_it_open() -> None:
    found = verdicts(exact=58, sampled=0.1, ddqn=45.0, count=5)
    assert {said for said, shows in found.items() if shows is None} == {said for said in found if "faster" in said}


def test_the_whole_run_has_what_the_orderings_compare() -> None:
    assert len(DRAWN) <= MOST_LINES
    assert all(way in FULL.ways for way in DRAWN)
    assert set(FULL.temperatures) <= set(FULL.computed)
    (part,) = FULL.speed.parts
    assert not Spread.of([float(seed) for seed in part.seeds]).few
    for ways in part.modes.values():
        assert all(way in ways for way in (TARGET, DDQN, *SQ.values(), *QS.values(), *HEURISTIC.values()))
