"""The self-check judges its samples."""

from __future__ import annotations

import pytest

from scripts.netlab.self_check import Check, report
from scripts.netlab.setting import LinkSetting

SETTING = LinkSetting(rtt=0.1, jitter=0.2)


@pytest.mark.parametrize(
    ("setting", "samples", "good"),
    [
        (SETTING, (0.085, 0.104, 0.12), True),
        (SETTING, (0.085, 0.107, 0.12), False),
        (SETTING, (0.085, 0.093, 0.12), False),
        (LinkSetting(), (0.0009,), True),
        (LinkSetting(), (0.0011,), False),
        (LinkSetting(rtt=0.1, rate=1000), (0.284,), True),  # 92 bytes each way take 0.184 s
        (LinkSetting(rtt=0.1, rate=1000), (0.1,), False),
        (SETTING, (), False),
        (LinkSetting(loss=1.0), (), True),
    ],
)
def test_the_median_decides(setting: LinkSetting, samples: tuple[float, ...], good: bool) -> None:
    check = Check(setting, 4, samples)
    assert check.good is good
    assert ("DOES NOT" in report(check)) is not good
    assert f"4, of which {4 - len(samples)} did not come back" in report(check)
