"""The suite of methods that draft and verify: what it makes of answers. How long anything takes is not tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.figures import MOST_LINES
from scripts.bench.asking import Mode, TokensDiffer
from scripts.bench.measuring import NOTHING
from scripts.bench.methods import suite
from scripts.bench.methods.plan import (
    AHEAD,
    AIMED,
    CROSS,
    DRAFT,
    DSSD,
    DSSD_GOODPUT,
    EAGER,
    FAST,
    FULL,
    GRID,
    NO_NETWORK,
    QSV_FIXED_INDEX,
    SHORT,
    SLOW,
    TARGET,
    Network,
    Part,
    Plan,
    setting,
)
from scripts.bench.methods.suite import (
    DRAWN,
    ENCRYPTED,
    FAMILIES,
    check_identity,
    chunk,
    draw_predictions,
    draw_speed,
    foreseen,
    per_second,
    predicted,
    sample,
    steps,
)
from scripts.bench.results import Results
from scripts.bench.rows import Row
from tests.scripts.bench.published import heads

TOKENS = 101
PLAN = Plan((Part(0.9, dict.fromkeys((SLOW, FAST), (*AIMED, DSSD_GOODPUT, EAGER)), seeds=(1, 2)),))

FLOORS = steps([], PLAN)


def answered(mode: Mode, per_token: float, network: Network = FAST, **changes: Any) -> Row:
    """Twenty rounds of four tokens, of which three are accepted; `changes` are of the report and of its figures."""
    ttft = float(changes.pop("ttft", 200.0))
    figures = {"rounds": 20, "proposals": 20, "proposed_per_round": 4.0, "undrafted": 0}
    figures |= {name: changes.pop(name) for name in figures if name in changes}
    report = {
        "seed": 1,
        "tokens": TOKENS,
        "per_token": per_token / 1e3,
        "ttft": ttft / 1e3,
        "seconds": (ttft + (TOKENS - 1) * per_token) / 1e3,
        "sent": {"question": 300, "tokens": 950, "probabilities": 50},
        "received_bytes": 400,
        "figures": {} if mode in (TARGET, DRAFT) else figures,
        "device": {
            "acceptance": 0.75,
            "drafted": changes.pop("drafted", 80),
            "accepted": changes.pop("accepted", TOKENS - 20),
        },
        "cloud": {"acceptance": None},
        "pieces": ["a", "b"],
    }
    at = {"step": PLAN.verify_ms, "part": 0, "overlap": 0.9}
    return at | setting(mode) | network.row | sample(report | changes, (2500, 2000))


def seen(*rows: Row) -> list[Row]:
    return foreseen(rows, PLAN)


class TestPrediction:
    def test_a_round_is_drafts_a_pass_the_round_trip_and_the_bytes(self) -> None:
        decided = 1 + 0.75 + 0.75**2 + 0.75**3 + 0.75**4
        transmission = 1e3 * (1000 / 20 + ENCRYPTED) / 5_000
        expected = (4 * 5 + 32 + 50 + transmission) / decided
        found = predicted(answered(DSSD[0], 30.0, SLOW), *FLOORS)
        assert found == pytest.approx(expected * (TOKENS - decided) / (TOKENS - 1))

    def test_a_length_between_two_is_rounds_of_both(self) -> None:
        times = [predicted(answered(DSSD[0], 30.0, proposed_per_round=length), *FLOORS) for length in (4.0, 4.5, 5.0)]
        assert min(times[0], times[2]) < times[1] < max(times[0], times[2])

    def test_chunks_that_are_drafted_ahead_are_more_than_rounds(self) -> None:
        answer = answered(AHEAD, 15.0, drafted=200, proposals=40)
        assert chunk(answer) == 5.0
        assert predicted(answer, *FLOORS) < predicted(answer | setting(DSSD[0]), *FLOORS)

    def test_one_model_alone_takes_what_it_took(self) -> None:
        alone = [answered(TARGET, time) for time in (33.0, 35.0, 34.0)]
        assert steps(alone, PLAN) == (PLAN.draft_ms, 34.0)

    def test_one_model_alone_takes_its_floor(self) -> None:
        assert predicted(answered(TARGET, 33.0), *FLOORS) == PLAN.verify_ms
        assert predicted(answered(DRAFT, 5.3, NO_NETWORK), *FLOORS) == PLAN.draft_ms
        assert predicted(answered(AHEAD, 33.0, rounds=0, undrafted=10), *FLOORS) == PLAN.verify_ms

    @pytest.mark.parametrize(("mode", "left"), [(DSSD[0], {"accepted": TOKENS - 30}), (AHEAD, {"undrafted": 10})])
    def test_tokens_that_are_left_to_the_target_take_its_steps(self, mode: Mode, left: dict[str, int]) -> None:
        some, none = (predicted(answered(mode, 30.0, SLOW, **changed), *FLOORS) for changed in (left, {}))
        assert some == pytest.approx(none + 10 * (PLAN.verify_ms - none) / (TOKENS - 1), rel=0.02)


class TestPace:
    def test_tokens_that_come_with_the_first_one_are_not_counted(self) -> None:
        """Twenty verdicts, each .1 s behind the other and of five tokens: fifty tokens in a second."""
        rounds: dict[str, Any] = {"tokens": 100, "ttft": 200.0, "seconds": 0.2 + 19 * 0.1, "accepted": 80}
        for mode in (DSSD[0], AHEAD):
            assert per_second(answered(mode, 0.0, **rounds)) == pytest.approx(50.0)

    def test_tokens_that_are_left_to_the_target_come_one_by_one(self) -> None:
        """Ten verdicts of five tokens and fifty tokens of the target, all twenty milliseconds apart from each other."""
        left: dict[str, Any] = {"tokens": 100, "ttft": 200.0, "seconds": 0.2 + 9 * 0.1 + 50 * 0.02, "rounds": 10}
        drafted = answered(DSSD[0], 0.0, **left, accepted=40, undrafted=55)
        assert per_second(drafted) == pytest.approx(50.0)
        assert per_second(answered(AHEAD, 0.0, **left, undrafted=50)) == pytest.approx(50.0)

    def test_the_target_alone_tells_one_token_after_the_other(self) -> None:
        assert per_second(answered(TARGET, 32.0)) == pytest.approx(31.25)


class TestAims:
    def found(self, ahead: float = 10.0, goodput: float = 20.0) -> dict[str, tuple[str, str]]:
        answers = [answered(TARGET, 32.0)]
        for network in (SLOW, FAST):
            answers += [answered(mode, time, network) for mode, time in zip(DSSD, (22.0, 20.0, 21.0), strict=True)]
            answers += [answered(mode, 30.0, network) for mode in QSV_FIXED_INDEX]
            answers += [answered(AHEAD, ahead, network), answered(DSSD_GOODPUT, goodput, network)]
        rows = suite.aims(seen(*answers)).rows
        return {str(row[0]).rpartition(":")[2].strip(): (str(row[2]), str(row[3])) for row in rows}

    def test_the_best_rival_counts(self) -> None:
        found = self.found()
        assert found["coupled ahead over the best dssd γ 4, 6, 8"] == ("2.00", "met")
        assert found["coupled ahead over the best qsv, fixed index"] == ("3.00", "met")
        slower = self.found(ahead=19.0)
        assert slower["coupled ahead over the best dssd γ 4, 6, 8"] == ("1.05", "missed")

    def test_bytes_of_both_ways(self) -> None:
        found = self.found()
        assert found["bytes up per token"] == ("9.9 to 9.9", "missed")
        assert found["bytes down per token"] == ("4.0 to 4.0", "met")

    def test_a_policy_is_compared_with_the_best_fixed_length_of_its_method(self) -> None:
        assert self.found()["dssd goodput over the best fixed length"][1] == "met"
        told, met = self.found(goodput=25.0)["dssd goodput over the best fixed length"]
        assert told.startswith("0 of 2 networks; 0.80 at")
        assert met == "missed"

    def test_answers_with_the_same_seeds_are_compared(self) -> None:
        """Of nine seeds one is a lucky one, and the only one that coupled drafting was asked with."""
        rivals = [answered(DSSD[0], 10.0 if seed == 1 else 20.0, seed=seed) for seed in range(1, 10)]
        rows = seen(*rivals, answered(AHEAD, 8.0, seed=1), answered(DSSD[1], 1.0, seed=2))
        every = suite.cells(rows)
        ours, nine, other = (every[0.9, FAST.name, mode.name] for mode in (AHEAD, *DSSD[:2]))
        assert suite.times(ours, nine) == pytest.approx(per_second(ours[0]) / per_second(nine[0]))
        assert suite.times(ours, other) is None
        assert suite.over_best(ours, [nine, other]) == suite.times(ours, nine)
        assert suite.over_best(ours, [other]) is None
        told = {str(row[0]): row[2] for row in suite.aims(rows).rows}
        named = f"overlap 0.9, {FAST.name}: coupled ahead over the best dssd γ 4, 6, 8"
        assert told[named] == f"{suite.times(ours, nine):.2f}"

    def test_predictions_are_counted(self) -> None:
        told, met = self.found()["measured over predicted time"]
        assert " of 15 cells" in told
        assert met == "missed"


def test_whole_answers_are_compared_with_the_target_s_on_the_same_network() -> None:
    table = suite.whole_table([answered(TARGET, 20.0), answered(AHEAD, 10.0, ttft=400.0), answered(TARGET, 30.0, SLOW)])
    assert table.heads == heads("methods-whole", "Whole answers")
    # 200 + 100 x 20 over 400 + 100 x 10 milliseconds
    told = "2,200; first 200", NOTHING, "1,400, 1.57 (1.57-1.57); 200", NOTHING, NOTHING
    assert list(table.rows[0]) == [FAST.name, *told]


def test_eager_answers_are_compared_with_streaming() -> None:
    table = suite.eager_table([answered(TARGET, 20.0), answered(EAGER, 10.0), answered(AHEAD, 10.0)])
    assert table.heads[:2] == heads("methods-eager", "Eager answers")[:2]
    assert table.rows == [["32 ms", "0.9", "1.83 (1.83-1.83); 0"]]  # 2,200 over 1,200 milliseconds


def test_methods_are_lines_and_networks_columns() -> None:
    rows = seen(answered(TARGET, 32.0), answered(AHEAD, 16.0), answered(AHEAD, 20.0, SLOW))
    table = suite.by_method(rows)
    assert table.heads == heads("methods", "Methods on the networks")
    assert table.rows[1] == [AHEAD.name, "9.9 / 4.0", "0.75", "20", "48.0 (48-48), 1.54", "60.0 (60-60), 1.92"]
    by_network = suite.by_network(rows)
    assert by_network.heads == heads("methods", "Tokens per second by network")
    assert [len(by_network.rows), by_network.rows[0][2]] == [1, NOTHING]
    grid = suite.grid_table(rows)
    assert grid.heads == heads("methods-grid", "Tokens per second by rate")
    assert [row[:3] for row in grid.rows] == [["40 kb/s", "25 ms", NOTHING], ["100 Mb/s", "25 ms", "31"]]


def test_another_token_of_a_coupled_answer_stops_the_run() -> None:
    found = [answered(TARGET, 32.0), answered(DSSD[0], 20.0, pieces=["a", "x"]), answered(AHEAD, 15.0)]
    check_identity(found[:2])
    check_identity(found)
    with pytest.raises(TokensDiffer, match="seed 1"):
        check_identity([*found, answered(AHEAD, 15.0, SLOW, pieces=["a", "x"])])


@pytest.mark.parametrize("plan", [FULL, GRID, SHORT], ids=("full", "grid", "short"))
def test_no_panel_is_crowded(plan: Plan, tmp_path: Path) -> None:
    assert len(DRAWN) < MOST_LINES
    assert len(FAMILIES) <= MOST_LINES
    part = plan.parts[0]
    found = foreseen([answered(mode, 20.0, at) for at, modes in part.modes.items() for mode in modes], plan)
    results = Results("methods", tmp_path)
    draw_speed(results, found)
    draw_predictions(results, found)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"methods-tokens-per-second-0.9.png", "methods-predicted.png"}


def test_the_whole_run_measures_what_the_aims_compare() -> None:
    for part in FULL.parts[:2]:
        for network in (SLOW, FAST):
            assert all(mode in part.modes[network] for mode in AIMED)
    assert set(FULL.parts[0].modes) == set(CROSS)
