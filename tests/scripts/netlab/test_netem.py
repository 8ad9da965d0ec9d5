"""The orders to netem, on machines that have it and those that don't."""

from __future__ import annotations

import subprocess

import pytest

from scripts.netlab.lab import OUTWARD, netem_options
from scripts.netlab.setting import KILOBIT, LinkSetting
from tests.support.missing import skip_without


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        # Always with a rate: without one, jitter would reorder; what is left out would keep its old value.
        (LinkSetting(), "limit 20000 delay 0us 0us loss 0.000000% rate 100000000000bit -14"),
        (
            LinkSetting(rtt=0.3, jitter=0.2, uplink=1.5e6, loss=0.015),
            "limit 1150 delay 150000us 30000us loss 1.500000% rate 12000000bit -14",
        ),
        (LinkSetting(uplink=100, loss=1.0), "limit 10 delay 0us 0us loss 100.000000% rate 800bit -14"),
    ],
)
def test_netem_is_told_everything(setting: LinkSetting, options: str) -> None:
    assert netem_options(setting.line("up")) == options.split()


def test_each_end_is_told_the_rate_of_what_it_sends() -> None:
    setting = LinkSetting(uplink=40 * KILOBIT, downlink=10_000 * KILOBIT)
    rates = {side: netem_options(setting.line(direction))[-2] for side, direction in OUTWARD.items()}
    assert rates == {"device": "40000bit", "cloud": "10000000bit"}


@pytest.mark.parametrize(
    ("options", "understood"),
    [(netem_options(LinkSetting(0.3, 0.2, 1e6, None, 0.1).line("up")), True), (["loss", "much"], False)],
)
def test_tc_understands_it(options: list[str], understood: bool) -> None:
    """Arguments are read before the device is looked for; the second case is the counter-example."""
    try:
        done = subprocess.run(
            ["tc", "qdisc", "add", "dev", "none", "root", "netem", *options], capture_output=True, text=True
        )
    except FileNotFoundError:
        skip_without("tc", "apt-get install iproute2")
    assert ("Cannot find device" in done.stderr) is understood
