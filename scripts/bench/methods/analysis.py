"""The tables of the suites `methods`: every setting, the aims, and reported bytes beside those on the line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from scripts.bench.measuring import NOTHING, Spread, Table
from scripts.bench.methods.plan import (
    AHEAD,
    COMPARED,
    CROSS,
    DRAFT,
    DSSD,
    EAGER,
    FAST,
    MAIN,
    QSV_FIXED_INDEX,
    SLOW,
    TARGET,
    Network,
    rate_name,
)
from scripts.bench.rows import Cell, Row, Value, groups, middle, paired, pivot, spread, table, values, where

BYTES_AIM = 8.0  # of coupled drafting, per token and direction
OVER_QSV = {0.9: 1.5, 0.97: 2.0}  # times the best quantise-sample-verify with the fixed index, by overlap
OVER_DSSD = {0.9: 1.1, 0.97: 1.25}  # times the best published DSSD
PREDICTED_AIM = 0.1  # that the formulas may be off
ADAPTIVE_AIM = 0.9  # of the best fixed length

Cells = Mapping[tuple[Any, ...], list[Row]]  # by overlap, network and mode


def per(field: str) -> Value:
    """A field per token of the answer."""
    return lambda row: row[field] / row["tokens"]


def cells(rows: Iterable[Row]) -> Cells:
    return groups(rows, "overlap", "network", "mode")


def pace(rows: list[Row]) -> float:
    """Median tokens per second."""
    return median(values(rows, "per_second"))


def times(ours: list[Row], others: list[Row]) -> float | None:
    """Pace over that of `others`, with the seeds that both have; None: they have none."""
    same = {row["seed"] for row in ours} & {row["seed"] for row in others}
    one, other = ([row for row in rows if row["seed"] in same] for rows in (ours, others))
    return pace(one) / pace(other) if same else None


def over_best(ours: list[Row], others: Iterable[list[Row]]) -> float | None:
    """Times the best of `others`; None where there is none to compare with."""
    ratios = [ratio for other in others if (ratio := times(ours, other)) is not None]
    return min(ratios) if ratios else None


def target_alone(rows: Iterable[Row], overlap: float) -> float | None:
    """Median tokens per second of the target alone: behind the first token no network shows."""
    found = groups(where(rows, overlap=overlap, mode=TARGET.name), "network").values()
    return median(map(pace, found)) if found else None


def verified(cell: Cell, otherwise: str = "-") -> Cell:
    """Shows what is of rounds only where there were drafts to verify."""
    return lambda rows: otherwise if rows[0]["mode"] in (TARGET.name, DRAFT.name) else cell(rows)


def off(rows: list[Row]) -> str:
    """Measured over predicted time."""
    return f"{median(found):.2f}" if (found := values(rows, "off")) else "nan"


def by_method(rows: Sequence[Row]) -> Table:
    """Every method of the first pair of models on the networks of the aims; bytes where the network is fast."""
    overlap = rows[0]["overlap"]
    alone = target_alone(rows, overlap)

    def at(network: Network, cell: Cell) -> Cell:
        return lambda those: cell(found) if (found := where(those, network=network.name)) else None

    def paced(those: list[Row]) -> str:
        told = str(spread("per_second", 1, 0)(those))
        return told if alone is None or those[0]["mode"] == TARGET.name else f"{told}, {pace(those) / alone:.2f}"

    def sizes(those: list[Row]) -> str:
        return f"{middle(per('sent'), ',.1f')(those)} / {middle(per('received'), '.1f')(those)}"

    columns = {
        "bytes up / down": at(FAST, sizes),
        "accepted": at(FAST, verified(middle(lambda row: row["held"] or 0.0, ".2f"), NOTHING)),
        "rounds": at(FAST, verified(middle("rounds", "g"), NOTHING)),
        f"tokens/s, {SLOW.name} up": at(SLOW, paced),
        f"tokens/s, {FAST.name} up": at(FAST, paced),
    }
    aimed = [row for row in where(rows, overlap=overlap) if row["network"] in (SLOW.name, FAST.name)]
    return table(aimed, {"method": "mode"}, columns)


def by_network(rows: Sequence[Row]) -> Table:
    """The main methods of the first pair of models on all networks: tokens per second, measured / predicted time."""
    order = {mode.name: number for number, mode in enumerate(MAIN)}
    main = [row for row in where(rows, overlap=rows[0]["overlap"]) if row["mode"] in order]
    main.sort(key=lambda row: order[row["mode"]])
    return pivot(main, {"method": "mode"}, "network", _paced, [network.name for network in CROSS])


def grid_table(rows: Sequence[Row]) -> Table:
    """The same for every rate with every delay."""
    linked = [row for row in where(rows, overlap=rows[0]["overlap"]) if row["mode"] != DRAFT.name]
    linked.sort(key=lambda row: (row["rate"], row["delay"]))
    named = [row | {"uplink": rate_name(row["rate"]), "one way": f"{row['delay']:g} ms"} for row in linked]
    return pivot(named, ["uplink", "one way"], "mode", _paced, [mode.name for mode in (TARGET, *MAIN)])


def _paced(rows: list[Row]) -> str:
    return f"{pace(rows):.0f}" + ("" if rows[0]["mode"] == TARGET.name else f" ({off(rows)})")


def whole_table(rows: Sequence[Row]) -> Table:
    """Whole answers over the target's own of the same seeds on the same network, which streams it."""

    def shown(those: list[Row]) -> str:
        whole = f"{median(values(those, 'whole')):,.0f}"
        if those[0]["mode"] == TARGET.name:
            return f"{whole}; first {median(values(those, 'ttft')):.0f}"
        return f"{whole}, {over_streaming(rows)(those)}"

    return pivot(rows, {"one way, uplink": "network"}, "mode", shown, [mode.name for mode in COMPARED])


