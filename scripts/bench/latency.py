"""The suites `latency` and `latency-long`: every method against the latency of an emulated link (DRAGON Fig. 6 and 7).

Two real daemons in the network lab are asked every question by every method in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, zip_longest
from typing import Any, Final

from common.figures import REFERENCE
from scripts.bench.asking import (
    ANY,
    PATIENT,
    WARM_UP,
    Mode,
    answered,
    ask,
    check_same,
    filled,
    in_turn,
    make_mode,
    own_folder,
    settle,
)
from scripts.bench.measuring import INTERVALS, MEDIANS, NOTHING, Spread, Table
from scripts.bench.results import Results
from scripts.bench.rows import Cell, Row, Value, grid, groups, lines, pivot, spread, table, values, where
from scripts.bench.synthetic_model import make_model
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting, sinusoid

DEVICE_ONLY = make_mode("device only", sources="device")
TOKEN_WISE = make_mode("DRDG/TW", exact=True, method="token-wise")
PAPER_DEVICE = make_mode("paper/device", sampler="paper", placement="device")
PAPER_GREEDY = make_mode("paper/greedy", sampler="paper", placement="greedy")
RACE_DEVICE, RACE_GREEDY, RACE_MIRRORED = RACES = tuple(
    make_mode(f"race/{placement}", exact=True, placement=placement) for placement in ("device", "greedy", "mirrored")
)
RACE_DEVICE_CHAIN, RACE_MIRRORED_CHAIN = (
    make_mode(f"race/{placement}, no branches", exact=True, placement=placement, branches=1)
    for placement in ("device", "mirrored")
)
MODES = (
    DEVICE_ONLY,
    make_mode("cloud only", sources="cloud"),
    make_mode("DRCG/text", method="fetch-text"),
    make_mode("DRCG/KV", method="fetch-kv"),
    TOKEN_WISE,
    make_mode("DRDG/SW", method="sequence-wise"),
    PAPER_DEVICE,
    make_mode("paper/cloud", sampler="paper", placement="cloud"),
    PAPER_GREEDY,
    make_mode("paper/random", sampler="paper", placement="random"),
    *RACES,
)

# Emulated hardware is slower in the proportions of the embedded model: what 1,000 tokens of context add to a step of 4
# rows, and what a token of a prompt takes, or of a branch in one row, in steps without context.
CONTEXT_STEPS: Final = 0.7
PROMPT_STEPS: Final = 0.02
LONGEST_LEG: Final = 7200.0  # seconds
SHORTEST: Final = 6  # tokens; the mean over fewer gaps says little
SLOW_QUESTIONS: Final = 3


def emulated(milliseconds: float) -> dict[str, float]:
    """Settings of a daemon whose steps without context take so long."""
    return {
        "emulate_decode_ms": milliseconds,
        "emulate_context_us": milliseconds * CONTEXT_STEPS,
        "emulate_prompt_ms": milliseconds * PROMPT_STEPS,
    }


@dataclass(frozen=True, slots=True)
class Floors:
    """Emulated hardware: a decode step without context takes at least so many milliseconds."""

    device: float
    cloud: float

    def limit(self, context: float) -> float:
        """Milliseconds per token that a network without latency would give, at `context` tokens per row."""
        return max(self.device, self.cloud) * (1.0 + CONTEXT_STEPS * context / 1e3)

    @property
    def name(self) -> str:
        return f"{self.device:g}/{self.cloud:g}"


@dataclass(frozen=True, slots=True)
class Leg:
    """One added latency: how many of the questions are asked there, at which temperatures."""

    rtt: float  # milliseconds, added by the link
    questions: int
    temperatures: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run. The link's latency swings by `jitter` of itself, as in §7.2."""

    floors: tuple[Floors, ...] = (Floors(150, 50), Floors(50, 50), Floors(20, 10))
    legs: tuple[Leg, ...] = (Leg(300, 20, (0.3, 1.0)), *(Leg(rtt, 8, (0.3,)) for rtt in (200, 100, 0)))
    modes: tuple[Mode, ...] = MODES
    jitter: float = 0.2
    own: float = 0.003  # seconds of round trip that loopback and daemons have without any link
    max_tokens: int = 48
    seed: int = 9
    entropy: float | None = None  # nats of a synthetic model whose answers never end; None: the embedded model
    slow: tuple[Mode, ...] = ()  # asked the first few questions only: their answers take minutes, and are all alike

    def law(self, question: int, temperature: float, tokens: int) -> dict[str, Any]:
        """Returns a question's law; it has a seed of its own where the model's answers depend on nothing else."""
        seed = self.seed if self.entropy is None else self.seed + question
        return {"temperature": temperature, "seed": seed, "max_tokens": tokens}


