"""The latency suite: what it makes of answers. How long anything takes is not tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from common.drawing import COLORS, MOST_LINES
from scripts.bench.latency import analysis, placements, prediction, suite
from scripts.bench.latency.measure import Answered, TokensDiffer, check_identity
from scripts.bench.latency.plan import (
    DEVICE_ONLY,
    PLACEMENTS,
    RACE_DEVICE,
    RACE_MIRRORED,
    SHORT_LONG,
    TOKEN_WISE,
    Floors,
    Leg,
    Plan,
    emulated,
)
from scripts.bench.latency.suite import measured, run
from scripts.bench.results import Results
from scripts.netlab.namespaces import Namespace, Unavailable

pytestmark = pytest.mark.suite

TOKENS = 10
FLOORS = Floors(20, 10)
PLAN = Plan(floors=(FLOORS,), legs=(Leg(300, 1, (0.3,)), Leg(0, 1, (0.3,))))


def answered(mode: str, per_token: float, rtt: float = 300.0, ttft: float = 350.0, **changes: object) -> Answered:
    """An answer of ten tokens, all drafts right but one of the cloud's."""
    answer = Answered(
        FLOORS.name,
        rtt,
        0.3,
        0,
        mode,
        TOKENS,
        per_token,
        ttft + (TOKENS - 1) * per_token,
        ttft,
        rtt,
        (1.0, 0.9),
        tuple((True, position != 4) for position in range(TOKENS)),
        (None,) * TOKENS,
        0,
        (12, 12),
        200,
        1500,
        tuple("abcdefghij"),
        (),
    )
    return replace(answer, **changes)  # type: ignore[arg-type]


class TestIdentity:
    def test_the_same_tokens_at_every_latency_are_right(self) -> None:
        found = [answered(TOKEN_WISE.name, 310.0)]
        for mode, rtt in ((RACE_DEVICE, 300.0), (RACE_MIRRORED, 0.0)):
            found.append(answered(mode.name, 25.0, rtt=rtt))
            check_identity(found, PLAN)

    def test_another_token_stops_the_run(self) -> None:
        found = [answered(TOKEN_WISE.name, 310.0), answered(RACE_DEVICE.name, 25.0, pieces=tuple("abcdefghix"))]
        with pytest.raises(TokensDiffer, match="question 0"):
            check_identity(found, PLAN)

    def test_methods_of_another_law_may_differ(self) -> None:
        found = [answered(TOKEN_WISE.name, 310.0), answered("paper/greedy", 25.0, pieces=tuple("abcdefghix"))]
        check_identity(found, PLAN)


class TestAnalysis:
    def test_aims_are_told_against_the_limit_and_the_other_methods(self) -> None:
        found = [
            answered(DEVICE_ONLY.name, 20.0, ttft=50.0),
            answered(TOKEN_WISE.name, 300.0),
            answered("paper/greedy", 60.0),
            answered(RACE_DEVICE.name, 30.0, ttft=420.0),
        ]
        told = {str(row[3]): (row[4], row[5]) for row in analysis.aims(found, PLAN).rows}
        assert told["per token / limit"] == ("<= 2", "1.49")  # the context makes a step a little longer
        assert told["DRDG/TW / this"] == (">= 8", "10.0")
        assert told["paper/greedy / this"] == ("> 1", "2.00")
        assert told["TTFT / (device only + RTT)"] == ("<= 1.15", "1.20")

    def test_the_limit_is_a_line_in_the_context(self) -> None:
        assert Floors(20, 10).limit(0) == 20
        assert Floors(20, 10).limit(1000) == pytest.approx(34)
        assert emulated(10.0) == {"emulate_decode_ms": 10.0, "emulate_context_us": 7.0, "emulate_prompt_ms": 0.2}
        found = [answered(RACE_DEVICE.name, 30.0, prompt=995.0)]
        assert str(analysis.table(found, PLAN).rows[0][7]) == "0.88"

    def test_a_row_for_every_method_and_setting(self) -> None:
        found = [answered(mode.name, 30.0, rtt=leg.rtt) for mode in PLAN.modes for leg in PLAN.legs]
        table = analysis.table(found, PLAN)
        assert len(table.rows) == len(found)
        assert {row[8] for row in table.rows} == {"1.00 / 0.90"}


