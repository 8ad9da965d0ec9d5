"""The engine's benchmark measures what it says. How fast anything is, is not tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from scripts.bench.engine import pair as halves
from scripts.bench.engine import suite
from scripts.bench.engine.pair import SIDES, STAGES, Even, Logits, Pair, Sources, Stages, make_request
from scripts.bench.engine.suite import Plan
from scripts.bench.measuring import Spread, median_interval
from scripts.bench.rows import where
from scripts.bench.workload import Demonstration, Texts
from scripts.daemons import dragon
from tests.daemons.conftest import starts

__all__ = ["starts"]

VOCABULARY = 400


class Ticking:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def thread_time(self) -> float:
        return self.now


def synthetic(**changes: Any) -> Pair:
    sources = {side: Sources(Logits.draw(side, VOCABULARY, 3, "flat", 4), Even(3)) for side in SIDES}
    return Pair(make_request(**changes), VOCABULARY, sources)


def test_an_inner_stage_is_not_counted_to_the_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticking()
    monkeypatch.setattr(halves, "time", clock)
    stages = Stages()
    with stages("outer"):
        clock.now += 1
        with stages("inner"):
            clock.now += 10
        clock.now += 100
    stages.lap()
    with stages("inner"):
        clock.now += 1000
    stages.lap()
    assert stages.laps == [{"outer": 101e6, "inner": 10e6}, {"inner": 1000e6}]


def test_a_spread_is_the_median_between_its_tails() -> None:
    spread = Spread.of([float(value) for value in range(11)])
    assert (spread.median, spread.low, spread.high) == (5.0, 1.0, 9.0)
    with pytest.raises(ValueError):
        Spread.of([])


def test_nothing_is_said_of_95_per_cent_where_samples_are_too_few_for_it() -> None:
    """The least and the most of five hold the true median in 94 of 100 cases, of three in 75."""
    three, six = Spread.of([3.0, 1.0, 2.0]), Spread.of([float(value) for value in range(1, 7)])
    assert (three.few, three.interval) == (True, (1.0, 3.0))
    assert (three.short(), three.text()) == ("2 (1-3)", "2 (1-3)")
    assert not six.few
    assert six.short(1).startswith("3.5 [")
    assert six.text(1).endswith(f" ({six.low:.1f}-{six.high:.1f})")


@pytest.mark.parametrize("count", range(6, 61))
def test_the_interval_of_a_median_is_as_wide_as_95_per_cent_take(count: int) -> None:
    """Whatever the law: between the k-th of n samples from either end lies the median unless fewer than k are below it,
    or above.
    """
    least, most = median_interval([float(value) for value in range(count, 0, -1)])
    assert most == count + 1 - least

    def held(place: float) -> float:
        return float(1 - 2 * binom.cdf(place - 1, count, 0.5))

    assert held(least) >= 0.95 > held(least + 1)


def test_too_few_samples_have_their_least_and_most() -> None:
    assert median_interval([7.0]) == (7.0, 7.0)
    assert median_interval([1.0, 5.0, 2.0, 4.0, 3.0]) == (1.0, 5.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_pair_gives_the_same_tokens_under_every_placement(temperature: float) -> None:
    """The stages are timed on answers that are right."""
    placements = ("device", "mirrored", "cloud")
    answers = {synthetic(placement=placement, temperature=temperature).run(12) for placement in placements}
    assert len(answers) == 1
    assert len(next(iter(answers))) == 12


def test_both_halves_know_the_answer_and_every_token_has_a_lap() -> None:
    pair = synthetic(temperature=1.0)
    answer = pair.run(9)
    for half in pair.halves.values():
        assert half.answer.session.committed == answer
        assert len(half.stages.laps) == 9
        assert set().union(*half.stages.laps) <= set(STAGES)


def test_only_targets_leave_the_device_in_the_private_placement() -> None:
    pair = synthetic(temperature=1.0)
    pair.run(9)
    assert set(pair.halves["device"].bytes) <= {"Target", "Resolve"}
    mirrored = synthetic(temperature=1.0, placement="mirrored")
    mirrored.run(9)
    assert "Draft" in mirrored.halves["device"].bytes


@pytest.fixture(scope="module")
def demonstration() -> Demonstration:
    return Demonstration(3)


def test_the_codecs_differ_in_size_as_they_must(demonstration: Demonstration) -> None:
    plan = Plan(vocabularies=(5000,), positions=4, questions=1, tokens=5)
    found = suite.measure_wire(plan, demonstration)
    assert {row["vocabulary"] for row in found} == {demonstration.decoder.vocabulary, 5000}
    raw, race = where(found, codec="raw", vocabulary=5000), where(found, codec="race")
    assert raw and all(4 * 5000 < row["down Draft"] < 4 * 5000 + 100 for row in raw)
    assert race and all(row["down Draft"] < 200 for row in race)
    down, up = ([int(each) for each in way.split(" / ")] for way in suite.by_vocabulary(found))
    assert len(up) == len(down) == 2
    assert all(0 < small < large < 200 for small, large in zip(up, down, strict=True))
    own = {str(row[0]): row[1] for row in suite.by_codec(found).rows}
    assert float(str(own["race"])) < float(str(own["raw"]).replace(",", ""))
    assert float(str(own["top-p"])) < float(str(own["race"]))  # of one token, as a rule: the model is sure


def test_a_reading_follows_any_path(demonstration: Demonstration) -> None:
    """Roll-backs included, it gives what a fresh reading of the path gives."""
    question = demonstration.questions[0]
    reading = demonstration.sources(question, 8)["device"].logits
    paths: list[list[int]] = [[], [40], [40, 50], [40, 60, 70], [40], [40, 60]]
    for path in paths:
        fresh = demonstration.sources(question, 8)["device"].logits
        expected = fresh.logits([])
        for length in range(1, len(path) + 1):
            expected = fresh.logits(path[:length])
        assert float((reading.logits(path) - expected).abs().max()) < 1e-3


def test_questions_come_of_all_types_and_documents_fill_libraries(tmp_path: Path) -> None:
    texts = Texts.draw(7)
    assert len(set(texts.questions)) == 7
    texts.fill_libraries(tmp_path)
    for side in SIDES:
        listed = dragon("library", "list", "--role", side, data=tmp_path)
        assert len(listed.stdout.splitlines()) == len(texts.documents[side])


def test_both_ways_to_step_compute_the_same() -> None:
    """Condition for comparing their times."""
    steps = list(suite.measure_steps(Plan(lengths=((30, 22, 25),), tokens=4)))
    assert len(steps) == 3
    assert all(step["difference"] < 1e-2 for step in steps)


def test_latency_is_told_over_the_slower_side() -> None:
    report: dict[str, Any] = {
        "tokens": 10,
        "pieces": ["a"] * 10,
        "ttft": 0.1,
        "seconds": 0.2,
        "per_token": 0.012,
        "inter_token": 0.011,
        "device": {"decode_ms": 8.0, "acceptance": 0.5},
        "cloud": {"decode_ms": 10.0, "acceptance": 0.5},
        "sent": {"question": 300, "tokens": 150, "probabilities": 50},
        "received_bytes": 1500,
    }
    answer = {"mode": "device, T = 0", "placement": "device"} | suite.sample(report, bare=6.0)
    to_step, to_bare = (spread.median for _, _, spread in suite.ratios([answer]))
    assert (to_step, to_bare) == pytest.approx((1.2, 2.0))