SHORT: Final = Plan(floors=(Floors(15, 10),), legs=(Leg(60, 1, (0.3,)), Leg(0, 1, (0.3,))), max_tokens=8, own=ANY)
# Answers as long as asked for, of models that hesitate: one plan for each entropy.
ENTROPIES: Final = (1.0, 2.0, 3.0)
SHOWN_LONG: Final = (TOKEN_WISE, PAPER_DEVICE, PAPER_GREEDY, *RACES, DEVICE_ONLY)
LONG: Final = Plan(
    floors=(Floors(50, 50), Floors(20, 10)),
    legs=(Leg(300, 10, (1.0,)),),
    modes=(DEVICE_ONLY, *SHOWN_LONG[:-1], RACE_DEVICE_CHAIN, RACE_MIRRORED_CHAIN),
    max_tokens=200,
    slow=(TOKEN_WISE, PAPER_DEVICE, PAPER_GREEDY),
)
SHORT_LONG: Final = replace(
    SHORT, legs=(Leg(60, 1, (1.0,)),), modes=(DEVICE_ONLY, TOKEN_WISE, RACE_DEVICE, RACE_DEVICE_CHAIN), max_tokens=20
)
MIDDLE: Final = 2.0  # nats, of the model that README tells of


def run(results: Results) -> None:
    """Measure, check that the race's tokens are the same everywhere, and draw Fig. 6 and 7."""
    plan = SHORT if results.short else Plan()
    rows = results.measured(grid(quickest=(True, False)), lambda case: measured(plan, results.say, **case))
    rows = ordered(rows, plan)
    draw(results, rows, plan)
    far = where(rows, rtt=max(leg.rtt for leg in plan.legs))
    results.table("Whole answers, ms per token", by_method(far), "In brackets after the first token.")
    results.table("Ratios after the first token", ratios(far))
    results.table("Ratios of whole answers", ratios(far, "whole_per_token"))


def run_long(results: Results) -> None:
    """The same with answers of 200 tokens, of synthetic models that hesitate."""
    plan = SHORT_LONG if results.short else LONG
    entropies = ENTROPIES[:1] if results.short else ENTROPIES

    def measure_one(case: Row) -> list[Row]:
        return measured(replace(plan, entropy=case["nats"]), results.say, case["quickest"])

    found = results.measured(grid(nats=entropies, quickest=(True, False)), measure_one)
    rows = [row for nats in entropies for row in ordered(where(found, nats=nats), plan)]
    middle = min(entropies, key=lambda nats: abs(nats - MIDDLE))
    results.table("In short: whole answers, ms per token", in_short(where(rows, nats=middle)), MEDIANS)
    results.table("Whole answers by entropy, ms per token", by_entropy(rows), MEDIANS)
    results.table("Over the slower side's steps, whole answers", over_limit(rows), MEDIANS)


# --- measuring


def measured(plan: Plan, say: Callable[[str], None], quickest: bool) -> list[Row]:
    """The pair with the shortest floors by itself: the processor's own time counts there. The others side by side,
    since long floors leave it idle most of the time. Raises `TokensDiffer`.
    """
    first, *others = sorted(plan.floors, key=lambda floors: floors.limit(0.0))
    chosen = [first] if quickest else others
    with ThreadPoolExecutor(max(len(chosen), 1)) as pool:
        parts = list(pool.map(partial(_demonstration, plan=plan, say=say), chosen))
    return [row for part in parts for row in part]


