"""Turns answers into the figures' lines, the ratios and how far they are from the aims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scripts.bench.asking import Mode
from scripts.bench.latency.plan import (
    DEVICE_ONLY,
    PAPER_DEVICE,
    PAPER_GREEDY,
    RACE_DEVICE,
    RACE_DEVICE_CHAIN,
    RACE_GREEDY,
    RACE_MIRRORED,
    RACE_MIRRORED_CHAIN,
    TOKEN_WISE,
    Plan,
)
from scripts.bench.measuring import NOTHING, Spread, Table
from scripts.bench.rows import Cell, Row, groups, pivot, spread, table, values, where

SHORTEST = 6  # tokens; the mean over fewer gaps says little

RACES = (RACE_DEVICE, RACE_GREEDY, RACE_MIRRORED)
SHOWN = (TOKEN_WISE, PAPER_GREEDY, *RACES, DEVICE_ONLY)
SHOWN_LONG = (TOKEN_WISE, PAPER_DEVICE, PAPER_GREEDY, *RACES, DEVICE_ONLY)
# Columns of README: the quickest of these modes.
IN_SHORT = {
    "token by token": (TOKEN_WISE,),
    "DRAGON's sampler": (PAPER_DEVICE, PAPER_GREEDY),
    "`strict`": (RACE_DEVICE,),
    "`balanced`": (RACE_MIRRORED,),
    "device alone": (DEVICE_ONLY,),
}
AIMS_LONG = {
    ("20/10", RACE_DEVICE.name): 1.2,
    ("20/10", RACE_MIRRORED.name): 1.1,
    ("50/50", RACE_DEVICE.name): 1.1,
    ("50/50", RACE_MIRRORED.name): 1.05,
}
LONG_ROWS = {"floors, ms": "floors", "nats": "nats"}
HARDWARE = tuple(floors.name for floors in Plan().floors)


def ordered(rows: Sequence[Row], plan: Plan) -> list[Row]:
    """Rows as the plan has them; answers too short to have a mean are left out."""
    floors, modes = [each.name for each in plan.floors], [mode.name for mode in plan.modes]
    rtts = [leg.rtt for leg in plan.legs]

    def place(row: Row) -> tuple[int, int, float, int]:
        return floors.index(row["floors"]), rtts.index(row["rtt"]), row["temperature"], modes.index(row["mode"])

    return sorted((row for row in rows if row["tokens"] >= min(SHORTEST, plan.max_tokens)), key=place)


def _names(modes: Sequence[Mode]) -> list[str]:
    return [mode.name for mode in modes]


def by_method(rows: Sequence[Row]) -> Table:
    """Whole answers, in brackets after the first token; milliseconds per token."""

    def shown(those: list[Row]) -> str:
        whole, per_token = (Spread.of(values(those, each)).median for each in ("whole_per_token", "per_token"))
        return f"{whole:.0f} ({per_token:.0f})"

    return pivot(rows, {"floors, ms": "floors", "T": "temperature"}, "mode", shown, _names(SHOWN))


def by_entropy(rows: Sequence[Row]) -> Table:
    """Whole answers of models that have so many nats, milliseconds per token."""
    return pivot(rows, LONG_ROWS, "mode", spread("whole_per_token"), _names(SHOWN_LONG))


def in_short(rows: Sequence[Row]) -> Table:
    """Whole answers, milliseconds per token: for people who don't know the methods."""

    def quickest(modes: Sequence[Mode]) -> Cell:
        def shown(those: list[Row]) -> str | None:
            found = [spread for mode in modes if (spread := _whole(where(those, mode=mode.name)))]
            return min(found, key=lambda spread: spread.median).short() if found else None

        return shown

    named = [row | {"steps": row["floors"].replace("/", " / ")} for row in rows]
    columns = {head: quickest(modes) for head, modes in IN_SHORT.items()}
    return table(named, {"ms a decode step, device / cloud": "steps"}, columns)


def _whole(rows: list[Row]) -> Spread | None:
    return Spread.of(values(rows, "whole_per_token")) if rows else None


