"""The suite `theory`: the speed-up of Theorem 6.2 (DRAGON Fig. 4), and where the simulator finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from common.estimates.cost import speed_up
from common.figures import line_style
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.simulation.acceptance import Rates
from scripts.simulation.scenario import Scenario, StepCosts, simulate
from scripts.simulation.timing import DecodeTime, Way

CLOUD = 0.05  # seconds of the cloud's decode step
DEVICE_ALPHA = 0.85  # by Corollary 6.5 it does not matter
ALPHAS = (0.3, 0.6, 0.9)
IDEAL = StepCosts(0.0, 0.0)  # the theorem knows of no other work

NOTE = (
    "Theorem 6.2 takes a rejection's wait as it comes (Eq. 7). Where the device is the slower side it drafts on "
    "meanwhile, and decides at the cloud's pace until that lead is used up: there the simulated speed-up is higher, "
    "the more so the more often the device's own drafts are accepted (against Corollary 6.5)."
)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: seconds and a share, and the two ratios."""

    rtt: float
    alpha: float
    device: float
    theorem: float
    simulated: float


def run(results: Results) -> None:
    """Simulate `device` against the synchronous exchange; both ratios side by side, and the curves."""
    rtts = (0.3,) if results.short else (0.1, 0.3, 0.6)
    devices = (0.02, 0.15) if results.short else (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)
    answers, tokens = (1, 60) if results.short else (8, 200)
    found: dict[tuple[float, float, float], float] = {}
    for rtt, alpha, device in product(rtts, ALPHAS, devices):
        found[rtt, alpha, device] = simulated(device, CLOUD, rtt, alpha, answers, tokens)
    results.say(f"{len(found)} points simulated")
    points = [Point(*at, speed_up(at[2], CLOUD, at[0], at[1]), ratio) for at, ratio in found.items()]
    results.samples("points", {"cloud": CLOUD, "device_alpha": DEVICE_ALPHA, "answers": answers, "points": points})
    columns: dict[str, Callable[[Point], object]] = {
        "RTT ms": lambda point: f"{1e3 * point.rtt:g}",
        "cloud's acceptance": lambda point: point.alpha,
        "device decode ms": lambda point: f"{1e3 * point.device:g}",
        "Theorem 6.2": lambda point: f"{point.theorem:.2f}",
        "simulated": lambda point: f"{point.simulated:.2f}",
        "difference": lambda point: f"{point.simulated / point.theorem - 1:+.0%}",
    }
    title = f"Speed-up over token-wise exchange, cloud decode {1e3 * CLOUD:g} ms"
    results.table(title, Table.of(points, columns), NOTE)
    title = (
        f"Speed-up over token-wise exchange by share of the cloud's drafts accepted; cloud's step {1e3 * CLOUD:g} ms"
    )
    with results.figure("speed-up", columns=len(rtts), title=title) as panels:
        for axes, rtt in zip(panels, rtts, strict=True):
            for number, alpha in enumerate(ALPHAS):
                grid = [devices[0] + (devices[-1] - devices[0]) * step / 200 for step in range(201)]
                axes.plot(
                    [1e3 * device for device in grid],
                    [speed_up(device, CLOUD, rtt, alpha) for device in grid],
                    label=f"Theorem 6.2, {alpha:.0%}",
                    **line_style(number) | {"marker": ""},
                )
                axes.plot(
                    [1e3 * device for device in devices],
                    [found[rtt, alpha, device] for device in devices],
                    label=f"simulated, {alpha:.0%}",
                    **line_style(number) | {"linestyle": ""},
                )
            axes.set_title(f"round trip {1e3 * rtt:g} ms")
            axes.set_xlabel("device's decode step, ms")
            axes.set_ylim(bottom=0)
        panels[0].set_ylabel("speed-up, times")


def simulated(device: float, cloud: float, rtt: float, alpha: float, answers: int, tokens: int) -> float:
    """Latency per token of the synchronous exchange over that of speculation, the device aggregating."""
    rates = Rates.independent(DEVICE_ALPHA, alpha)
    steps = DecodeTime.constant(device), DecodeTime.constant(cloud)

    def latency(synchronous: bool, count: int) -> float:
        scenario = Scenario(*steps, Way(rtt), rates, "device", tokens, synchronous, work=IDEAL)
        return fmean(simulate(scenario, seed).per_token for seed in range(count))

    return latency(True, 1) / latency(False, answers)