def _demonstration(floors: Floors, plan: Plan, say: Callable[[str], None]) -> list[Row]:
    """All legs of `plan` with the embedded model or a synthetic one."""
    texts = Texts.draw_joint(max(leg.questions for leg in plan.legs))
    with own_folder() as folder:
        model = {} if plan.entropy is None else make_model(folder, plan.entropy)
        device, cloud = ({**model, **emulated(floor)} for floor in (floors.device, floors.cloud))
        with (
            filled(texts) as data,
            NetLab(LinkSetting()) as lab,
            Pair(data, {**device, **PATIENT}, cloud, lab=lab) as pair,
        ):
            return list(measure(pair, lab, texts, floors, plan, say))


def measure(
    pair: Pair, lab: NetLab, texts: Texts, floors: Floors, plan: Plan, say: Callable[[str], None]
) -> Iterator[Row]:
    """All legs of `plan` with one pair of daemons in its lab. Raises `TokensDiffer`."""
    # Every mode has read every question's documents before: none pays for what those after it find read.
    for number, question in enumerate(texts.questions):
        tokens = 1 if number else min(WARM_UP, plan.max_tokens)
        for mode in plan.modes:
            ask(pair, question, mode, **plan.law(number, 0.0, tokens))
    found: list[Row] = []
    for leg in plan.legs:
        lab.replay(sinusoid(LinkSetting(rtt=leg.rtt / 1e3), LONGEST_LEG, plan.jitter))
        settle(pair, lambda: lab.setting.rtt, plan.own)
        for number, temperature in product(range(leg.questions), leg.temperatures):
            asked = [mode for mode in plan.modes if number < SLOW_QUESTIONS or mode not in plan.slow]
            for mode in in_turn(asked, number):
                report = ask(pair, texts.questions[number], mode, **plan.law(number, temperature, plan.max_tokens))
                setting = {"floors": floors.name, "rtt": leg.rtt, "temperature": temperature}
                found.append(setting | {"mode": mode.name, "question": number} | sample(report, floors))
                check_identity(found, plan)
                yield found[-1]
        lab.stop_replay()
        say(f"{floors.name} ms, {leg.rtt:g} ms added: done by {lab.kind}")


def sample(report: Mapping[str, Any], floors: Floors) -> Row:
    """An answer's row, with the milliseconds per token that a network without latency would give."""
    row = answered(report)
    prompt = float(report["prompt_tokens"]) / max(1, len(report["sources"]))  # of a row, on the average
    limit = floors.limit(prompt + row["tokens"] / 2)
    per_token = row["whole"] / row["tokens"]  # of the whole answer, as the paper has it (§7.3)
    return row | {"whole_per_token": per_token, "limit": limit, "over_limit": per_token / limit}


def check_identity(found: Sequence[Row], plan: Plan) -> None:
    """Raises `TokensDiffer` where the newest answer is exact, and another exact one of its question is not the same."""
    exact, newest = {mode.name for mode in plan.modes if mode.exact}, found[-1]
    if newest["mode"] in exact:
        same = where(found, question=newest["question"], temperature=newest["temperature"])
        check_same([row for row in same if row["mode"] in exact], "question", "temperature")


# --- tables


def ordered(rows: Sequence[Row], plan: Plan) -> list[Row]:
    """Rows as the plan has them; answers too short to have a mean are left out."""
    floors, modes = [each.name for each in plan.floors], [mode.name for mode in plan.modes]
    rtts = [leg.rtt for leg in plan.legs]

    def place(row: Row) -> tuple[int, int, float, int]:
        return floors.index(row["floors"]), rtts.index(row["rtt"]), row["temperature"], modes.index(row["mode"])

    return sorted((row for row in rows if row["tokens"] >= min(SHORTEST, plan.max_tokens)), key=place)


def _by_mode(rows: Sequence[Row], index: Mapping[str, str], cell: Cell, modes: Sequence[Mode]) -> Table:
    return pivot(rows, index, "mode", cell, [mode.name for mode in modes])


