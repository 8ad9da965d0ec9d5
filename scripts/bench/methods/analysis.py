"""Turns answers into the suite's tables: every cell, the aims, and reported bytes beside those on the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from scripts.bench.asking import Mode
from scripts.bench.measuring import Spread, Table, grouped
from scripts.bench.methods.measure import Answered
from scripts.bench.methods.plan import AHEAD, DRAFT, DSSD, QSV_FIXED_INDEX, TARGET, Network, Plan, adaptive
from scripts.bench.methods.prediction import Steps, chunk, predicted

BYTES_AIM = 8.0  # of coupled drafting, per token and direction
OVER_QSV = {0.9: 1.5, 0.97: 2.0}  # times the best quantise-sample-verify with the fixed index, by overlap
OVER_DSSD = {0.9: 1.1, 0.97: 1.25}  # times the best published DSSD
PREDICTED_AIM = 0.1  # that the formulas may be off
ADAPTIVE_AIM = 0.9  # of the best fixed length

Key = tuple[float, Network, str]  # overlap, network, mode


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to ask on one network, and what the formulas give for each of its answers."""

    overlap: float
    network: Network
    mode: Mode
    answers: tuple[Answered, ...]
    predictions: tuple[float, ...]

    def spread(self, of: Callable[[Answered], float]) -> Spread:
        return Spread.of([of(answer) for answer in self.answers])

    def middle(self, of: Callable[[Answered], float]) -> float:
        return self.spread(of).median

    @property
    def per_second(self) -> Spread:
        return self.spread(lambda answer: answer.per_second)

    @property
    def predicted(self) -> float:
        """Milliseconds per token."""
        return median(self.predictions)

    @property
    def off(self) -> float:
        """Measured over predicted time."""
        pairs = zip(self.answers, self.predictions, strict=True)
        return median(answer.per_token / expected for answer, expected in pairs)


Cells = Mapping[Key, Cell]
NAMES: Final[dict[str, Callable[[Cell], object]]] = {
    "overlap": lambda cell: f"{cell.overlap:g}",
    "one way, uplink": lambda cell: cell.network.name,
    "method": lambda cell: cell.mode.name,
}


def up(answer: Answered) -> float:
    """Reported bytes per token."""
    return answer.sent / answer.tokens


def down(answer: Answered) -> float:
    """Reported bytes per token."""
    return answer.received / answer.tokens


def cells(found: Sequence[Answered], plan: Plan) -> dict[Key, Cell]:
    """Answers by overlap, network and mode, in the order in which they were asked for first."""
    modes = {name: mode for part in plan.parts for name, mode in part.everything.items()}
    steps = Steps.of(found, plan)
    return {
        key: Cell(*key[:2], modes[key[2]], tuple(those), tuple(predicted(one, modes[key[2]], steps) for one in those))
        for key, those in grouped(found, lambda one: (one.overlap, one.network, one.mode)).items()
    }


def target_alone(every: Cells, overlap: float) -> float | None:
    """Median tokens per second of the target alone: behind the first token no network shows."""
    found = [cell.per_second.median for (at, _, name), cell in every.items() if (at, name) == (overlap, TARGET.name)]
    return median(found) if found else None


def table(every: Cells) -> Table:
    """A row for every cell."""

    def over_target(cell: Cell) -> str:
        alone = target_alone(every, cell.overlap)
        return "-" if alone is None else f"{cell.per_second.median / alone:.2f}"

    def verified(show: Callable[[Cell], str]) -> Callable[[Cell], str]:
        return lambda cell: "-" if cell.mode in (TARGET, DRAFT) else show(cell)

    columns: dict[str, Callable[[Cell], object]] = NAMES | {
        "tokens/s": lambda cell: _with_interval(cell.per_second),
        "/ target alone": over_target,
        "bytes up per token": lambda cell: f"{cell.middle(up):.1f}",
        "down": lambda cell: f"{cell.middle(down):.1f}",
        "accepted": verified(lambda cell: f"{cell.middle(lambda one: one.held or 0.0):.2f}"),
        "rounds": verified(lambda cell: f"{cell.middle(lambda one: one.rounds):g}"),
        "length": verified(lambda cell: f"{median(chunk(one, cell.mode) for one in cell.answers):.1f}"),
        "ms per token": lambda cell: f"{cell.middle(lambda one: one.per_token):.1f}",
        "predicted": lambda cell: f"{cell.predicted:.1f}",
        "measured / predicted": lambda cell: f"{cell.off:.2f}",
    }
    return Table.of(every.values(), columns)


