"""Turns answers into the figures' lines, the ratios and how far they are from the aims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scripts.bench.asking import Mode
from scripts.bench.latency.measure import Answered
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
    Floors,
    Plan,
)
from scripts.bench.measuring import Spread, Table, grouped

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
HARDWARE = tuple(floors.name for floors in Plan().floors)


@dataclass(frozen=True, slots=True)
class Cell:
    """One method at one setting."""

    floors: Floors
    rtt: float
    temperature: float
    mode: str
    answers: tuple[Answered, ...]

    def spread(self, of: Callable[[Answered], float]) -> Spread:
        return Spread.of([of(answer) for answer in self.answers])

    @property
    def per_token(self) -> Spread:
        return self.spread(lambda answer: answer.per_token)

    @property
    def whole(self) -> Spread:
        """Time from the request to the last token, per token, as the paper has it (§7.3)."""
        return self.spread(lambda answer: answer.whole / answer.tokens)

    @property
    def limit(self) -> float:
        """Milliseconds per token without a network."""
        return self.floors.limit(self.spread(lambda answer: answer.context).median)

    @property
    def over_limit(self) -> Spread:
        """Whole answers over what the slower side's steps alone would take."""
        return self.spread(lambda answer: answer.whole / answer.tokens / self.floors.limit(answer.context))

    @property
    def ttft(self) -> Spread:
        return self.spread(lambda answer: answer.ttft)


def cells(found: Sequence[Answered], plan: Plan) -> dict[tuple[str, float, float, str], Cell]:
    """Cells by (floors, added round trip, temperature, mode); answers too short to have a mean are left out."""
    long = [one for one in found if one.tokens >= min(SHORTEST, plan.max_tokens)]
    those = grouped(long, lambda one: (one.floors, one.rtt, one.temperature, one.mode))
    return {
        setting: Cell(floors, leg.rtt, temperature, mode.name, tuple(those[setting]))
        for floors in plan.floors
        for leg in plan.legs
        for temperature in leg.temperatures
        for mode in plan.modes
        if (setting := (floors.name, leg.rtt, temperature, mode.name)) in those
    }


def table(found: Sequence[Answered], plan: Plan) -> Table:
    """Every method at every setting."""
    columns: dict[str, Callable[[Cell], object]] = {
        "floors, ms": lambda cell: cell.floors.name,
        "added RTT, ms": lambda cell: f"{cell.rtt:g}",
        "T": lambda cell: f"{cell.temperature:g}",
        "method": lambda cell: cell.mode,
        "whole answer, ms per token": lambda cell: cell.whole.text(0),
        "TTFT, ms": lambda cell: cell.ttft.text(0),
        "after the first token, ms per token": lambda cell: cell.per_token.text(0),
        "/ limit": lambda cell: f"{cell.per_token.median / cell.limit:.2f}",
        "accepted, device / cloud": _acceptance,
        "bytes per token": lambda cell: f"{cell.spread(lambda one: (one.sent + one.received) / one.tokens).median:.0f}",
        "answers": lambda cell: len(cell.answers),
    }
    return Table.of(cells(found, plan).values(), columns)


def farthest(found: Sequence[Answered], plan: Plan) -> dict[tuple[str, float, str], Cell]:
    """Cells at the largest added round trip, by (floors, temperature, mode)."""
    most = max(leg.rtt for leg in plan.legs)
    return {(floors, t, mode): cell for (floors, rtt, t, mode), cell in cells(found, plan).items() if rtt == most}


def by_method(found: Sequence[Answered], plan: Plan) -> Table:
    """Whole answers at the largest added round trip, in brackets after the first token; milliseconds per token."""
    every = farthest(found, plan)
    rows = {(floors, f"{t:g}"): (floors, t) for floors, t, _ in every}

    def shown(row: tuple[str, float], mode: str) -> str | None:
        cell = every.get((*row, mode))
        return None if cell is None else f"{cell.whole.median:.0f} ({cell.per_token.median:.0f})"

    return Table.crossed(["floors, ms", "T"], rows, {mode.name: mode.name for mode in SHOWN}, shown)


def by_entropy(found: Mapping[float, Sequence[Answered]], plan: Plan) -> Table:
    """Whole answers of models that have so many nats, milliseconds per token."""
    return _long_answers(found, plan, SHOWN_LONG, lambda cell: cell.whole.short())


def in_short(found: Sequence[Answered], plan: Plan) -> Table:
    """Whole answers at the largest added round trip, milliseconds per token: for people who don't know the methods."""
    every = {(floors, mode): cell for (floors, _, mode), cell in farthest(found, plan).items()}
    rows = {(f"{each.device:g} / {each.cloud:g}",): each.name for each in plan.floors}

    def told(floors: str, modes: Sequence[Mode]) -> str | None:
        spreads = [every[floors, mode.name].whole for mode in modes if (floors, mode.name) in every]
        return min(spreads, key=lambda spread: spread.median).short() if spreads else None

    return Table.crossed(["ms a decode step, device / cloud"], rows, IN_SHORT, told)


