"""One direction of the link under a clock of the test's own."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.netlab.queueing import MOST_BACKLOG, MOST_PACKETS, LinkQueue
from scripts.netlab.setting import LinkSetting

SETTINGS = st.builds(
    LinkSetting,
    rtt=st.floats(0, 2),
    jitter=st.floats(0, 1),
    uplink=st.none() | st.floats(1e3, 1e7),
    loss=st.sampled_from([0.0, 0.3]),
)


def queue(setting: LinkSetting) -> LinkQueue:
    return LinkQueue(setting.one_way("uplink"), Random(7))


@given(st.lists(st.tuples(st.floats(0, 0.2), SETTINGS), min_size=2, max_size=40), st.integers(0, 2**32))
def test_packets_never_overtake_whatever_the_setting_becomes(
    arrivals: list[tuple[float, LinkSetting]], seed: int
) -> None:
    link = LinkQueue(LinkSetting().one_way("uplink"), Random(seed))
    now, last, offered, came = 0.0, 0.0, [], []
    for number, (pause, setting) in enumerate(arrivals):
        now += pause
        link.setting = way = setting.one_way("uplink")
        packet = bytes([number])
        departure = link.offer(now, packet)
        if departure is not None:
            assert departure >= now + way.delay * (1 - way.jitter)
            assert departure >= last
            last = departure
            offered.append(packet)
        came += link.due(now)
    while link.next is not None:
        came += link.due(link.next)
    assert came == offered


def test_a_packet_leaves_when_it_is_due_and_not_before() -> None:
    link = queue(LinkSetting(rtt=0.3))
    idle = link.next
    assert idle is None
    assert link.offer(10.0, b"first") == 10.15
    assert link.offer(10.1, b"second") == pytest.approx(10.25)
    assert link.next == 10.15
    assert link.due(math.nextafter(10.15, 0)) == []
    assert link.due(10.15) == [b"first"]
    assert link.due(11.0) == [b"second"]


def test_jitter_is_uniform_between_its_bounds() -> None:
    link = queue(LinkSetting(rtt=0.2, jitter=0.25))
    delays = []
    for number in range(4000):  # so far apart that none waits for another one
        departure = link.offer(float(number), b"x")
        assert departure is not None
        delays.append(departure - number)
        link.due(number + 0.5)
    assert 0.075 <= min(delays) < 0.0755
    assert 0.1245 < max(delays) <= 0.125
    # The mean of 4000 has a standard deviation of 0.025 / sqrt(3 * 4000) = 0.00023; the seed is fixed.
    assert sum(delays) / len(delays) == pytest.approx(0.1, abs=0.001)
    assert sum(delay < 0.0875 for delay in delays) / len(delays) == pytest.approx(0.25, abs=0.03)


def test_loss_is_the_share_that_was_set() -> None:
    link = queue(LinkSetting(loss=0.2))
    lost = sum(link.offer(float(number), b"x") is None for number in range(4000))
    assert lost / 4000 == pytest.approx(0.2, abs=0.02)  # three standard deviations; the seed is fixed
    link.setting = LinkSetting(loss=1.0).one_way("uplink")
    assert all(link.offer(5000.0 + number, b"x") is None for number in range(50))


def test_rate_spaces_packets_by_their_size() -> None:
    link = queue(LinkSetting(rtt=0.2, uplink=10_000))
    assert [link.offer(0.0, bytes(size)) for size in (1000, 500, 1000)] == pytest.approx([0.2, 0.25, 0.35])
    assert link.offer(9.0, bytes(1000)) == pytest.approx(9.2)  # an idle link has nothing to catch up with


def test_rate_has_a_buffer_that_ends() -> None:
    link = queue(LinkSetting(uplink=10_000))
    taken = [link.offer(0.0, bytes(1000)) for _ in range(40)]
    assert sum(departure is not None for departure in taken) == MOST_BACKLOG * 10 + 1  # the last one just fits
    assert link.offer(1.0, bytes(1000)) is not None


def test_what_is_under_way_is_bounded() -> None:
    link = queue(LinkSetting(rtt=60.0))
    assert all(link.offer(0.0, b"x") is not None for _ in range(MOST_PACKETS))
    assert link.offer(0.0, b"x") is None


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("rtt", -0.001, "0 to 60000 ms, not -1"),
        ("rtt", 300.0, "not 300000"),
        ("rtt", math.nan, "not nan"),
        ("jitter", 1.5, "share of the delay"),
        ("uplink", 0.0, "the uplink must have at least 0.8 kb/s, not 0"),
        ("downlink", math.inf, "the downlink must have at least 0.8 kb/s, not inf"),
        ("downlink", math.nan, "not nan"),
        ("loss", -0.1, "probability"),
        ("loss", math.nan, "probability"),
    ],
)
def test_settings_that_mean_nothing_are_refused(field: str, value: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        LinkSetting(**{field: value})


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_expected_quantiles_are_those_of_two_independent_delays(share: float) -> None:
    setting, random = LinkSetting(rtt=0.3, jitter=0.2), Random(1)
    trips = sorted(sum(0.15 * (1 + 0.2 * random.uniform(-1, 1)) for _ in range(2)) for _ in range(20_000))
    assert setting.round_trip_quantile(share) == pytest.approx(trips[int(share * len(trips))], abs=0.001)
    assert setting.round_trip_quantile(1.0) == pytest.approx(0.36)