def whole_table(every: Cells) -> Table:
    """Whole answers over the target's own of the same seeds on the same network, which streams it."""

    def over_streamed(show: Callable[[Sequence[tuple[Answered, Answered]]], str]) -> Callable[[Cell], str]:
        def shown(cell: Cell) -> str:
            streamed = every[cell.overlap, cell.network, TARGET.name]
            return "-" if cell is streamed else show(list(zip(streamed.answers, cell.answers, strict=True)))

        return shown

    columns: dict[str, Callable[[Cell], object]] = NAMES | {
        "ms": lambda cell: f"{cell.middle(lambda one: one.whole):.0f}",
        "times as fast": over_streamed(lambda pairs: Spread.of([own.whole / one.whole for own, one in pairs]).text(2)),
        "first token, ms": lambda cell: f"{cell.middle(lambda one: one.ttft):.0f}",
        "later by, ms": over_streamed(lambda pairs: f"{median(one.ttft - own.ttft for own, one in pairs):.0f}"),
    }
    return Table.of(every.values(), columns)


def bytes_table(every: Cells, overlap: float, network: Network) -> Table:
    """Bytes per token on one network: those that the report tells of, and those that the line carried."""
    columns: dict[str, Callable[[Cell], object]] = {
        "method": lambda cell: cell.mode.name,
        "up, reported": lambda cell: f"{cell.middle(up):.1f}",
        "up, on the line": lambda cell: f"{cell.middle(lambda one: one.forwarded[0] / one.tokens):.1f}",
        "down, reported": lambda cell: f"{cell.middle(down):.1f}",
        "down, on the line": lambda cell: f"{cell.middle(lambda one: one.forwarded[1] / one.tokens):.1f}",
    }
    return Table.of([cell for (*at, _), cell in every.items() if at == [overlap, network]], columns)


def aims(every: Cells, slow: Network, fast: Network) -> Table:
    """The named aims, each with its figure; those that nothing was measured for are left out."""
    coupled = [cell for (_, _, name), cell in every.items() if name == AHEAD.name]
    rows: list[list[object]] = []
    for way, of in (("up", up), ("down", down)):
        if sizes := [cell.middle(of) for cell in coupled]:
            told = f"{min(sizes):.1f} to {max(sizes):.1f}"
            rows.append(
                _aim(f"coupled ahead: bytes {way} per token", f"<= {BYTES_AIM:g}", told, max(sizes) <= BYTES_AIM)
            )
    compared = ((slow, QSV_FIXED_INDEX, OVER_QSV, "qsv, fixed index"), (fast, DSSD, OVER_DSSD, "dssd γ 4, 6, 8"))
    for network, rivals, wanted, of_what in compared:
        for overlap, least in wanted.items():
            others = [every[overlap, network, each.name] for each in rivals if (overlap, network, each.name) in every]
            ours = every.get((overlap, network, AHEAD.name))
            if ours is not None and others:
                best = max(others, key=lambda cell: cell.per_second.median)
                times = ours.per_second.median / best.per_second.median
                what = f"overlap {overlap:g}, {network.name}: coupled ahead over the best {of_what} ({best.mode.name})"
                rows.append(_aim(what, f">= {least:g}", f"{times:.2f}", times >= least))
    return Table(["what", "aim", "measured", ""], [*rows, *_predictions(every), *_lengths(every)])


def _predictions(every: Cells) -> list[list[object]]:
    offs = {key: abs(cell.off - 1.0) for key, cell in every.items()}
    if not offs:
        return []
    within = sum(off <= PREDICTED_AIM for off in offs.values())
    worst = max(offs, key=offs.__getitem__)
    told = f"{within} of {len(offs)} cells; {every[worst].off:.2f} at {worst[0]:g}, {worst[1].name}, {worst[2]}"
    return [_aim("measured over predicted time", f"1 ± {PREDICTED_AIM:g} everywhere", told, within == len(offs))]


def _lengths(every: Cells) -> list[list[object]]:
    """Each policy over the best fixed length of its method, where both were measured."""
    shares: dict[str, dict[str, float]] = {}
    for (overlap, network, name), cell in every.items():
        fixed = [
            other.per_second.median
            for (at, where, _), other in every.items()
            if (at, where, other.mode.family) == (overlap, network, cell.mode.family) and not adaptive(other.mode)
        ]
        if adaptive(cell.mode) and fixed:
            share = cell.per_second.median / max(fixed)
            shares.setdefault(name, {})[f"{overlap:g}, {network.name}"] = share
    rows = []
    for name, found in shares.items():
        worst = min(found, key=found.__getitem__)
        within = sum(share >= ADAPTIVE_AIM for share in found.values())
        told = f"{within} of {len(found)} networks; {found[worst]:.2f} at {worst}"
        what = f"{name} over the best fixed length"
        rows.append(_aim(what, f">= {ADAPTIVE_AIM:g} everywhere", told, within == len(found)))
    return rows


def _aim(what: str, wanted: str, found: str, met: bool) -> list[object]:
    return [what, wanted, found, "met" if met else "missed"]


def _with_interval(spread: Spread) -> str:
    least, most = spread.interval
    return f"{spread.median:.1f} [{least:.1f}-{most:.1f}]"