def by_method(rows: Sequence[Row]) -> Table:
    """Whole answers, in brackets after the first token; milliseconds per token."""

    def shown(those: list[Row]) -> str:
        whole, per_token = (Spread.of(values(those, each)).median for each in ("whole_per_token", "per_token"))
        return f"{whole:.0f} ({per_token:.0f})"

    modes = (TOKEN_WISE, PAPER_GREEDY, *RACES, DEVICE_ONLY)
    return _by_mode(rows, {"floors, ms": "floors", "T": "temperature"}, shown, modes)


LONG_ROWS: Final = {"floors, ms": "floors", "nats": "nats"}


def by_entropy(rows: Sequence[Row]) -> Table:
    """Whole answers of models that have so many nats, milliseconds per token."""
    return _by_mode(rows, LONG_ROWS, spread("whole_per_token"), SHOWN_LONG)


# At most so many times the slower side's steps, with branches.
AIMS_LONG: Final = {
    ("20/10", "race/device"): 1.2,
    ("20/10", "race/mirrored"): 1.1,
    ("50/50", "race/device"): 1.1,
    ("50/50", "race/mirrored"): 1.05,
}


def over_limit(rows: Sequence[Row]) -> Table:
    """Whole answers of the race over the slower side's steps alone, with branches and without."""

    def shown(those: list[Row]) -> str:
        aim = AIMS_LONG.get((those[0]["floors"], those[0]["mode"]))
        return f"{spread('over_limit', 2)(those)}" + (f" (≤ {aim:g})" if aim else "")

    return _by_mode(rows, LONG_ROWS, shown, (RACE_DEVICE, RACE_DEVICE_CHAIN, RACE_MIRRORED, RACE_MIRRORED_CHAIN))


# Columns of README: the quickest of these modes.
IN_SHORT: Final = {
    "token by token": (TOKEN_WISE,),
    "DRAGON's sampler": (PAPER_DEVICE, PAPER_GREEDY),
    "`strict`": (RACE_DEVICE,),
    "`balanced`": (RACE_MIRRORED,),
    "device alone": (DEVICE_ONLY,),
}


def in_short(rows: Sequence[Row]) -> Table:
    """Whole answers, milliseconds per token: for people who don't know the methods."""

    def quickest(modes: Sequence[Mode]) -> Cell:
        def shown(those: list[Row]) -> str | None:
            samples = [found for mode in modes if (found := values(where(those, mode=mode.name), "whole_per_token"))]
            return min(map(Spread.of, samples), key=lambda spread: spread.median).short() if samples else None

        return shown

    named = [row | {"steps": row["floors"].replace("/", " / ")} for row in rows]
    columns = {head: quickest(modes) for head, modes in IN_SHORT.items()}
    return table(named, {"ms a decode step, device / cloud": "steps"}, columns)


HARDWARE: Final = tuple(floors.name for floors in Plan().floors)
At = tuple[Mode, Value]  # the median of a value among a mode's rows
# A mode, what it is over (None: the slower side's step), digits, and the aims of each hardware, at 300 ms.
RATIOS: Final[tuple[tuple[Mode, Mode | None, int, Sequence[str]], ...]] = (
    (RACE_DEVICE, None, 2, ("≤ 1.05", "≤ 1.5", "≤ 2")),
    (RACE_GREEDY, None, 2, ()),
    (RACE_MIRRORED, None, 2, ("≤ 1.05", "≤ 1.3", "≤ 1.6")),
    (TOKEN_WISE, RACE_DEVICE, 1, ("≥ 2.2", "≥ 4.5", "≥ 8")),
    (TOKEN_WISE, RACE_GREEDY, 1, ()),
    (TOKEN_WISE, RACE_MIRRORED, 1, ()),
    (PAPER_GREEDY, RACE_DEVICE, 2, ("> 1", "> 1", "> 1")),
    (PAPER_GREEDY, RACE_GREEDY, 2, ()),
    (PAPER_GREEDY, RACE_MIRRORED, 2, ()),
)


