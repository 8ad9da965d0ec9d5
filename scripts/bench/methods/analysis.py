"""Turns answers into the suite's tables: every cell, the aims, and reported bytes beside those on the line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import median
from typing import Final

from scripts.bench.asking import Mode
from scripts.bench.measuring import NOTHING, Spread, Table, grouped
from scripts.bench.methods.measure import Answered
from scripts.bench.methods.plan import (
    AHEAD,
    COMPARED,
    CROSS,
    DRAFT,
    DSSD,
    EAGER,
    FAST,
    MAIN,
    NO_NETWORK,
    QSV_FIXED_INDEX,
    SLOW,
    TARGET,
    Network,
    Plan,
    adaptive,
    rate_name,
)
from scripts.bench.methods.prediction import Steps, chunk, per_second, predicted

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
        return self.spread(lambda answer: per_second(answer, self.mode))

    @property
    def predicted(self) -> float:
        """Milliseconds per token."""
        return median(self.predictions)

    @property
    def off(self) -> float:
        """Measured over predicted time; NaN where every answer came whole with its first verdict."""
        pairs = zip(self.answers, self.predictions, strict=True)
        ratios = [answer.per_token / expected for answer, expected in pairs if expected > 0]
        return median(ratios) if ratios else nan


def times(one: Cell, other: Cell) -> float | None:
    """Median tokens per second of `one` over those of `other`, with the seeds that both have; None: they have none."""
    same = {answer.seed for answer in one.answers} & {answer.seed for answer in other.answers}
    if not same:
        return None
    own, others = (
        median(per_second(answer, cell.mode) for answer in cell.answers if answer.seed in same) for cell in (one, other)
    )
    return own / others


def over_best(one: Cell, others: Iterable[Cell]) -> float | None:
    """Times the best of `others`; None where there is none to compare with."""
    ratios = [ratio for other in others if (ratio := times(one, other)) is not None]
    return min(ratios) if ratios else None


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
        "tokens/s": lambda cell: cell.per_second.short(1),
        "/ target alone": over_target,
        "bytes up per token": lambda cell: f"{cell.middle(up):.1f}",
        "down": lambda cell: f"{cell.middle(down):.1f}",
        "accepted": verified(lambda cell: f"{cell.middle(lambda one: one.held or 0.0):.2f}"),
        "rounds": verified(lambda cell: f"{cell.middle(lambda one: one.rounds):g}"),
        "length": verified(lambda cell: f"{median(chunk(one, cell.mode) for one in cell.answers):.1f}"),
        "ms per token, first to last": lambda cell: f"{cell.middle(lambda one: one.per_token):.1f}",
        "predicted": lambda cell: f"{cell.predicted:.1f}",
        "measured / predicted": lambda cell: f"{cell.off:.2f}",
    }
    return Table.of(every.values(), columns)


def by_method(every: Cells) -> Table:
    """Every method of the first pair of models on the networks of the aims; bytes where the network is fast."""
    overlap = next(iter(every))[0]
    names = dict.fromkeys(name for at, network, name in every if at == overlap and network in (SLOW, FAST))

    def at(name: str, network: Network) -> Cell | None:
        return every.get((overlap, network, name))

    def fast(show: Callable[[Cell], str]) -> Callable[[str], str | None]:
        return lambda name: None if (cell := at(name, FAST)) is None else show(cell)

    def verified(show: Callable[[Cell], str]) -> Callable[[str], str | None]:
        return fast(lambda cell: NOTHING if cell.mode in (TARGET, DRAFT) else show(cell))

    def paced(network: Network) -> Callable[[str], str | None]:
        alone = target_alone(every, overlap)

        def shown(name: str) -> str | None:
            if (cell := at(name, network)) is None:
                return None
            pace = cell.per_second.short(1, 0)
            return pace if alone is None or name == TARGET.name else f"{pace}, {cell.per_second.median / alone:.2f}"

        return shown

    columns: dict[str, Callable[[str], str | None]] = {
        "bytes up / down": fast(lambda cell: f"{cell.middle(up):,.1f} / {cell.middle(down):.1f}"),
        "accepted": verified(lambda cell: f"{cell.middle(lambda one: one.held or 0.0):.2f}"),
        "rounds": verified(lambda cell: f"{cell.middle(lambda one: one.rounds):g}"),
        f"tokens/s, {SLOW.name} up": paced(SLOW),
        f"tokens/s, {FAST.name} up": paced(FAST),
    }
    return Table.crossed(["method"], {(name,): name for name in names}, columns, lambda name, shown: shown(name))


def by_network(every: Cells) -> Table:
    """The main methods of the first pair of models on all networks: tokens per second, measured / predicted time."""
    overlap = next(iter(every))[0]
    rows = {(mode.name,): mode.name for mode in MAIN if any(name == mode.name for _, _, name in every)}
    columns = {network.name: network for network in CROSS}
    return Table.crossed(["method"], rows, columns, lambda name, network: _paced(every.get((overlap, network, name))))


def grid_table(every: Cells) -> Table:
    """The same for every rate with every delay."""
    overlap = next(iter(every))[0]
    networks = sorted({network for at, network, _ in every if at == overlap}, key=lambda each: (each.rate, each.delay))
    rows = {(rate_name(each.rate), f"{each.delay:g} ms"): each for each in networks if each != NO_NETWORK}
    columns = {mode.name: mode.name for mode in (TARGET, *MAIN)}
    return Table.crossed(
        ["uplink", "one way"], rows, columns, lambda network, name: _paced(every.get((overlap, network, name)))
    )


def _paced(cell: Cell | None) -> str | None:
    if cell is None:
        return None
    return f"{cell.per_second.median:.0f}" + ("" if cell.mode == TARGET else f" ({cell.off:.2f})")


def whole_table(every: Cells) -> Table:
    """Whole answers over the target's own of the same seeds on the same network, which streams it."""
    rows = {(network.name,): (overlap, network) for overlap, network, _ in every}

    def shown(row: tuple[float, Network], name: str) -> str | None:
        cell, streamed = every.get((*row, name)), every[*row, TARGET.name]
        if cell is None:
            return None
        whole = f"{cell.middle(lambda one: one.whole):,.0f}"
        if cell is streamed:
            return f"{whole}; first {cell.middle(lambda one: one.ttft):.0f}"
        return f"{whole}, {_over(streamed, cell)}"

    return Table.crossed(["one way, uplink"], rows, {mode.name: mode.name for mode in COMPARED}, shown)


