"""The suites `methods`: tokens per second and bytes of methods that draft and verify, over an emulated link.

Two real daemons with a labelled pair of models answer through a proxy with a delay and a rate. What a network should
give is predicted by the formulas of rounds: from the true link, both models alone, an answer's acceptance and lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from common.draft_policy.times import RoundTimes, ahead_seconds, expected_tokens, round_seconds
from common.figures import REFERENCE, line_style
from scripts.bench.asking import PATIENT, WARM_UP, Mode, answered, ask, check_same, in_turn, linked, own_folder, settle
from scripts.bench.measuring import INTERVALS, MEDIANS, NOTHING, Spread, Table
from scripts.bench.methods import plan as plans
from scripts.bench.methods.plan import AHEAD, DRAFT, EAGER, FAST, NO_NETWORK, SLOW, TARGET, Part, Plan
from scripts.bench.results import Results
from scripts.bench.rows import (
    Cell,
    Row,
    Value,
    groups,
    lines,
    middle,
    only,
    paired,
    pivot,
    spread,
    table,
    values,
    where,
)
from scripts.bench.synthetic_model import make_pair
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.faulty_proxy import PERFECT, Line

PROBE: Final = 150  # bytes of a probe, which the uplink's rate delays
ENCRYPTED: Final = 33  # bytes more of a message that CurveZMQ carries: command's name, nonce, authenticator, flags
# Families whose tokens are the target's, one by one.
ALIKE: Final = (TARGET.family, "coupled synchronous", AHEAD.family, EAGER.family)
BEHIND: Final = "Tokens per second behind the first verdict, which comes with the first token"
PACED: Final = f"{BEHIND}, and measured over predicted time."


def run(results: Results) -> None:
    """The networks of the aims: every method, the aims, and the formulas' predictions."""
    rows = report(results, plans.SHORT if results.short else plans.FULL)
    note = (
        f"{BEHIND}, {MEDIANS}, and over those of the target alone; bytes per token as reported, with the fast uplink."
    )
    results.table("Methods on the networks of the aims", by_method(rows), note)
    results.table("Tokens per second by network", by_network(rows), PACED)


def run_grid(results: Results) -> None:
    """The main methods at every rate with every delay, and four pairs of models on two networks."""
    rows = report(results, plans.SHORT if results.short else plans.GRID)
    results.table("Tokens per second by rate and delay", grid_table(rows), PACED)


def run_whole(results: Results) -> None:
    """Whole answers beside the target's own, streamed over the same link."""
    plan = plans.SHORT_WHOLE if results.short else plans.WHOLE
    note = (
        f"Answers of {plan.max_tokens} tokens at {plans.rate_name(FAST.rate)}: milliseconds, how many times as fast as "
        f"the target alone, which streams ({MEDIANS} of the ratios by seed), and the first token, later by."
    )
    results.table("Whole answers over streaming", whole_table(measured(results, [plan])), note)


def run_eager(results: Results) -> None:
    """Whole answers of eager coupled drafting over streaming, by step of the target, pair of models and distance."""
    rows = measured(results, plans.SHORT_EAGERLY if results.short else plans.EAGERLY)
    note = (
        "How many times as fast as the target alone, which streams its answer, by one-way delay: whole answers, "
        f"{MEDIANS} of the ratios by seed; and the milliseconds by which the first token is later."
    )
    results.table("Eager answers over streaming", eager_table(rows), note)


def measured(results: Results, chosen: Sequence[Plan]) -> list[Row]:
    """The rows of all plans, which differ in the step of the target."""
    by_step = {plan.verify_ms: plan for plan in chosen}
    cases = [{"step": step, "part": number} for step, plan in by_step.items() for number in range(len(plan.parts))]

    def ask_part(case: Row) -> list[Row]:
        plan = by_step[case["step"]]
        return measure(plan.parts[case["part"]], plan, results.say)

    return results.measured(cases, ask_part)


def report(results: Results, plan: Plan) -> list[Row]:
    """Measure everything in `plan`, show the aims and draw both figures; returns the rows."""
    rows = foreseen(measured(results, [plan]), plan)
    results.table("Aims", aims(rows))
    for those in groups(rows, "overlap").values():
        draw_speed(results, [row for row in those if row["rate"]])
    draw_predictions(results, rows)
    return rows


# --- measuring


