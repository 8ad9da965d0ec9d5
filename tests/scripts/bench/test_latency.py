"""The latency suite: what it makes of answers. How long anything takes is not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from matplotlib.axes import Axes

from common.figures import COLORS, MOST_LINES
from scripts.bench import latency
from scripts.bench.asking import TokensDiffer, ask
from scripts.bench.latency import (
    DEVICE_ONLY,
    PAPER_DEVICE,
    PAPER_GREEDY,
    RACE_DEVICE,
    RACE_DEVICE_CHAIN,
    RACE_MIRRORED,
    TOKEN_WISE,
    Floors,
    Leg,
    Plan,
    check_identity,
    emulated,
    sample,
)
from scripts.bench.measuring import NOTHING
from scripts.bench.results import Results
from scripts.bench.rows import Row, where
from scripts.bench.workload import Texts
from tests.scripts.bench.fake_pair import FakePair
from tests.scripts.bench.published import heads

TOKENS = 10
FLOORS = Floors(20, 10)
PLAN = Plan(floors=(FLOORS,), legs=(Leg(300, 1, (0.3,)), Leg(0, 1, (0.3,))))


REPORT = {
    "tokens": TOKENS,
    "accepted": [[True, position != 4] for position in range(TOKENS)],
    "device": {"acceptance": 1.0, "drafted": 12},
    "cloud": {"acceptance": 0.9, "drafted": 12},
    "switches": 0,
    "sent": {"question": 300, "tokens": 150, "probabilities": 50},
    "received_bytes": 1500,
    "pieces": list("abcdefghij"),
    "prompt_tokens": 0,
    "sources": [],
    "certificate_failures": 1,
}


def answered(mode: str, per_token: float, rtt: float = 300.0, ttft: float = 350.0, **changes: Any) -> Row:
    """An answer of ten tokens, all drafts right but one of the cloud's; `changes` are of fields and of the report."""
    times = {
        "per_token": per_token / 1e3,
        "ttft": ttft / 1e3,
        "seconds": (ttft + (TOKENS - 1) * per_token) / 1e3,
    }
    told = {name: changes.pop(name) for name in REPORT if name in changes}
    setting = {"floors": FLOORS.name, "rtt": rtt, "temperature": 0.3, "mode": mode, "question": 0, "nats": 2.0}
    return setting | sample(REPORT | times | told, FLOORS) | changes


class TestIdentity:
    def test_the_same_tokens_at_every_latency_are_right(self) -> None:
        found = [answered(TOKEN_WISE.name, 310.0)]
        for mode, rtt in ((RACE_DEVICE, 300.0), (RACE_MIRRORED, 0.0)):
            found.append(answered(mode.name, 25.0, rtt=rtt))
            check_identity(found, PLAN)

    def test_another_token_stops_the_run(self) -> None:
        found = [answered(TOKEN_WISE.name, 310.0), answered(RACE_DEVICE.name, 25.0, pieces=list("abcdefghix"))]
        with pytest.raises(TokensDiffer, match=r"question 0, temperature 0\.3: DRDG/TW gave"):
            check_identity(found, PLAN)

    def test_methods_of_another_law_may_differ(self) -> None:
        found = [answered(TOKEN_WISE.name, 310.0), answered("paper/greedy", 25.0, pieces=list("abcdefghix"))]
        check_identity(found, PLAN)


class TestTurns:
    """Of daemons that are not there."""

    TEXTS = Texts({}, tuple(f"Question {number}?" for number in range(9)))

    @pytest.fixture
    def pair(self, monkeypatch: pytest.MonkeyPatch) -> FakePair:
        monkeypatch.setattr(latency, "settle", lambda *known: None)
        return FakePair(REPORT | {"per_token": 0.01, "ttft": 0.1, "seconds": 0.2})

    def timed(self, pair: Any, plan: Plan) -> list[Row]:
        return list(latency.measure(pair, MagicMock(), self.TEXTS, FLOORS, plan, print))

    def test_every_mode_has_read_every_document_before_anything_is_timed(self, pair: FakePair) -> None:
        modes = (DEVICE_ONLY, TOKEN_WISE, RACE_DEVICE)
        plan = replace(PLAN, modes=modes, legs=(Leg(300, 9, (0.3,)),))
        timed = self.timed(pair, plan)
        before = pair.asked[: -len(timed)]
        assert [(question, fields.get("sources"), fields.get("method")) for question, fields in before] == [
            (question, mode.fields.get("sources"), mode.fields.get("method"))
            for question in self.TEXTS.questions
            for mode in modes
        ]
        assert [fields["max_tokens"] for _, fields in before] == [16] * 3 + [1] * 24

    def test_no_mode_is_first_for_one_that_is_not_asked(self, pair: FakePair) -> None:
        """The slow one answers three questions; the two others share the first place at the six that are left."""
        modes = (TOKEN_WISE, RACE_DEVICE, RACE_MIRRORED)
        plan = replace(PLAN, modes=modes, slow=(TOKEN_WISE,), legs=(Leg(300, 9, (0.3,)),))
        timed = self.timed(pair, plan)
        first = [where(timed, question=number)[0]["mode"] for number in range(9)]
        assert first[:3] == [mode.name for mode in modes]
        assert Counter(first[3:]) == {RACE_DEVICE.name: 3, RACE_MIRRORED.name: 3}

    def test_what_the_device_decided_alone_is_no_measurement(self) -> None:
        pair: Any = FakePair({"degraded": [3], "notes": ["The cloud was silent."]})
        with pytest.raises(RuntimeError, match=r"race/device: the device decided tokens \[3\] alone"):
            ask(pair, "What?", RACE_DEVICE)