def over_limit(rows: Sequence[Row]) -> Table:
    """Whole answers of the race over the slower side's steps alone, with branches and without."""

    def shown(those: list[Row]) -> str:
        aim = AIMS_LONG.get((those[0]["floors"], those[0]["mode"]))
        return f"{spread('over_limit', 2)(those)}" + (f" (≤ {aim:g})" if aim else "")

    modes = (RACE_DEVICE, RACE_DEVICE_CHAIN, RACE_MIRRORED, RACE_MIRRORED_CHAIN)
    return pivot(rows, LONG_ROWS, "mode", shown, _names(modes))


Medians = Callable[[str, Mode], float]  # of a field, by a mode; raises `KeyError` where it was not asked


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of one setting's medians, of the field that is timed, and what it should be, by floors."""

    name: str
    of: Callable[[Medians, str], float]
    aims: Mapping[str, str] = field(default_factory=dict)
    digits: int = 2


def _aims(*aims: str) -> dict[str, str]:
    return dict(zip(HARDWARE, aims, strict=True))


def _limited(mode: Mode, aims: Mapping[str, str] | None = None) -> Ratio:
    return Ratio(f"{mode.name} over the limit", lambda at, timed: at(timed, mode) / at("limit", mode), aims or {})


def _over(one: Mode, other: Mode, aims: Mapping[str, str] | None = None, digits: int = 2) -> Ratio:
    return Ratio(
        f"{one.name} over {other.name}", lambda at, timed: at(timed, one) / at(timed, other), aims or {}, digits
    )


# At 300 ms: most that the race may take per token, over the slower side's step, and how much less than DRDG/TW.
RATIOS = (
    _limited(RACE_DEVICE, _aims("≤ 1.05", "≤ 1.5", "≤ 2")),
    _limited(RACE_GREEDY),
    _limited(RACE_MIRRORED, _aims("≤ 1.05", "≤ 1.3", "≤ 1.6")),
    _over(TOKEN_WISE, RACE_DEVICE, _aims("≥ 2.2", "≥ 4.5", "≥ 8"), 1),
    _over(TOKEN_WISE, RACE_GREEDY, digits=1),
    _over(TOKEN_WISE, RACE_MIRRORED, digits=1),
    _over(PAPER_GREEDY, RACE_DEVICE, dict.fromkeys(HARDWARE, "> 1")),
    _over(PAPER_GREEDY, RACE_GREEDY),
    _over(PAPER_GREEDY, RACE_MIRRORED),
)
FIRST = Ratio(
    "TTFT of race/device over device only plus a round trip",
    lambda at, _: at("ttft", RACE_DEVICE) / (at("ttft", DEVICE_ONLY) + at("rtt", DEVICE_ONLY)),
    dict.fromkeys(HARDWARE, "≤ 1.15"),
)


def ratios(rows: Sequence[Row]) -> Table:
    """Each ratio of what follows the first token, and that of the first ones, by floors, at all temperatures."""
    return _ratios(rows, (*RATIOS, FIRST), "per_token")


def whole_ratios(rows: Sequence[Row]) -> Table:
    """The same of whole answers."""
    return _ratios(rows, RATIOS, "whole_per_token")


def _ratios(rows: Sequence[Row], asked: Sequence[Ratio], timed: str) -> Table:
    cells = groups(rows, "floors", "temperature", "mode")
    temperatures = sorted({row["temperature"] for row in rows})

    def found(ratio: Ratio, floors: str, temperature: float) -> float | None:
        def middle(of: str, mode: Mode) -> float:
            return Spread.of(values(cells[floors, temperature, mode.name], of)).median

        try:
            return ratio.of(middle, timed)
        except KeyError:
            return None

    def shown(ratio: Ratio, floors: str) -> str:
        known = [each for each in (found(ratio, floors, t) for t in temperatures) if each is not None]
        told = " / ".join(f"{each:.{ratio.digits}f}" for each in known)
        aim = f" ({ratio.aims[floors]})" if floors in ratio.aims else ""
        return f"{told}{aim}" if told else NOTHING

    lines = [[ratio.name, *(shown(ratio, floors) for floors in HARDWARE)] for ratio in asked]
    return Table(["ratio (aim)", *(f"{floors} ms" for floors in HARDWARE)], lines)
