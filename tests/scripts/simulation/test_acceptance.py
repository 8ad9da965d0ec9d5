"""Acceptance sequences: modelled rates are met, records survive a file, nonsense is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from scripts.simulation.acceptance import (
    InARow,
    Phases,
    Position,
    Rates,
    Recorded,
    load_record,
    save_record,
)

ANSWERS = (
    (Position(True, False), Position(False, True, (0.25, 0.5))),
    (Position(True, True),),
)


class TestRates:
    @pytest.mark.parametrize("rates", [Rates(0.48, 0.48, 0.03), Rates(0.85, 0.86, 0.73), Rates.independent(0.9, 0.2)])
    def test_each_and_both_are_met(self, rates: Rates) -> None:
        """20,000 positions of a fixed seed: within 4 standard deviations (0.0035 at most) of the rate."""
        drawn = rates.draw(20_000, 5)
        assert mean(p.device for p in drawn) == pytest.approx(rates.device, abs=0.015)
        assert mean(p.cloud for p in drawn) == pytest.approx(rates.cloud, abs=0.015)
        assert mean(p.device and p.cloud for p in drawn) == pytest.approx(rates.both, abs=0.015)

    def test_seeds_differ_and_repeat(self) -> None:
        rates = Rates(0.5, 0.5, 0.25)
        assert rates.draw(64, 1) == rates.draw(64, 1) != rates.draw(64, 2)

    @pytest.mark.parametrize("values", [(0.9, 0.9, 0.7), (0.5, 0.4, 0.45), (1.2, 0.5, 0.5), (0.5, -0.1, 0.0)])
    def test_what_can_not_be_is_refused(self, values: tuple[float, float, float]) -> None:
        with pytest.raises(ValueError, match="accept"):
            Rates(*values)


def test_phases_take_turns() -> None:
    phases = Phases((Rates(1.0, 0.0, 0.0), Rates(0.0, 1.0, 0.0)), 10, expectations=True)
    drawn = phases.draw(60, 3)
    changes = [i for i in range(1, 60) if drawn[i].device != drawn[i - 1].device]
    assert {later - sooner for sooner, later in pairwise(changes)} == {10}
    assert all(position.expected == (float(position.device), float(position.cloud)) for position in drawn)


def test_short_answers_in_a_row_make_a_long_one() -> None:
    answer = (Position(True, True), Position(True, False), Position(False, True), Position(False, False))
    model = InARow((answer, answer[1:]))
    drawn = model.draw(40, 1)
    assert len(drawn) == 40
    assert drawn == model.draw(40, 1) != model.draw(40, 2)
    following = dict(pairwise(answer))
    assert all(following.get(one, two) == two for one, two in pairwise(drawn))
    assert len({two for one, two in pairwise(drawn) if one == answer[-1]}) > 1  # where the next one begins


class TestRecord:
    def test_survives_a_file(self, tmp_path: Path) -> None:
        save_record(tmp_path / "record.json", ANSWERS)
        assert load_record(tmp_path / "record.json") == Recorded(ANSWERS)

    def test_the_seed_chooses_the_answer(self) -> None:
        record = Recorded(ANSWERS)
        assert [record.draw(1, seed) for seed in range(3)] == [ANSWERS[0][:1], ANSWERS[1], ANSWERS[0][:1]]

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "{}",
            "[]",
            "[[]]",
            "[1]",
            "[[[1]]]",
            "[[[1, 2]]]",
            "[[[1, 0, 0.5]]]",
            "[[[1, 0, 0.5, 2]]]",
            '[[["1", 0]]]',
        ],
    )
    def test_another_file_is_refused_with_its_name(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "record.json"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"record\.json"):
            load_record(path)