def over_limit(found: Mapping[float, Sequence[Answered]], plan: Plan) -> Table:
    """Whole answers of the race over the slower side's steps alone, with branches and without."""

    def shown(cell: Cell) -> str:
        aim = AIMS_LONG.get((cell.floors.name, cell.mode))
        return cell.over_limit.short(2) + (f" (≤ {aim:g})" if aim else "")

    return _long_answers(found, plan, (RACE_DEVICE, RACE_DEVICE_CHAIN, RACE_MIRRORED, RACE_MIRRORED_CHAIN), shown)


def _long_answers(
    found: Mapping[float, Sequence[Answered]], plan: Plan, modes: Sequence[Mode], shown: Callable[[Cell], str]
) -> Table:
    """A row for the floors and the nats of each model, a column for each of `modes`."""
    every = {
        (floors, entropy, mode): cell
        for entropy, answers in found.items()
        for (floors, _, mode), cell in farthest(answers, plan).items()
    }
    rows = {(floors, f"{entropy:g}"): (floors, entropy) for floors, entropy, _ in every}

    def told(row: tuple[str, float], mode: str) -> str | None:
        cell = every.get((*row, mode))
        return None if cell is None else shown(cell)

    return Table.crossed(["floors, ms", "nats"], rows, {mode.name: mode.name for mode in modes}, told)


Timed = Callable[[Cell], Spread]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of some methods' cells, by what is timed in them, and what it should be, by floors."""

    name: str
    modes: tuple[Mode, ...]
    of: Callable[..., float]
    aims: Mapping[str, str] = field(default_factory=dict)
    digits: int = 2


def _over_limit(timed: Timed, cell: Cell) -> float:
    return timed(cell).median / cell.limit


def _over(timed: Timed, one: Cell, other: Cell) -> float:
    return timed(one).median / timed(other).median


def _over_alone(timed: Timed, cell: Cell, alone: Cell) -> float:
    return timed(cell).median / (timed(alone).median + cell.rtt)


def _aims(*aims: str) -> dict[str, str]:
    return dict(zip(HARDWARE, aims, strict=True))


# At 300 ms: most that the race may take per token, over the slower side's step, and how much less than DRDG/TW.
RATIOS = (
    Ratio("race/device over the limit", (RACE_DEVICE,), _over_limit, _aims("≤ 1.05", "≤ 1.5", "≤ 2")),
    Ratio("race/greedy over the limit", (RACE_GREEDY,), _over_limit),
    Ratio("race/mirrored over the limit", (RACE_MIRRORED,), _over_limit, _aims("≤ 1.05", "≤ 1.3", "≤ 1.6")),
    Ratio("DRDG/TW over race/device", (TOKEN_WISE, RACE_DEVICE), _over, _aims("≥ 2.2", "≥ 4.5", "≥ 8"), 1),
    Ratio("DRDG/TW over race/greedy", (TOKEN_WISE, RACE_GREEDY), _over, digits=1),
    Ratio("DRDG/TW over race/mirrored", (TOKEN_WISE, RACE_MIRRORED), _over, digits=1),
    Ratio("paper/greedy over race/device", (PAPER_GREEDY, RACE_DEVICE), _over, dict.fromkeys(HARDWARE, "> 1")),
    Ratio("paper/greedy over race/greedy", (PAPER_GREEDY, RACE_GREEDY), _over),
    Ratio("paper/greedy over race/mirrored", (PAPER_GREEDY, RACE_MIRRORED), _over),
)
FIRST = Ratio(
    "TTFT of race/device over device only plus a round trip",
    (RACE_DEVICE, DEVICE_ONLY),
    _over_alone,
    dict.fromkeys(HARDWARE, "≤ 1.15"),
)


def ratios(found: Sequence[Answered], plan: Plan) -> Table:
    """At the largest added round trip: each ratio of what follows the first token, and that of the first ones, by
    floors, at all temperatures.
    """
    behind = [(ratio, lambda cell: cell.per_token) for ratio in RATIOS]
    return _ratios(found, plan, [*behind, (FIRST, lambda cell: cell.ttft)])


def whole_ratios(found: Sequence[Answered], plan: Plan) -> Table:
    """The same of whole answers."""
    return _ratios(found, plan, [(ratio, lambda cell: cell.whole) for ratio in RATIOS])


def _ratios(found: Sequence[Answered], plan: Plan, asked: Sequence[tuple[Ratio, Timed]]) -> Table:
    every = farthest(found, plan)
    temperatures = sorted({t for _, t, _ in every})

    def shown(row: tuple[Ratio, Timed], floors: str) -> str | None:
        ratio, timed = row
        needed = [[every.get((floors, t, mode.name)) for mode in ratio.modes] for t in temperatures]
        told = " / ".join(f"{ratio.of(timed, *those):.{ratio.digits}f}" for those in needed if all(those))
        aim = f" ({ratio.aims[floors]})" if floors in ratio.aims else ""
        return f"{told}{aim}" if told else None

    rows = {(ratio.name,): (ratio, timed) for ratio, timed in asked}
    return Table.crossed(["ratio (aim)"], rows, {f"{name} ms": name for name in HARDWARE}, shown)


def _acceptance(cell: Cell) -> str:
    """Share of the judged drafts that were right, all answers together."""
    shares = []
    for column in range(2):
        judged = [row[column] for answer in cell.answers for row in answer.accepted if row[column] is not None]
        shares.append(f"{sum(map(bool, judged)) / len(judged):.2f}" if judged else "-")
    return " / ".join(shares)