def over_streaming(every: Cells) -> dict[tuple[float, Network], str]:
    """Eager answers over the target's own, by pair of models and network."""
    return {
        (overlap, network): _over(every[overlap, network, TARGET.name], cell)
        for (overlap, network, name), cell in every.items()
        if name == EAGER.name
    }


def _over(streamed: Cell, cell: Cell) -> str:
    """Whole answers over those of `streamed`: how many times as fast they are, and how much later they begin."""
    pairs = list(zip(streamed.answers, cell.answers, strict=True))
    faster = Spread.of([own.whole / one.whole for own, one in pairs]).short(2)
    return f"{faster}; {round(median(one.ttft - own.ttft for own, one in pairs))}"


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
    """The named aims, each with its figure; those that nothing was measured for are left out. Ratios are of the seeds
    that both have.
    """
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
            if ours is not None and (ratio := over_best(ours, others)) is not None:
                what = f"overlap {overlap:g}, {network.name}: coupled ahead over the best {of_what}"
                rows.append(_aim(what, f">= {least:g}", f"{ratio:.2f}", ratio >= least))
    return Table(["what", "aim", "measured", ""], [*rows, *_predictions(every), *_lengths(every)])


def _predictions(every: Cells) -> list[list[object]]:
    offs = {key: abs(cell.off - 1.0) for key, cell in every.items() if not isnan(cell.off)}
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
            other
            for (at, where, _), other in every.items()
            if (at, where, other.mode.family) == (overlap, network, cell.mode.family) and not adaptive(other.mode)
        ]
        if adaptive(cell.mode) and (share := over_best(cell, fixed)) is not None:
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
