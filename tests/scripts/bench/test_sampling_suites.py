"""Figures of the suites acceptance and codecs obey what is known of the samplers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from common.figures import MOST_LINES
from scripts.bench import acceptance, codecs, scheduling
from scripts.bench.acceptance import PAPER, RACE, SAMPLERS, Case, both_races
from scripts.bench.positions import Position, follow, nats, synthetic
from scripts.bench.results import Results
from scripts.bench.workload import Demonstration

VOCABULARY = 600


@pytest.fixture(scope="module")
def demonstration() -> Demonstration:
    return Demonstration(2)


@pytest.fixture(scope="module")
def positions() -> list[Position]:
    return list(synthetic(VOCABULARY, 4.0, 100, seed=2))


def test_the_full_runs_have_no_more_lines_than_a_panel_shows() -> None:
    """The tests draw short ones."""
    assert len(codecs.FULL.entries) + len(("raw", "top-p")) <= MOST_LINES


class TestPositions:
    def test_synthetic_ones_have_the_entropy_that_is_asked_for(self) -> None:
        for entropy in (3.0, 5.0):
            found = [nats(each.cloud) for each in synthetic(5_000, entropy, 40, seed=4)]
            assert np.mean(found) == pytest.approx(entropy, abs=0.35)
        with pytest.raises(ValueError, match="can't have an entropy of 9"):
            next(synthetic(5_000, 9.0, 1, seed=4))

    def test_an_answer_is_followed_as_the_running_system_gives_it(self, demonstration: Demonstration) -> None:
        """Each position's target is the next one's prefix: the same model asked again gives the same distributions."""
        question = demonstration.questions[0]
        first = list(follow(demonstration, question, 2, 0.7, seed=5, tokens=5))
        path = [each.target() for each in first]
        again = demonstration.sources(question, 5, 2)
        for number, each in enumerate(first):
            rows = again["cloud"].logits.logits(path[:number])
            assert len(rows) == 2
            assert each.index == number
            # a mixture lies between its documents' distributions, whatever the temperature
            alone = torch.softmax(rows[:, : len(each.cloud)], dim=-1)
            assert (each.cloud <= alone.amax(0) + 1e-4).all()
            assert (each.cloud >= alone.amin(0) - 1e-4).all()


class TestAcceptance:
    def test_outcomes_are_as_frequent_as_they_were_expected_to_be(self, positions: list[Position]) -> None:
        """Within four standard deviations, for the race and for the paper's sampler; swapping the sides fails."""
        answer = acceptance.judge(Case(1, 1.0), 0, 2, positions)
        for sampler in SAMPLERS:
            accepted = np.array([each.accepted for each in answer.judged[sampler]], dtype=float)
            expected = np.array([each.expected for each in answer.judged[sampler]])
            allowed = 4 * np.sqrt((expected * (1 - expected)).sum(axis=0))
            assert (np.abs((accepted - expected).sum(axis=0)) <= allowed).all()
        device, cloud, both = acceptance.rates(answer.judged[RACE])
        assert max(0.0, device + cloud - 1) <= both <= min(device, cloud)
        assert both > acceptance.rates(answer.judged[PAPER])[2]

    def test_the_target_of_a_rejected_draft_is_a_slower_one_and_often_the_next(self, positions: list[Position]) -> None:
        answer = acceptance.judge(Case(1, 1.0), 0, positions[0].seed, positions)
        for side in (0, 1):
            accepted = [each.accepted[side] for each in answer.judged[RACE]]
            assert [each.rank[side] == 1 for each in answer.ranks] == accepted
            rejected = [each for each in answer.ranks if each.rank[side] > 1]
            near = [each for each in rejected if each.rank[side] <= 4]
            assert len(near) > len(rejected) / 2
            margins = [each.margin[side] for each in answer.ranks]
            assert min(margins) >= 0
            assert np.median([each.margin[side] for each in rejected]) < np.median(margins)

    def test_at_temperature_0_all_samplers_are_one(self, positions: list[Position]) -> None:
        greedy = [Position(each.seed, each.index, 0.0, *each.both, each.evidence) for each in positions[:20]]
        judged = acceptance.judge(Case(1, 0.0), 0, 2, greedy).judged
        assert [each.accepted for each in judged[RACE]] == [each.accepted for each in judged[PAPER]]

    def test_the_chance_to_win_both_races(self, positions: list[Position]) -> None:
        """Known in closed form for two tokens; the sum as it is defined, and counted, for more."""
        own, mixture = positions[0].device.numpy().astype(float), positions[0].mixture()
        defined = (1 / np.maximum(own / own[:, None], mixture / mixture[:, None]).sum(axis=1)).sum()
        assert both_races(own, mixture) == pytest.approx(defined, rel=1e-9)
        assert both_races(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == pytest.approx(1.0)
        assert both_races(np.array([1.0, 0.0]), np.array([0.25, 0.75])) == pytest.approx(0.25)
        own, mixture = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
        noise = np.random.default_rng(6).exponential(size=(40_000, 3))
        same = (own / noise).argmax(1) == (mixture / noise).argmax(1)
        assert both_races(own, mixture) == pytest.approx(same.mean(), abs=0.01)

    def test_suites_with_one_case_do_not_write_over_each_other(self, positions: list[Position], tmp_path: Path) -> None:
        """The suite `scheduling` replays what `acceptance` wrote, by its name."""
        answers = [acceptance.judge(Case(4, 1.0), 0, 2, positions[:4])]
        for suite in ("acceptance", "real-acceptance"):
            acceptance.report(answers, acceptance.SHORT, Results(suite, tmp_path, short=True))
        replayed = scheduling.RECORDED["recorded, embedded model"]
        assert [path.parent.name for path in sorted(tmp_path.rglob(replayed))] == ["acceptance", "real-acceptance"]


class TestCodecs:
    def test_a_list_of_everything_changes_no_token_and_a_truncation_does(self, positions: list[Position]) -> None:
        measured = codecs.measure(codecs.Source("synthetic", VOCABULARY, 4.0), iter(positions), (2, VOCABULARY))
        whole = measured.told[f"race, K = {VOCABULARY}"]
        assert not any(each.changed or each.failed or each.changed_after for each in whole)
        changed = {codec: sum(each.changed for each in told) for codec, told in measured.told.items()}
        assert changed["raw"] == 0
        assert changed["top-p 0.8"] > 10
        assert changed["race, K = 2"] > 0
        assert not any(each.changed_after for each in measured.told["race, K = 2"])

    def test_a_share_of_nothing_says_of_how_many(self) -> None:
        assert codecs.share([False] * 40) == "0 of 40"
        assert codecs.share([True, False, False, False]) == "25.00 %"