def ratios(rows: Sequence[Row], timed: str = "per_token") -> Table:
    """Ratios of medians by floors, at all temperatures; of what follows the first token also those of the first one."""
    asked: list[tuple[str, At, At, int, Sequence[str]]] = [
        (f"{one.name} over {other.name}", (one, timed), (other, timed), digits, aims)
        if other
        else (f"{one.name} over the limit", (one, timed), (one, "limit"), digits, aims)
        for one, other, digits, aims in RATIOS
    ]
    if timed == "per_token":
        what, later = "TTFT of race/device over device only plus a round trip", (DEVICE_ONLY, _heard_of)
        asked.append((what, (RACE_DEVICE, "ttft"), later, 2, ("≤ 1.15", "≤ 1.15", "≤ 1.15")))
    cells = groups(rows, "floors", "temperature", "mode")
    temperatures = sorted({row["temperature"] for row in rows})

    def middles(floors: str, at: At) -> list[float | None]:
        found = [values(cells.get((floors, each, at[0].name), ()), at[1]) for each in temperatures]
        return [Spread.of(samples).median if samples else None for samples in found]

    def shown(floors: str, one: At, other: At, digits: int, aim: str) -> str:
        pairs = zip(middles(floors, one), middles(floors, other), strict=True)
        told = " / ".join(f"{top / bottom:.{digits}f}" for top, bottom in pairs if top and bottom)
        return f"{told} ({aim})" if told and aim else told or NOTHING

    told = [
        [what, *(shown(floors, one, other, digits, aim) for floors, aim in zip_longest(HARDWARE, aims, fillvalue=""))]
        for what, one, other, digits, aims in asked
    ]
    return Table(["ratio (aim)", *(f"{floors} ms" for floors in HARDWARE)], told)


def _heard_of(row: Row) -> float:
    return float(row["ttft"] + row["rtt"])


# --- pictures

# Rows of panels: in each a family of methods, and the number of each one's line; a placement has the same line in every
# panel. The race stands beside the best of the paper's.
FAMILIES: Final = {
    "One side, fetched documents": {"device only": 0, "cloud only": 1, "DRCG/text": 2, "DRCG/KV": 3},
    "Synchronous, the paper's": {
        "DRDG/TW": 3,
        "DRDG/SW": 4,
        "paper/device": 0,
        "paper/cloud": 1,
        "paper/random": 2,
        "paper/greedy": 5,
    },
    "The race": {"race/device": 0, "race/greedy": 3, "race/mirrored": 4, "paper/greedy": 5},
}
LIMIT: Final = "limit: no network"


def draw(results: Results, rows: Sequence[Row], plan: Plan) -> None:
    """Time per token and time to the first token, against the added round trip: Fig. 6 and 7."""
    drawn = where(rows, temperature=plan.legs[0].temperatures[0])
    for name, what, unit, value in (
        ("per-token", "Time per token of the whole answer", "ms per token", "whole_per_token"),
        ("ttft", "Time to the first token", "ms", "ttft"),
    ):
        title = f"{what} by method: medians and their {INTERVALS}. Every panel has a scale of its own"
        with results.figure(name, columns=len(plan.floors), rows=len(FAMILIES), title=title) as axes:
            for axis, ((family, numbers), floors) in zip(axes, product(FAMILIES.items(), plan.floors), strict=True):
                lines(axis, where(drawn, floors=floors.name), "rtt", value, "mode", numbers)
                if name == "per-token":
                    limit = Spread.of(values(where(rows, floors=floors.name), "limit")).median
                    axis.axhline(limit, label=LIMIT, **REFERENCE)
                axis.set_ylim(bottom=0)
                if floors is plan.floors[0]:
                    axis.set_ylabel(f"{family}\n{unit}")
                if family == next(iter(FAMILIES)):
                    axis.set_title(f"decode: device {floors.device:g} ms, cloud {floors.cloud:g} ms")
            for axis in axes[-len(plan.floors) :]:
                axis.set_xlabel("added round trip, ms")