def eager_table(rows: Sequence[Row]) -> Table:
    """Eager answers over the target's own, by its step, pair of models and distance."""
    named = [row | {"step": f"{row['step']:g} ms", "one way": f"{row['delay']:g} ms"} for row in rows]
    eager = where(named, mode=EAGER.name)
    return pivot(eager, {"step of the target": "step", "overlap": "overlap"}, "one way", over_streaming(named))


def over_streaming(rows: Sequence[Row]) -> Cell:
    """Shows how many times as fast whole answers are as the target's own, and how much later they begin."""
    streamed = where(rows, mode=TARGET.name)
    by = ("step", "overlap", "network", "seed")

    def shown(those: list[Row]) -> str:
        faster = Spread.of([own / one for one, own in paired(those, streamed, "whole", *by)]).short(2)
        return f"{faster}; {round(median(one - own for one, own in paired(those, streamed, 'ttft', *by)))}"

    return shown


def aims(rows: Sequence[Row]) -> Table:
    """The named aims, each with its figure; those that nothing was measured for are left out. Ratios are of the seeds
    that both have.
    """
    found = cells(rows)
    lines: list[list[object]] = []
    coupled = [those for (_, _, mode), those in found.items() if mode == AHEAD.name]
    for way, field in (("up", "sent"), ("down", "received")):
        if sizes := [median(values(those, per(field))) for those in coupled]:
            told = f"{min(sizes):.1f} to {max(sizes):.1f}"
            what = f"coupled ahead: bytes {way} per token"
            lines.append(_aim(what, f"<= {BYTES_AIM:g}", told, max(sizes) <= BYTES_AIM))
    compared = ((SLOW, QSV_FIXED_INDEX, OVER_QSV, "qsv, fixed index"), (FAST, DSSD, OVER_DSSD, "dssd γ 4, 6, 8"))
    for network, rivals, wanted, of_what in compared:
        for overlap, least in wanted.items():
            ours, *others = (found.get((overlap, network.name, mode.name), []) for mode in (AHEAD, *rivals))
            if (ratio := over_best(ours, others)) is not None:
                what = f"overlap {overlap:g}, {network.name}: coupled ahead over the best {of_what}"
                lines.append(_aim(what, f">= {least:g}", f"{ratio:.2f}", ratio >= least))
    return Table(["what", "aim", "measured", ""], [*lines, *_predictions(found), *_lengths(found)])


def _predictions(found: Cells) -> list[list[object]]:
    ratios = {key: median(known) for key, those in found.items() if (known := values(those, "off"))}
    if not ratios:
        return []
    within = sum(abs(ratio - 1.0) <= PREDICTED_AIM for ratio in ratios.values())
    (overlap, network, mode), ratio = max(ratios.items(), key=lambda item: abs(item[1] - 1.0))
    told = f"{within} of {len(ratios)} cells; {ratio:.2f} at {overlap:g}, {network}, {mode}"
    return [_aim("measured over predicted time", f"1 ± {PREDICTED_AIM:g} everywhere", told, within == len(ratios))]


def _lengths(found: Cells) -> list[list[object]]:
    """Each policy over the best fixed length of its method, where both were measured."""
    shares: dict[str, dict[str, float]] = {}
    for (overlap, network, mode), those in found.items():
        alike = {"overlap": overlap, "network": network, "family": those[0]["family"], "adaptive": False}
        fixed = [other for other in found.values() if where(other[:1], **alike)]
        if those[0]["adaptive"] and (share := over_best(those, fixed)) is not None:
            shares.setdefault(mode, {})[f"{overlap:g}, {network}"] = share
    lines = []
    for mode, known in shares.items():
        worst = min(known, key=known.__getitem__)
        within = sum(share >= ADAPTIVE_AIM for share in known.values())
        told = f"{within} of {len(known)} networks; {known[worst]:.2f} at {worst}"
        what = f"{mode} over the best fixed length"
        lines.append(_aim(what, f">= {ADAPTIVE_AIM:g} everywhere", told, within == len(known)))
    return lines


def _aim(what: str, wanted: str, found: str, met: bool) -> list[object]:
    return [what, wanted, found, "met" if met else "missed"]
