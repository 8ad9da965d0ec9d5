"""Turns answers into the suite's tables: every cell, the aims, and reported bytes beside those on the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scripts.bench.measuring import Spread, Table
from scripts.bench.methods.measure import Answered
from scripts.bench.methods.plan import AHEAD, DRAFT, DSSD, QSV_FIXED_INDEX, TARGET, Mode, Network, Plan
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


def cells(found: Sequence[Answered], plan: Plan) -> dict[Key, Cell]:
    """Answers by overlap, network and mode, in the order in which they were asked for first."""
    modes = {name: mode for part in plan.parts for name, mode in part.everything.items()}
    grouped: dict[Key, list[Answered]] = {}
    for answer in found:
        grouped.setdefault((answer.overlap, answer.network, answer.mode), []).append(answer)
    steps = Steps.of(found, plan)
    return {
        key: Cell(modes[key[2]], tuple(those), tuple(predicted(one, modes[key[2]], steps) for one in those))
        for key, those in grouped.items()
    }


def target_alone(every: Cells, overlap: float) -> float | None:
    """Median tokens per second of the target alone: behind the first token no network shows."""
    found = [cell.per_second.median for (at, _, name), cell in every.items() if (at, name) == (overlap, TARGET.name)]
    return median(found) if found else None


def table(every: Cells) -> Table:
    """A row for every cell."""
    rows = []
    for (overlap, network, name), cell in every.items():
        alone, verified = target_alone(every, overlap), cell.mode not in (TARGET, DRAFT)
        rows.append(
            [
                f"{overlap:g}",
                network.name,
                name,
                _with_interval(cell.per_second),
                "-" if alone is None else f"{cell.per_second.median / alone:.2f}",
                f"{cell.middle(lambda answer: answer.sent / answer.tokens):.1f}",
                f"{cell.middle(lambda answer: answer.received / answer.tokens):.1f}",
                f"{cell.middle(lambda answer: answer.acceptance or 0.0):.2f}" if verified else "-",
                f"{cell.middle(lambda answer: answer.rounds):g}" if verified else "-",
                f"{median(chunk(answer, cell.mode) for answer in cell.answers):.1f}" if verified else "-",
                f"{cell.middle(lambda answer: answer.per_token):.1f}",
                f"{cell.predicted:.1f}",
                f"{cell.off:.2f}",
            ]
        )
    heads = [
        "overlap",
        "one way, uplink",
        "method",
        "tokens/s",
        "/ target alone",
        "bytes up per token",
        "down",
        "accepted",
        "rounds",
        "length",
        "ms per token",
        "predicted",
        "measured / predicted",
    ]
    return Table(heads, rows)


def bytes_table(every: Cells, overlap: float, network: Network) -> Table:
    """What the report tells of and what the line carried, per token, on one network."""
    rows = []
    for (at, where, name), cell in every.items():
        if (at, where) == (overlap, network):
            told = [cell.middle(lambda one: one.sent / one.tokens), cell.middle(lambda one: one.received / one.tokens)]
            seen = [median(one.forwarded[way] / one.tokens for one in cell.answers) for way in (0, 1)]
            rows.append([name, *(f"{value:.1f}" for pair in zip(told, seen, strict=True) for value in pair)])
    return Table(["method", "up, reported", "up, on the line", "down, reported", "down, on the line"], rows)


def aims(every: Cells, slow: Network, fast: Network) -> Table:
    """The named aims, each with its figure; those that nothing was measured for are left out."""
    coupled = [cell for (_, _, name), cell in every.items() if name == AHEAD.name]
    rows: list[list[object]] = []
    for way, of in (("up", lambda one: one.sent / one.tokens), ("down", lambda one: one.received / one.tokens)):
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
            if (at, where, other.mode.family) == (overlap, network, cell.mode.family) and not other.mode.adaptive
        ]
        if cell.mode.adaptive and fixed:
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