class TestAnalysis:
    def test_ratios_are_told_with_their_aims(self) -> None:
        found = [
            answered(DEVICE_ONLY.name, 20.0, ttft=50.0),
            answered(TOKEN_WISE.name, 300.0),
            answered("paper/greedy", 60.0),
            answered(RACE_DEVICE.name, 30.0, ttft=420.0),
        ]
        table = latency.ratios(found)
        told = {str(row[0]): row[-1] for row in table.rows}  # of the shortest floors
        assert told["race/device over the limit"] == "1.49 (≤ 2)"  # the context makes a step a little longer
        assert told["DRDG/TW over race/device"] == "10.0 (≥ 8)"
        assert told["paper/greedy over race/device"] == "2.00 (> 1)"
        assert told["TTFT of race/device over device only plus a round trip"] == "1.20 (≤ 1.15)"
        assert told["race/greedy over the limit"] == NOTHING
        assert {row[1] for row in table.rows} == {NOTHING}  # nothing ran there

    def test_ratios_of_whole_answers_count_the_first_token(self) -> None:
        """Of ten tokens: 350 + 9 x 300 over 350 + 9 x 30 milliseconds."""
        found = [answered(TOKEN_WISE.name, 300.0), answered(RACE_DEVICE.name, 30.0)]
        told = {str(row[0]): row[-1] for row in latency.ratios(found, "whole_per_token").rows}
        assert told["DRDG/TW over race/device"] == "4.9 (≥ 8)"
        assert told["race/device over the limit"] == f"{62 / found[0]['limit']:.2f} (≤ 2)"
        assert not any("TTFT" in name for name in told)

    def test_the_document_has_the_tables_that_are_printed(self) -> None:
        found = [answered(mode.name, 30.0) for mode in PLAN.modes]
        assert latency.by_method(found).heads == heads("latency", "Whole answers")
        assert latency.ratios(found).heads == heads("latency", "Ratios after the first token")
        assert latency.ratios(found, "whole_per_token").heads == heads("latency", "Ratios of whole answers")
        assert latency.by_entropy(found).heads == heads("latency-long", "Whole answers")
        assert latency.in_short(found).heads == heads("latency-long", "In short")
        (row,) = latency.by_method(found).rows
        assert row == ["20/10", "0.3", *["62 (30)"] * 6]

    def test_in_short_the_quicker_of_two_placements_counts(self) -> None:
        found = [answered(PAPER_DEVICE.name, 90.0), answered(PAPER_GREEDY.name, 60.0), answered(RACE_DEVICE.name, 30.0)]
        (row,) = latency.in_short(found).rows
        assert row == ["20 / 10", NOTHING, "89 (89-89)", "62 (62-62)", NOTHING, NOTHING]

    def test_whole_answers_are_compared_with_the_slower_sides_steps(self) -> None:
        found = [answered(RACE_DEVICE.name, 30.0), answered(RACE_DEVICE_CHAIN.name, 50.0)]
        (row,) = latency.over_limit(found).rows
        limit = found[0]["limit"]
        whole = (350.0 + 9 * 30.0) / TOKENS
        over = f"{whole / limit:.2f}"
        assert row[:3] == ["20/10", "2", f"{over} ({over}-{over}) (≤ 1.2)"]
        assert row[4:] == [NOTHING, NOTHING]

    def test_the_limit_is_a_line_in_the_context(self) -> None:
        assert Floors(20, 10).limit(0) == 20
        assert Floors(20, 10).limit(1000) == pytest.approx(34)
        assert emulated(10.0) == {"emulate_decode_ms": 10.0, "emulate_context_us": 7.0, "emulate_prompt_ms": 0.2}
        (found,) = [answered(RACE_DEVICE.name, 30.0, prompt_tokens=995)]
        assert f"{found['per_token'] / found['limit']:.2f}" == "0.88"


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
    latency.draw(results, latency.ordered(found, plan), plan)
    assert results.panels.keys() == {"per-token", "ttft"}
    columns = len(plan.floors)
    for name, panels in results.panels.items():
        for axis in panels:
            labels = [str(line.get_label()) for line in axis.lines]
            assert (latency.LIMIT in labels) == (name == "per-token")
            methods = [line for line in axis.lines if line.get_label() != latency.LIMIT]
            assert 0 < len(methods) <= MOST_LINES
            assert len({line.get_color() for line in methods}) == len({line.get_marker() for line in methods})
            assert len({line.get_color() for line in methods} & set(COLORS)) == len(methods)
            assert axis.get_ylim()[0] == 0
        for column in range(columns):
            shown = {str(line.get_label()) for axis in panels[column::columns] for line in axis.lines}
            assert shown - {latency.LIMIT} == {mode.name for mode in plan.modes}
        for axis in panels[columns - 1 :: columns]:
            key = axis.get_legend()
            assert key is not None
            assert key.get_window_extent().x0 > axis.get_window_extent().x1, "the key hides data"
