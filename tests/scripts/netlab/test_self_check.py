"""The self-check judges its samples."""

from __future__ import annotations

import pytest

from scripts.netlab.queueing import MOST_BACKLOG, PACKET
from scripts.netlab.self_check import MOST, Check, Train, report, train_of
from scripts.netlab.setting import KILOBIT, Direction, LinkSetting

SETTING = LinkSetting(rtt=0.1, jitter=0.2)
SLOW = LinkSetting(rtt=0.1, uplink=40 * KILOBIT)  # 5,000 bytes per second
QUICK = Train("uplink", 0.001, 99 * PACKET), Train("downlink", 0.001, 99 * PACKET)


@pytest.mark.parametrize(
    ("setting", "samples", "good"),
    [
        (SETTING, (0.085, 0.104, 0.12), True),
        (SETTING, (0.085, 0.107, 0.12), False),
        (SETTING, (0.085, 0.093, 0.12), False),
        (LinkSetting(), (0.0009,), True),
        (LinkSetting(), (0.0011,), False),
        (SETTING, (), False),
        (LinkSetting(loss=1.0), (), True),
    ],
)
def test_the_median_decides(setting: LinkSetting, samples: tuple[float, ...], good: bool) -> None:
    check = Check(setting, 4, samples, QUICK)
    assert check.good is good
    assert ("DOES NOT" in report(check)) is not good
    assert f"4, of which {4 - len(samples)} did not come back" in report(check)


@pytest.mark.parametrize(
    ("setting", "sample", "good"),
    [
        (LinkSetting(rtt=0.1, uplink=1000, downlink=1000), 0.284, True),  # 92 bytes each way take 0.184 s
        (LinkSetting(rtt=0.1, uplink=1000, downlink=1000), 0.192, False),
        (LinkSetting(rtt=0.1, downlink=1000), 0.192, True),
        (LinkSetting(rtt=0.1, uplink=1000), 0.1, False),
    ],
)
def test_round_trips_take_the_sending_each_way(setting: LinkSetting, sample: float, good: bool) -> None:
    way = setting.one_way
    trains = tuple(Train(each, 900 / (way(each).rate or 1e9), 900) for each in ("uplink", "downlink"))
    assert Check(setting, 1, (sample,), trains).good is good  # type: ignore[arg-type]  # two of them


@pytest.mark.parametrize(
    ("setting", "train", "good"),
    [
        (SLOW, Train("uplink", 0.72, 3600), True),
        (SLOW, Train("uplink", 0.758, 3600), False),
        (SLOW, Train("uplink", 0.682, 3600), False),
        (SLOW, Train("downlink", 0.72, 3600), False),  # the uplink's rate, where there is no limit
        (SLOW, Train("downlink", 0.003, 3600), True),
        (LinkSetting(rtt=0.1, jitter=0.2, uplink=5000), Train("uplink", 0.77, 3600), True),  # 20 ms of jitter
        (SLOW, Train("uplink", 0.0, 0), False),
        (LinkSetting(loss=0.9), Train("uplink", 0.0, 0), True),
    ],
)
def test_each_direction_has_its_rate(setting: LinkSetting, train: Train, good: bool) -> None:
    assert train.good(setting) is good
    direction: Direction = "downlink" if train.direction == "uplink" else "uplink"
    other = Train(direction, 3600 / (setting.one_way(direction).rate or 1e7), 3600)
    assert other.good(setting)
    check = Check(setting, 1, (setting.round_trip_quantile(0.5, 92),), (train, other))
    assert check.good is good
    assert f"{train.direction:9} " + ("not" if train.rate is None else f"{train.rate / 125:,.1f} kb/s") in report(check)


@pytest.mark.parametrize("rate", [None, 100.0, 1e3, 5e3, 2e4, 1.25e6, 1.25e9])
def test_a_train_fits_into_the_buffer(rate: float | None) -> None:
    count, size = train_of(rate)
    assert 2 <= count <= MOST and size <= PACKET
    assert rate is None or (count - 1) * size / rate <= MOST_BACKLOG
    assert rate is None or rate < 1e3 or count >= 10
