"""The suite `scheduling`: time for 100 tokens by placement and added latency, simulated (DRAGON Fig. 8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import sqrt
from statistics import fmean, stdev

from common.figures import line_style
from proto.fields import Placement
from scripts.bench.measuring import Table
from scripts.bench.parallel import in_processes
from scripts.bench.plan import Plan
from scripts.bench.results import PLACEMENT_LINES, Results
from scripts.simulation.acceptance import AcceptanceModel, InARow, Phases, Rates, load_record
from scripts.simulation.scenario import Scenario, simulate
from scripts.simulation.timing import DecodeTime, Sinusoid, Way

BASE_RTT = 0.002  # seconds; what §7.1 measured on its network

# What a strategy is: the placement, and whether `greedy` is the paper's (Eq. 6).
STRATEGIES: dict[str, tuple[Placement, bool]] = {
    "device": ("device", False),
    "cloud": ("cloud", False),
    "random": ("random", False),
    "greedy, Eq. 6": ("greedy", True),
    "greedy": ("greedy", False),
}
OTHERS = tuple(name for name in STRATEGIES if name != "greedy")

REGIMES: dict[str, AcceptanceModel] = {
    "Algorithm 1 (.85/.86, both .73)": Rates(0.85, 0.86, 0.73),
    "disagreeing (.48/.48, both .03)": Rates(0.48, 0.48, 0.03),
    "device right more often (.9/.6)": Rates.independent(0.9, 0.6),
    "cloud right more often (.6/.9)": Rates.independent(0.6, 0.9),
    "taking turns every 25 tokens (.95/.6)": Phases((Rates.independent(0.95, 0.6), Rates.independent(0.6, 0.95)), 25),
}
RECORDED = {  # what the suite `acceptance` wrote down
    "recorded, embedded model": "race-4-documents-per-side-temperature-1.json",
    "recorded, synthetic distributions of 3 nats": "race-synthetic-3-nats-temperature-1.json",
}


FULL = Plan(
    steps=((150, 50), (50, 50), (20, 10), (50, 100)), rtts=(0, 100, 200, 300, 400, 500), questions=50, tokens=100
)
SHORT = Plan(steps=((50, 50), (20, 10)), rtts=(0, 300), questions=2, tokens=20)


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of one curve."""

    regime: str
    device: float
    cloud: float
    extra: float
    strategy: str


def run(results: Results) -> None:
    """Simulate every setting; tables, samples and one figure for each kind of acceptance."""
    plan = SHORT if results.short else FULL
    regimes = REGIMES | _recorded(results)
    settings = [
        Setting(regime, *pair, extra, strategy)
        for regime, pair, extra, strategy in product(regimes, plan.steps, plan.rtts, STRATEGIES)
    ]
    models = [regimes[setting.regime] for setting in settings]
    seconds: dict[Setting, list[float]] = {}
    times = in_processes(answer_times, settings, models, [plan] * len(settings))
    for number, (setting, values) in enumerate(zip(settings, times, strict=True)):
        seconds[setting] = values
        if number % 100 == 0:
            results.say(f"{number} of {len(settings)} settings")
    samples = [{"setting": setting, "seconds": values} for setting, values in seconds.items()]
    results.samples("seconds", {"base_rtt_ms": 1e3 * BASE_RTT, "jitter": "sinusoid, 1/5, 20 pi s", "answers": samples})
    for regime in regimes:
        results.table(f"Seconds for {plan.tokens} tokens: {regime}", _table(plan, regime, seconds))
        _draw(results, plan, regime, seconds)
    results.table("`greedy` against every other strategy", _verdict(plan, regimes, seconds))


def _recorded(results: Results) -> dict[str, AcceptanceModel]:
    found: dict[str, AcceptanceModel] = {}
    for regime, name in RECORDED.items():
        path = results.folder / "acceptance" / name
        if path.exists():
            found[regime] = InARow(load_record(path).answers)
        else:
            results.say(f"nothing {regime}: {path} is missing, which the suite acceptance writes")
    return found


def answer_times(setting: Setting, model: AcceptanceModel, plan: Plan) -> list[float]:
    """Seconds of each answer. All strategies replay the same sequences, each after the same earlier one."""
    placement, paper_rule = STRATEGIES[setting.strategy]
    device, cloud = (DecodeTime.constant(step / 1e3) for step in (setting.device, setting.cloud))
    way = Way(BASE_RTT, setting.extra / 1e3, Sinusoid())
    return [
        simulate(
            Scenario(
                device,
                cloud,
                way,
                model,
                placement,
                plan.tokens,
                paper_rule=paper_rule,
                earlier=model.draw(plan.tokens, plan.questions + number),
            ),
            number,
        ).seconds
        for number in range(plan.questions)
    ]


def excess(greedy: list[float], other: list[float]) -> tuple[float, float]:
    """Mean and standard error of the paired differences greedy - other, seconds."""
    differences = [one - two for one, two in zip(greedy, other, strict=True)]
    return fmean(differences), stdev(differences) / sqrt(len(differences))


def _table(plan: Plan, regime: str, seconds: dict[Setting, list[float]]) -> Table:
    rows = []
    for pair, extra in product(plan.steps, plan.rtts):
        means = [fmean(seconds[Setting(regime, *pair, extra, name)]) for name in STRATEGIES]
        rows.append([f"{pair[0]:g} / {pair[1]:g}", f"{extra:g}", *(f"{mean:.2f}" for mean in means)])
    return Table(["decode ms, device / cloud", "extra ms", *STRATEGIES], rows)


def _verdict(plan: Plan, regimes: Iterable[str], seconds: dict[Setting, list[float]]) -> Table:
    """Counts settings that greedy loses by more than two standard errors and half a percent, with the worst ratio."""
    rows = []
    for name in OTHERS:
        lost, ratios = 0, []
        for regime, pair, extra in product(regimes, plan.steps, plan.rtts):
            greedy, other = (seconds[Setting(regime, *pair, extra, which)] for which in ("greedy", name))
            mean, error = excess(greedy, other)
            ratios.append(fmean(greedy) / fmean(other))
            lost += mean > 2 * error + 0.005 * fmean(other)
        rows.append([name, f"{len(ratios) - lost} of {len(ratios)}", f"{fmean(ratios):.2f}", f"{max(ratios):.3f}"])
    heads = ["greedy against", "matched or beaten", "mean ratio of times", "worst"]
    return Table(heads, rows)


def _draw(results: Results, plan: Plan, regime: str, seconds: dict[Setting, list[float]]) -> None:
    name = regime.split(" (")[0].replace(",", "").replace(" ", "-").lower()
    title = f"Simulated time for {plan.tokens} tokens by placement; acceptance: {regime}"
    with results.figure(name, columns=len(plan.steps), title=title) as panels:
        for axes, pair in zip(panels, plan.steps, strict=True):
            for strategy in STRATEGIES:
                means = [fmean(seconds[Setting(regime, *pair, extra, strategy)]) for extra in plan.rtts]
                axes.plot(plan.rtts, means, label=strategy, **line_style(PLACEMENT_LINES[strategy]))
            axes.set_title(f"decode: device {pair[0]:g} ms, cloud {pair[1]:g} ms")
            axes.set_xlabel("extra latency, ms")
            axes.set_ylim(bottom=0)
        panels[0].set_ylabel(f"time for {plan.tokens} tokens, s")