def measure(part: Part, plan: Plan, say: Callable[[str], None]) -> list[Row]:
    """All networks of a part. Raises `TokensDiffer` where coupled drafting changes a token of the target's."""
    found: list[Row] = []
    texts = Texts.draw_joint(1)

    def ask_one(pair: Pair, mode: Mode, seed: int, tokens: int, temperature: float = 1.0) -> dict[str, Any]:
        law = {"temperature": temperature, "seed": seed, "max_tokens": tokens, "documents": 1}
        return ask(pair, texts.questions[0], mode, **law)

    with own_folder() as folder:
        models = make_pair(folder, part.overlap)
        say(f"overlap {part.overlap:g}: measured {models.measured.overlap:.3f}, {models.measured.entropy:.2f} nats")
        alone, data = folder / "alone", folder / "data"
        if part.alone:  # the drafter as the model of a device whose cloud takes no part
            texts.fill_libraries(alone)
            own = models.cloud | {"model": models.drafter}
            with Pair(alone, own | {"emulate_decode_ms": plan.draft_ms}, own) as pair:
                ask_one(pair, DRAFT, part.seeds[0], WARM_UP)
                for seed in part.seeds:
                    row = sample(ask_one(pair, DRAFT, seed, plan.max_tokens, plan.temperature))
                    found.append({"overlap": part.overlap} | plans.setting(DRAFT) | NO_NETWORK.row | row)
        texts.fill_libraries(data)
        device = {**models.device, **PATIENT, "emulate_draft_ms": plan.draft_ms}
        cloud = models.cloud | {"emulate_decode_ms": plan.verify_ms}
        with linked(data, device, cloud, PERFECT, PERFECT) as (pair, proxy):
            for mode in {mode.family: mode for modes in part.modes.values() for mode in modes}.values():
                ask_one(pair, mode, part.seeds[0], min(WARM_UP, plan.max_tokens))
            for network, modes in part.modes.items():
                proxy.set_line("up", Line(network.delay / 1e3, rate=network.bytes_per_second))
                proxy.set_line("down", Line(network.delay / 1e3))
                settle(pair, partial(float, 2 * network.delay / 1e3), plan.own + PROBE / network.bytes_per_second)
                for place, seed in enumerate(part.seeds):
                    for mode in in_turn(modes, place):
                        before = proxy.forwarded
                        answer = ask_one(pair, mode, seed, plan.max_tokens, plan.temperature)
                        after = proxy.forwarded
                        row = sample(answer, (after["up"] - before["up"], after["down"] - before["down"]))
                        found.append({"overlap": part.overlap} | plans.setting(mode) | network.row | row)
                        check_identity(found)
                say(f"overlap {part.overlap:g}, {network.name}: done, {len(modes)} methods")
    return found


def check_identity(found: Sequence[Row]) -> None:
    """Raises `TokensDiffer` where answers that are the target's differ with one pair and seed."""
    check_same([row for row in found if row["mode"].startswith(ALIKE)], "overlap", "seed")


def sample(report: Mapping[str, Any], forwarded: tuple[int, int] = (0, 0)) -> Row:
    """An answer's row. `forwarded`: bytes on the line, up and down, with probes, passages and encryption.

    Figures of rounds are 0 where nothing was verified.
    """
    figures, own = report["figures"], report["device"]
    return answered(report) | {
        "seed": int(report["seed"]),
        "rounds": round(figures.get("rounds", 0)),
        "proposals": round(figures.get("proposals", 0)),  # more than rounds, drafting ahead
        "proposed": figures.get("proposed_per_round", 0.0),  # tokens
        "drafted": int(own["drafted"]),
        "accepted": int(own["accepted"]),
        "undrafted": round(figures.get("undrafted", 0)),  # tokens of the target where nothing was proposed
        "held": own["acceptance"] if figures else None,  # share of the judged drafts that were right
        "forwarded_up": forwarded[0],
        "forwarded_down": forwarded[1],
    }


# --- predictions


def foreseen(rows: Sequence[Row], plan: Plan) -> list[Row]:
    """The rows with their pace, the predicted milliseconds per token, and the measured ones over these."""
    draft, verify = steps(rows, plan)
    found = []
    for row in rows:
        expected = predicted(row, draft, verify)
        off = row["per_token"] / expected if expected > 0 else None  # None: all came with the first verdict
        found.append(row | {"per_second": per_second(row), "predicted": expected, "off": off, "chunk": chunk(row)})
    return found


def steps(rows: Sequence[Row], plan: Plan) -> tuple[float, float]:
    """Milliseconds per token of the draft model and of the target alone, as measured; their floors where they were not.

    They include what there is to do beside the models.
    """
    drafts, passes = (values(where(rows, mode=mode.name), "per_token") for mode in (DRAFT, TARGET))
    return median(drafts or [plan.draft_ms]), median(passes or [plan.verify_ms])


