"""Tables that the suite `scheduling` makes of simulated answers."""

from __future__ import annotations

import pytest

from scripts.bench import scheduling
from scripts.bench.plan import Plan

pytestmark = pytest.mark.suite


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
