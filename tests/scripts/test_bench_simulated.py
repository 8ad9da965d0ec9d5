"""The simulated suites run, keep their samples and draw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.simulation.acceptance import Position, save_record
from scripts.bench import scheduling, theory
from scripts.bench.plan import Plan
from scripts.bench.results import Results

pytestmark = pytest.mark.suite


def test_theory_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("theory", tmp_path, short=True)
    theory.run(results)
    kept = json.loads(results.write().read_text())
    points = kept["samples"]["points"]["points"]
    assert len(points) == 6
    # Where the device is the faster side, the theorem's idealisations hold; one answer's noise remains.
    fast = [point for point in points if point["device"] < 0.05]
    assert all(point["simulated"] == pytest.approx(point["theorem"], rel=0.15) for point in fast)
    assert "Theorem 6.2" in capsys.readouterr().out
    assert (tmp_path / "theory-speed-up.png").stat().st_size > 1000


def test_scheduling_short_with_one_of_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acceptance").mkdir()
    regime, other = scheduling.RECORDED
    record = tmp_path / "acceptance" / scheduling.RECORDED[regime]
    save_record(record, [(Position(True, False), Position(True, True)), (Position(False, True),)])
    results = Results("scheduling", tmp_path, short=True)
    scheduling.run(results)
    told = capsys.readouterr()
    assert f"tokens: {regime}" in told.out
    assert f"nothing {other}" in told.err
    verdict = results.record["tables"]["`greedy` against every other strategy"]
    assert [row[0] for row in verdict["rows"]] == list(scheduling.OTHERS)
    assert len(list(tmp_path.glob("scheduling-*.png"))) == len(scheduling.REGIMES) + 1


def test_scheduling_settings_and_verdict() -> None:
    plan = Plan(steps=((20, 10),), rtts=(300,), questions=2, tokens=12)
    regime, model = next(iter(scheduling.REGIMES.items()))
    seconds = {
        setting: scheduling.answer_times(setting, model, plan)
        for setting in (scheduling.Setting(regime, 20, 10, 300, name) for name in scheduling.STRATEGIES)
    }
    assert all(len(values) == 2 and min(values) > 0.24 for values in seconds.values())
    assert len({tuple(values) for values in seconds.values()}) > 2
    assert scheduling.excess([2.0, 3.0], [1.0, 1.0]) == pytest.approx((1.5, 0.5))