def predicted(row: Row, draft: float, verify: float) -> float:
    """Milliseconds per token between the first and the last.

    The tokens of the first verdict arrive with the first token, so that what follows it has fewer to wait for.
    """
    if row["mode"] == DRAFT.name:
        return draft
    if row["mode"] == TARGET.name or not row["rounds"]:
        return verify
    alpha, length, rate = row["held"] or 0.0, chunk(row), 125 * row["rate"]
    times = RoundTimes(draft=draft / 1e3, verify=verify / 1e3, rtt=2 * row["delay"] / 1e3, up_rate=rate)
    token_bytes = (row["sent"] / max(1, row["proposals"]) + ENCRYPTED) / length
    short, long = math.floor(length), math.ceil(length)
    part = length - short  # of the rounds that are `long`, as if there were no other lengths
    rounds = ((short, 1.0 - part), (long, part))
    first = sum(share * (expected_tokens(alpha, each) - row["ahead"] * alpha**each) for each, share in rounds)
    if row["ahead"]:
        seconds = sum(share * ahead_seconds(times, alpha, each, token_bytes) for each, share in rounds)
    else:
        seconds = sum(share * round_seconds(times, alpha, each, token_bytes) for each, share in rounds) / first
    left = _left_to_target(row)
    behind = max(0.0, row["tokens"] - left - first)
    return float((1e3 * seconds * behind + verify * left) / (row["tokens"] - 1))


def per_second(row: Row) -> float:
    """Tokens per second, of those behind the first verdict. Its own arrive with the first token, as many as a verdict
    brings on the average.
    """
    first = (row["tokens"] - _left_to_target(row)) / row["rounds"] if row["rounds"] else 1.0
    return float(1e3 * (row["tokens"] - first) / (row["whole"] - row["ttft"]))


def _left_to_target(row: Row) -> int:
    """Tokens of no round. Without drafting ahead a round has one behind those that were accepted, which counts as
    undrafted, too, where all were.
    """
    return int(row["undrafted"] if row["ahead"] else max(0, row["tokens"] - row["accepted"] - row["rounds"]))


def chunk(row: Row) -> float:
    """Mean tokens of a proposal."""
    return float(max(1.0, row["drafted"] / max(1, row["proposals"]) if row["ahead"] else row["proposed"]))


# --- tables


def per(field: str) -> Value:
    """A field per token of the answer."""
    return lambda row: row[field] / row["tokens"]


def pace(rows: list[Row]) -> float:
    """Median tokens per second."""
    return median(values(rows, "per_second"))


def target_alone(rows: Iterable[Row], overlap: float) -> float | None:
    """Median tokens per second of the target alone: behind the first token no network shows."""
    found = groups(where(rows, overlap=overlap, mode=TARGET.name), "network").values()
    return median(map(pace, found)) if found else None


def by_method(rows: Sequence[Row]) -> Table:
    """Every method of the first pair of models on the networks of the aims; bytes where the network is fast."""
    overlap = rows[0]["overlap"]
    alone = target_alone(rows, overlap)

    def verified(cell: Cell) -> Cell:
        return lambda those: NOTHING if those[0]["mode"] in (TARGET.name, DRAFT.name) else cell(those)

    def paced(those: list[Row]) -> str:
        told = str(spread("per_second", 1, 0)(those))
        return told if alone is None or those[0]["mode"] == TARGET.name else f"{told}, {pace(those) / alone:.2f}"

    def sizes(those: list[Row]) -> str:
        return f"{middle(per('sent'), ',.1f')(those)} / {middle(per('received'), '.1f')(those)}"

    columns = {
        "bytes up / down": only(sizes, network=FAST.name),
        "accepted": only(verified(middle(lambda row: row["held"] or 0.0, ".2f")), network=FAST.name),
        "rounds": only(verified(middle("rounds", "g")), network=FAST.name),
        f"tokens/s, {SLOW.name} up": only(paced, network=SLOW.name),
        f"tokens/s, {FAST.name} up": only(paced, network=FAST.name),
    }
    aimed = [row for row in where(rows, overlap=overlap) if row["network"] in (SLOW.name, FAST.name)]
    return table(aimed, {"method": "mode"}, columns)


def by_network(rows: Sequence[Row]) -> Table:
    """The main methods of the first pair of models on all networks: tokens per second, measured / predicted time."""
    order = {mode.name: number for number, mode in enumerate(plans.MAIN)}
    main = [row for row in where(rows, overlap=rows[0]["overlap"]) if row["mode"] in order]
    main.sort(key=lambda row: order[row["mode"]])
    return pivot(main, {"method": "mode"}, "network", _paced, [network.name for network in plans.CROSS])


