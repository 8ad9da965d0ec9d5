"""The suite of methods that draft and verify: what it makes of answers. How long anything takes is not tested."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from common.drawing import MOST_LINES
from scripts.bench.latency.measure import TokensDiffer
from scripts.bench.methods import analysis, work
from scripts.bench.methods.measure import Answered, check_identity
from scripts.bench.methods.plan import (
    AHEAD,
    AIMED,
    CROSS,
    DRAFT,
    DSSD,
    DSSD_GOODPUT,
    FAST,
    FULL,
    GRID,
    NO_NETWORK,
    QSV_FIXED_INDEX,
    SHORT,
    SLOW,
    TARGET,
    Mode,
    Network,
    Part,
    Plan,
)
from scripts.bench.methods.prediction import ENCRYPTED, Steps, chunk, predicted
from scripts.bench.methods.suite import DRAWN, FAMILIES, draw_predictions, draw_speed, run
from scripts.bench.results import Results

pytestmark = pytest.mark.suite

TOKENS = 101
PLAN = Plan((Part(0.9, dict.fromkeys((SLOW, FAST), (*AIMED, DSSD_GOODPUT)), seeds=(1, 2)),))

FLOORS = Steps.of([], PLAN)


def answered(mode: Mode, per_token: float, network: Network = FAST, **changes: object) -> Answered:
    """Twenty rounds of four tokens, of which three are accepted."""
    answer = Answered(
        overlap=0.9,
        delay=network.delay,
        rate=network.rate,
        mode=mode.name,
        seed=1,
        tokens=TOKENS,
        per_token=per_token,
        ttft=200.0,
        sent=1000,
        received=400,
        forwarded=(2500, 2000),
        rounds=20,
        proposals=20,
        proposed=4.0,
        acceptance=0.75,
        drafted=80,
        draft_step=5.0,
        verify=32.0,
        reported=30.0,
        pieces=("a", "b"),
    )
    return replace(answer, **changes)  # type: ignore[arg-type]


class TestPrediction:
    def test_a_round_is_drafts_a_pass_the_round_trip_and_the_bytes(self) -> None:
        decided = 1 + 0.75 + 0.75**2 + 0.75**3 + 0.75**4
        transmission = 1e3 * (1000 / 20 + ENCRYPTED) / 5_000
        expected = (4 * 5 + 32 + 50 + transmission) / decided
        found = predicted(answered(DSSD[0], 30.0, SLOW), DSSD[0], FLOORS)
        assert found == pytest.approx(expected * (TOKENS - decided) / (TOKENS - 1))

    def test_a_length_between_two_is_rounds_of_both(self) -> None:
        times = [predicted(answered(DSSD[0], 30.0, proposed=length), DSSD[0], FLOORS) for length in (4.0, 4.5, 5.0)]
        assert min(times[0], times[2]) < times[1] < max(times[0], times[2])

    def test_chunks_that_are_drafted_ahead_are_more_than_rounds(self) -> None:
        answer = answered(AHEAD, 15.0, drafted=200, proposals=40)
        assert chunk(answer, AHEAD) == 5.0
        assert predicted(answer, AHEAD, FLOORS) < predicted(answer, DSSD[0], FLOORS)

    def test_one_model_alone_takes_what_it_took(self) -> None:
        alone = [answered(TARGET, time, acceptance=None) for time in (33.0, 35.0, 34.0)]
        assert Steps.of(alone, PLAN) == Steps(PLAN.draft_ms, 34.0)

    def test_one_model_alone_takes_its_floor(self) -> None:
        assert predicted(answered(TARGET, 33.0, acceptance=None), TARGET, FLOORS) == PLAN.verify_ms
        assert predicted(answered(DRAFT, 5.3, NO_NETWORK, acceptance=None), DRAFT, FLOORS) == PLAN.draft_ms


class TestAims:
    def found(self, ahead: float = 10.0, goodput: float = 20.0) -> dict[str, tuple[str, str]]:
        answers = [answered(TARGET, 32.0, acceptance=None)]
        for network in (SLOW, FAST):
            answers += [answered(mode, time, network) for mode, time in zip(DSSD, (22.0, 20.0, 21.0), strict=True)]
            answers += [answered(mode, 30.0, network) for mode in QSV_FIXED_INDEX]
            answers += [answered(AHEAD, ahead, network), answered(DSSD_GOODPUT, goodput, network)]
        rows = analysis.aims(analysis.cells(answers, PLAN), SLOW, FAST).rows
        return {str(row[0]).rpartition(":")[2].strip(): (str(row[2]), str(row[3])) for row in rows}

    def test_the_best_rival_counts(self) -> None:
        found = self.found()
        assert found["coupled ahead over the best dssd γ 4, 6, 8 (dssd γ 6)"] == ("2.00", "met")
        assert found["coupled ahead over the best qsv, fixed index (qsv fixed index γ 6)"] == ("3.00", "met")
        slower = self.found(ahead=19.0)
        assert slower["coupled ahead over the best dssd γ 4, 6, 8 (dssd γ 6)"] == ("1.05", "missed")

    def test_bytes_of_both_ways(self) -> None:
        found = self.found()
        assert found["bytes up per token"] == ("9.9 to 9.9", "missed")
        assert found["bytes down per token"] == ("4.0 to 4.0", "met")

    def test_a_policy_is_compared_with_the_best_fixed_length_of_its_method(self) -> None:
        assert self.found()["dssd goodput over the best fixed length"][1] == "met"
        told, met = self.found(goodput=25.0)["dssd goodput over the best fixed length"]
        assert told.startswith("0 of 2 networks; 0.80 at")
        assert met == "missed"

    def test_predictions_are_counted(self) -> None:
        told, met = self.found()["measured over predicted time"]
        assert " of 15 cells" in told
        assert met == "missed"


def test_ratios_are_those_to_the_target_alone() -> None:
    every = analysis.cells([answered(TARGET, 32.0, acceptance=None), answered(AHEAD, 16.0)], PLAN)
    assert {row[2]: row[4] for row in analysis.table(every).rows} == {TARGET.name: "1.00", AHEAD.name: "2.00"}


def test_another_token_of_a_coupled_answer_stops_the_run() -> None:
    found = [answered(TARGET, 32.0), answered(DSSD[0], 20.0, pieces=("a", "x")), answered(AHEAD, 15.0)]
    check_identity(found[:2])
    check_identity(found)
    with pytest.raises(TokensDiffer, match="seed 1"):
        check_identity([*found, answered(AHEAD, 15.0, SLOW, pieces=("a", "x"))])


@pytest.mark.parametrize("plan", [FULL, GRID, SHORT], ids=("full", "grid", "short"))
def test_no_panel_is_crowded(plan: Plan, tmp_path: Path) -> None:
    assert len(DRAWN) < MOST_LINES
    assert len(FAMILIES) <= MOST_LINES
    part = plan.parts[0]
    found = [answered(mode, 20.0, network) for network, modes in part.modes.items() for mode in modes]
    results = Results("methods", tmp_path)
    every = analysis.cells(found, plan)
    draw_speed(results, every, part)
    draw_predictions(results, every)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"methods-tokens-per-second-{part.overlap:g}.png", "methods-predicted.png"}


def test_the_whole_run_measures_what_the_aims_compare() -> None:
    for part in FULL.parts[:2]:
        for network in (SLOW, FAST):
            assert all(mode in part.modes[network] for mode in AIMED)
    assert set(FULL.parts[0].modes) == set(CROSS)


def test_work_beside_the_models_is_timed_piece_by_piece(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("methods-work", tmp_path, short=True)
    work.run(results)
    assert "qsv short index" in capsys.readouterr().out
    measured = results.record["samples"]["work"]["measured"]
    assert {each["method"] for each in measured} == set(work.OPTIONS)
    for each in measured:
        laps = each["microseconds"]
        assert list(laps) == list(work.PIECES)
        assert all(len(times) == work.SHORT.positions // work.LENGTH - 1 for times in laps.values())
        assert min(laps[work.DRAFT]) > 0


@pytest.mark.timeout(300)  # daemons to start, on a busy machine
def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every method answers in full over the emulated link, and what it tells of its bytes is on the line."""
    results = Results("methods", tmp_path, short=True)
    run(results)
    printed = capsys.readouterr().out
    assert "coupled ahead: bytes up per token" in printed
    answers = json.loads(results.write().read_text())["samples"]["answers"]
    (part,) = SHORT.parts
    asked = [DRAFT.name, *(mode.name for modes in part.modes.values() for mode in modes)]
    assert [answer["mode"] for answer in answers] == asked
    for answer in answers:
        assert answer["tokens"] == SHORT.max_tokens
        if answer["mode"] != DRAFT.name:
            up, down = answer["forwarded"]
            assert (up > answer["sent"], down > answer["received"]) == (True, True)
        if answer["mode"] not in (DRAFT.name, TARGET.name):
            assert answer["verify"] >= SHORT.verify_ms
            assert answer["draft_step"] >= SHORT.draft_ms
            assert 1 <= answer["rounds"] < SHORT.max_tokens
    coupled = [answer for answer in answers if answer["mode"] in (TARGET.name, AHEAD.name)]
    assert len({tuple(answer["pieces"]) for answer in coupled}) == 1