class TestPrediction:
    def test_one_rejection_costs_a_round_trip(self) -> None:
        found = [answered(mode.name, 30.0) for mode in (TOKEN_WISE, RACE_DEVICE)]
        token_wise, race = prediction.predict(found, PLAN)
        assert token_wise.simulated == pytest.approx(311 + 2, rel=0.03)
        # The first token and the one after the rejection take a round trip, the others a step of the slower side.
        assert race.simulated == pytest.approx((2 * 312 + 7 * 20) / TOKENS, rel=0.1)

    def test_without_a_record_of_both_sides_there_is_no_prediction(self) -> None:
        unseen = tuple((True, None) for _ in range(TOKENS))
        assert prediction.predict([answered(TOKEN_WISE.name, 30.0, accepted=unseen)], PLAN) == []


@dataclass
class KeptPanels(Results):
    """Results that keep the panels of their figures."""

    panels: dict[str, list[Axes]] = field(default_factory=dict)

    @contextmanager
    def figure(self, name: str, columns: int = 1, rows: int = 1, *, title: str) -> Iterator[list[Axes]]:
        with super().figure(name, columns, rows, title=title) as axes:
            self.panels[name] = axes
            yield axes


def test_every_method_is_drawn_and_no_panel_is_crowded(tmp_path: Path) -> None:
    plan = Plan()
    found = [
        answered(mode.name, 30.0, rtt=leg.rtt, floors=floors.name)
        for floors, leg, mode in product(plan.floors, plan.legs, plan.modes)
    ]
    results = KeptPanels("latency", tmp_path)
    suite.draw(results, found, plan)
    assert results.panels.keys() == {"per-token", "ttft"}
    columns = len(plan.floors)
    for name, panels in results.panels.items():
        for axis in panels:
            labels = [str(line.get_label()) for line in axis.lines]
            assert (suite.LIMIT in labels) == (name == "per-token")
            methods = [line for line in axis.lines if line.get_label() != suite.LIMIT]
            assert 0 < len(methods) <= MOST_LINES
            assert len({line.get_color() for line in methods}) == len({line.get_marker() for line in methods})
            assert len({line.get_color() for line in methods} & set(COLORS)) == len(methods)
            assert axis.get_ylim()[0] == 0
        for column in range(columns):
            shown = {str(line.get_label()) for axis in panels[column::columns] for line in axis.lines}
            assert shown - {suite.LIMIT} == {mode.name for mode in plan.modes}
        for axis in panels[columns - 1 :: columns]:
            key = axis.get_legend()
            assert key is not None
            assert key.get_window_extent().x0 > axis.get_window_extent().x1, "the key hides data"


def need_a_lab() -> None:
    try:
        Namespace().close()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(300)  # daemons to start, on a busy machine
def test_a_short_run_in_the_lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_a_lab()
    results = Results("latency", tmp_path, short=True)
    run(results)
    assert "race/mirrored" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"latency-per-token.png", "latency-ttft.png"}


@pytest.mark.timeout(300)  # daemons to start, on a busy machine
def test_long_answers_and_placements_of_a_model_that_hesitates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run for both suites. Every strategy gives the same tokens, or it would have stopped."""
    need_a_lab()
    plan = replace(SHORT_LONG, modes=SHORT_LONG.modes + PLACEMENTS.modes)
    found: list[Answered] = []

    def once(plan: Plan, say: Callable[[str], None]) -> list[Answered]:
        found.extend([] if found else measured(plan, say))
        return found

    monkeypatch.setattr(suite, "SHORT_LONG", plan)
    monkeypatch.setattr(placements, "SHORT_PLACEMENTS", replace(plan, modes=PLACEMENTS.modes, entropy=1.0))
    for module in (suite, placements):
        monkeypatch.setattr(module, "measured", once)
    long = Results("latency-long", tmp_path, short=True)
    suite.run_long(long)
    placements.run(Results("scheduling-link", tmp_path, short=True))
    printed = capsys.readouterr().out
    assert "synthetic model of 1 nats" in printed
    assert "Placements on a real link" in printed
    answers = long.record["samples"]["answers, synthetic model of 1 nats"]
    assert {answer["tokens"] for answer in answers} == {SHORT_LONG.max_tokens}
    ours = [answer for answer in answers if answer["mode"] in {mode.name for mode in PLACEMENTS.modes}]
    assert {answer["mode"] for answer in ours} == {mode.name for mode in PLACEMENTS.modes}
    assert len({tuple(answer["pieces"]) for answer in ours}) == 1
    assert any(not right for answer in ours for row in answer["accepted"] for right in row if right is not None)