def grid_table(rows: Sequence[Row]) -> Table:
    """The same for every rate with every delay."""
    linked = [row for row in where(rows, overlap=rows[0]["overlap"]) if row["mode"] != DRAFT.name]
    linked.sort(key=lambda row: (row["rate"], row["delay"]))
    named = [row | {"uplink": plans.rate_name(row["rate"]), "one way": f"{row['delay']:g} ms"} for row in linked]
    return pivot(named, ["uplink", "one way"], "mode", _paced, [mode.name for mode in (TARGET, *plans.MAIN)])


def _paced(rows: list[Row]) -> str:
    """The pace, and measured over predicted time."""
    off = f" ({median(found):.2f})" if (found := values(rows, "off")) else " (nan)"
    return f"{pace(rows):.0f}" if rows[0]["mode"] == TARGET.name else f"{pace(rows):.0f}{off}"


def whole_table(rows: Sequence[Row]) -> Table:
    """Whole answers over the target's own of the same seeds on the same network, which streams it."""

    def shown(those: list[Row]) -> str:
        whole = f"{median(values(those, 'whole')):,.0f}"
        if those[0]["mode"] == TARGET.name:
            return f"{whole}; first {median(values(those, 'ttft')):.0f}"
        return f"{whole}, {over_streaming(rows)(those)}"

    return pivot(rows, {"one way, uplink": "network"}, "mode", shown, [mode.name for mode in plans.COMPARED])


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


# --- aims

BYTES_AIM: Final = 8.0  # of coupled drafting, per token and direction
# At least so many times the best of these rivals, by overlap.
RIVALS: Final = (
    (SLOW, plans.QSV_FIXED_INDEX, "qsv, fixed index", {0.9: 1.5, 0.97: 2.0}),
    (FAST, plans.DSSD, "dssd γ 4, 6, 8", {0.9: 1.1, 0.97: 1.25}),
)
PREDICTED_AIM: Final = 0.1  # that the formulas may be off
ADAPTIVE_AIM: Final = 0.9  # of the best fixed length
Cells = Mapping[tuple[Any, ...], list[Row]]  # by overlap, network and mode


def cells(rows: Iterable[Row]) -> Cells:
    return groups(rows, "overlap", "network", "mode")


def times(ours: list[Row], others: list[Row]) -> float | None:
    """Pace over that of `others`, with the seeds that both have; None: they have none."""
    same = {row["seed"] for row in ours} & {row["seed"] for row in others}
    one, other = ([row for row in rows if row["seed"] in same] for rows in (ours, others))
    return pace(one) / pace(other) if same else None


def over_best(ours: list[Row], others: Iterable[list[Row]]) -> float | None:
    """Times the best of `others`; None where there is none to compare with."""
    return min((ratio for other in others if (ratio := times(ours, other)) is not None), default=None)


def aims(rows: Sequence[Row]) -> Table:
    """The named aims, each with its figure; those that nothing was measured for are left out. Ratios are of the seeds
    that both have.
    """
    found = cells(rows)
    told = [
        [what, wanted, figure, "met" if met else "missed"]
        for part in (_bytes, _rivals, _predictions, _lengths)
        for what, wanted, figure, met in part(found)
    ]
    return Table(["what", "aim", "measured", ""], told)


Aim = tuple[str, str, str, bool]  # what, what is wanted, what was found, and whether it is met


def _bytes(found: Cells) -> Iterator[Aim]:
    for way, field in (("up", "sent"), ("down", "received")):
        if sizes := [median(values(those, per(field))) for (*_, mode), those in found.items() if mode == AHEAD.name]:
            told = f"{min(sizes):.1f} to {max(sizes):.1f}"
            yield f"coupled ahead: bytes {way} per token", f"<= {BYTES_AIM:g}", told, max(sizes) <= BYTES_AIM


def _rivals(found: Cells) -> Iterator[Aim]:
    for network, rivals, name, wanted in RIVALS:
        for overlap, least in wanted.items():
            ours, *others = (found.get((overlap, network.name, mode.name), []) for mode in (AHEAD, *rivals))
            if (ratio := over_best(ours, others)) is not None:
                what = f"overlap {overlap:g}, {network.name}: coupled ahead over the best {name}"
                yield what, f">= {least:g}", f"{ratio:.2f}", ratio >= least


def _predictions(found: Cells) -> Iterator[Aim]:
    ratios = {key: median(known) for key, those in found.items() if (known := values(those, "off"))}
    if ratios:
        within = sum(abs(ratio - 1.0) <= PREDICTED_AIM for ratio in ratios.values())
        (overlap, network, mode), ratio = max(ratios.items(), key=lambda item: abs(item[1] - 1.0))
        told = f"{within} of {len(ratios)} cells; {ratio:.2f} at {overlap:g}, {network}, {mode}"
        yield "measured over predicted time", f"1 ± {PREDICTED_AIM:g} everywhere", told, within == len(ratios)


def _lengths(found: Cells) -> Iterator[Aim]:
    """Each policy over the best fixed length of its method, where both were measured."""
    shares: dict[str, dict[str, float]] = {}
    for (overlap, network, mode), those in found.items():
        alike = {"overlap": overlap, "network": network, "family": those[0]["family"], "adaptive": False}
        fixed = [other for other in found.values() if where(other[:1], **alike)]
        if those[0]["adaptive"] and (share := over_best(those, fixed)) is not None:
            shares.setdefault(mode, {})[f"{overlap:g}, {network}"] = share
    for mode, known in shares.items():
        worst = min(known, key=known.__getitem__)
        within = sum(share >= ADAPTIVE_AIM for share in known.values())
        told = f"{within} of {len(known)} networks; {known[worst]:.2f} at {worst}"
        what = f"{mode} over the best fixed length"
        yield what, f">= {ADAPTIVE_AIM:g} everywhere", told, within == len(known)


# --- pictures

DRAWN: Final = (plans.DSSD[1], plans.DSSD_GOODPUT, plans.QSV_FIXED_INDEX[0], plans.QSV_GOODPUT, AHEAD)
FAMILIES: Final = ("dsd top-k 10", "dssd", "qsv fixed index", "qsv short index", "coupled synchronous", "coupled ahead")
MOST_ALIKE: Final = 1  # networks that a panel would show as points only


def draw_speed(results: Results, rows: list[Row]) -> None:
    """Tokens per second by one-way delay, a panel for each rate, and by rate at the delay that has the most of them."""
    overlap = rows[0]["overlap"]
    alone = target_alone(rows, overlap)
    rows = sorted(rows, key=lambda row: (row["delay"], row["rate"]))
    panels = [
        (those, "delay", f"uplink {plans.rate_name(rate)}", "one-way delay, ms")
        for (rate,), those in groups(rows, "rate").items()
    ]
    (delay,), at_delay = max(groups(rows, "delay").items(), key=lambda at: _places(at[1], "rate"))
    panels.append((at_delay, "rate", f"{delay:g} ms one way", "uplink, kb/s"))
    panels = [panel for panel in panels if _places(panel[0], panel[1]) > MOST_ALIKE]
    if not panels:
        return
    title = f"Tokens per second by method, overlap {overlap:g}: medians and their {INTERVALS}"
    with results.figure(f"tokens-per-second-{overlap:g}", len(panels), title=title) as axes:
        for axis, (those, x, name, unit) in zip(axes, panels, strict=True):
            lines(axis, those, x, "per_second", "mode", {mode.name: number for number, mode in enumerate(DRAWN)})
            if alone is not None:
                axis.axhline(alone, label=TARGET.name, **REFERENCE)
            axis.set_ylim(bottom=0)
            axis.set_title(name)
            axis.set_xlabel(unit)
            if x == "rate":
                axis.set_xscale("log")
        axes[0].set_ylabel("tokens per second")


def _places(rows: list[Row], field: str) -> int:
    return len({row[field] for row in rows})


def draw_predictions(results: Results, rows: Sequence[Row]) -> None:
    """Every setting's measured time against the predicted one."""
    with results.figure("predicted", title="Milliseconds per token by the formulas, and measured") as (axis,):
        for number, family in enumerate(FAMILIES):
            found = cells(where(rows, family=family)).values()
            points = [[Spread.of(values(those, of)).median for of in ("predicted", "per_token")] for those in found]
            if points:
                style = line_style(number) | {"linestyle": "none"}
                axis.plot(*zip(*points, strict=True), label=family, **style)
        _, most = axis.get_xlim()
        for factor in (1.0, 1.0 - PREDICTED_AIM, 1.0 + PREDICTED_AIM):
            axis.plot([0, most], [0, factor * most], **REFERENCE | {"linewidth": 1.0 if factor == 1.0 else 0.5})
        axis.set_xlabel("predicted, ms per token")
        axis.set_ylabel("measured, ms per token")
