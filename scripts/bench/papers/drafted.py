"""DSSD (Ning et al. 2025), Tables 1 and 2; quantize-sample-verify, Fig. 3 and 4 and its bits per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.draft_policy.times import fixed_index_bits, short_index_bits
from common.engine.model.decoder import Decoder
from common.engine.model.prompt import Conversation, TextFormat
from common.figures import REFERENCE, bar_style
from common.sampling.rejection import quantise
from scripts.bench.asking import ANY, Mode, make_mode
from scripts.bench.methods.plan import DRAFT_MS, TARGET, VERIFY_MS, Network, Part, Plan
from scripts.bench.methods.suite import measure
from scripts.bench.papers.figure import Claim, Figure, curves, labelled, mean, times
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, middle, pivot, spread, table, values, where
from scripts.bench.workload import Reading, Texts

# --- DSSD, Table 1: 1 - α^γ, and the communication time of a round (Eq. 9) in ms

ALPHAS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
TABLE_1: Final = {
    2: ((0.75, 26.00), (0.64, 25.12), (0.51, 24.08), (0.36, 22.88), (0.19, 21.52), (0.02, 20.16)),
    4: ((0.94, 27.50), (0.87, 26.96), (0.76, 26.08), (0.59, 24.72), (0.34, 22.75), (0.04, 20.32)),
    6: ((0.98, 27.88), (0.95, 27.63), (0.88, 27.06), (0.74, 25.90), (0.47, 23.75), (0.06, 20.47)),
    8: ((1.00, 27.97), (0.98, 27.87), (0.94, 27.54), (0.83, 26.66), (0.57, 24.56), (0.08, 20.62)),
}


def dssd_round(alpha: float, length: int, bits: float, rate: float, wait: float) -> float:
    """Seconds of communication of a round of DSSD on average (Eq. 9); a distribution has `bits`."""
    return (1.0 - alpha**length) * bits / rate + wait


def dsd_round(length: int, bits: float, rate: float, wait: float) -> float:
    """The same of DSD, which sends every draft's distribution (Eqs. 3 to 5)."""
    return length * bits / rate + wait


def _table_1(_: Results, case: Row) -> Iterator[Row]:
    printed = TABLE_1[case["length"]][ALPHAS.index(case["alpha"])]
    seconds = dssd_round(case["alpha"], case["length"], 50_000 * 16, 100e6, 0.020)
    found = 1.0 - case["alpha"] ** case["length"], 1e3 * seconds
    yield {"share": found[0], "ms": found[1], "printed_share": printed[0], "printed_ms": printed[1]}


def _show_table_1(results: Results, rows: list[Row]) -> list[Claim]:
    def shown(those: list[Row]) -> str:
        (row,) = those
        return f"{row['share']:.2f} ({row['ms']:.2f}){' as printed' * _as_printed(row)}"

    note = "V = 50,000, 16 bits, 100 Mb/s, 20 ms."
    results.table("DSSD Table 1: 1 - α^γ (T_comm, ms)", pivot(rows, {"γ": "length"}, "alpha", shown), note)
    return [Claim("cells of the table, by Eq. 9", f"{len(rows)} cells", f"{sum(map(_as_printed, rows))} equal")]


def _as_printed(row: Row) -> bool:
    """Equal but for the last digit's rounding."""
    off: float = max(abs(row[field] - row[f"printed_{field}"]) for field in ("share", "ms"))
    return off < 0.0051


# --- DSSD, Table 2: communication and speed-up of DSD and DSSD over a line

ROUNDS: Final = {8: 31, 6: 8}  # of an answer of 128 tokens, as the printed times imply
# ms, Mb/s, γ; T_com of DSD and DSSD in seconds, and their speed-ups with OPT-6.7B
TABLE_2: Final = (
    (0, 100, 8, 3.91, 0.01, 1.51, 2.28),
    (20, 100, 8, 4.60, 0.62, 1.41, 2.31),
    (50, 10, 8, 41.44, 1.55, 0.43, 2.19),
    (20, 50, 8, 8.59, 0.62, 1.24, 2.22),
    (50, 50, 8, 9.52, 1.55, 1.08, 1.97),
    (50, 10, 6, 8.12, 0.40, 1.16, 1.57),
)
ALPHA: Final = 0.61
STEPS: Final = (3.3, 33.0)  # ms of the draft and of the target: c = .1 (section 4.2)


def _table_2_cases(short: bool) -> Sequence[Row]:
    return [{"links": 1, "tokens": 10, "seeds": 1}] if short else [{"links": len(TABLE_2), "tokens": 64, "seeds": 3}]


def _table_2(results: Results, case: Row) -> Iterator[Row]:
    """Answers of a drafter and a target that agree as often as the paper's, over links of the paper's rates."""
    modes: dict[Network, tuple[Mode, ...]] = {}
    told: dict[tuple[str, str], Row] = {}
    bits = 50_265 * 32
    for wait, rate, length, *printed in TABLE_2[: case["links"]]:
        network, link = Network(wait / 2, 1e3 * rate), (1e6 * rate, 1e-3 * wait)
        seconds = dsd_round(length, bits, *link), dssd_round(ALPHA, length, bits, *link)
        for place, name in enumerate(("DSD", "DSSD")):
            law: dict[str, Any] = {"top_k": 0, "draft_policy": "fixed", "draft_length": length}
            mode = make_mode(f"{name} γ {length}", family=name, method=name.lower(), **law)
            modes[network] = (*modes.get(network, (TARGET,)), mode)
            told[network.name, mode.name] = {
                "link": f"{wait} ms, {rate} Mb/s, γ {length}",
                "equations": ROUNDS[length] * seconds[place],
                "printed_seconds": printed[place],
                "printed_speed_up": printed[2 + place],
            }
    part = Part(ALPHA, modes, seeds=tuple(range(1, case["seeds"] + 1)))
    found = measure(part, Plan((part,), case["tokens"], *STEPS, own=_own(case)), results.say)
    alone = {(row["network"], row["seed"]): row["per_token"] for row in where(found, mode=TARGET.name)}
    for row in found:
        if row["rounds"]:
            speed_up = alone[row["network"], row["seed"]] / row["per_token"]
            yield row | told[row["network"], row["mode"]] | {"speed_up": speed_up}


def _own(case: Row) -> float:
    return ANY if case["tokens"] < 20 else 0.02


def _show_table_2(results: Results, rows: list[Row]) -> list[Claim]:
    columns = {
        "T_com by Eqs. 5 and 9, s": middle("equations", ".2f"),
        "T_com printed, s": middle("printed_seconds", ".2f"),
        "speed-up here": spread("speed_up", 2),
        "speed-up printed": middle("printed_speed_up", ".2f"),
    }
    note = (
        "T_com: V = 50,265 of 32 bits; the printed DSSD column leaves out what comes down after a rejection. "
        f"Speed-ups: measured with V = 2,048, so that a distribution has 4 kB; steps of {STEPS[0]:g} and "
        f"{STEPS[1]:g} ms in place of an H800's; the downlink has no limit."
    )
    shown = table(rows, {"link": "link", "method": "family"}, columns)
    results.table("DSSD Table 2: communication and speed-up over the target alone", shown, note)
    links = list(dict.fromkeys(row["link"] for row in rows))
    with results.figure("dssd-2", title="DSSD Table 2: speed-up over the target alone, here and as printed") as (axis,):
        for number, family in enumerate(("DSD", "DSSD")):
            places = np.arange(len(links)) + 0.4 * number
            for field, style in (("speed_up", bar_style(number)), ("printed_speed_up", {})):
                found = [mean(where(rows, link=link, family=family), field) for link in links]
                if style:
                    axis.bar(places, found, 0.36, label=f"{family}, here", **style)
                else:
                    axis.plot(places, found, "k_", markersize=16, label=f"{family}, printed")
        axis.set_xticks(np.arange(len(links)) + 0.2, [link.replace(", ", "\n") for link in links])
        axis.axhline(1.0, **REFERENCE)
        axis.set_ylabel("speed-up, times")

    def up(family: str) -> str:
        return f"{mean(where(rows, family=family), lambda row: row['sent'] / row['rounds']):,.0f}"

    def speed_ups(family: str) -> str:
        found = [mean(where(rows, link=link, family=family), "speed_up") for link in links]
        return f"{min(found):.2f}× to {max(found):.2f}×"

    return [
        Claim("bytes up in a round, DSD", "61,269", up("DSD")),
        Claim("bytes up in a round, DSSD", "less than 50", up("DSSD")),
        Claim("speed-up of DSSD", "1.5× to 2.4×", speed_ups("DSSD")),
        Claim("speed-up of DSD", "0.43× to 1.51×", speed_ups("DSD")),
        Claim("share of drafts accepted", f"{ALPHA}", f"{mean(where(rows, family='DSSD'), 'held'):.2f}"),
    ]


# --- QSV, Fig. 3: what the order of sampling and quantising does to a token's law

TEMPERATURES: Final = (0.2, 0.6, 1.0, 1.4)
RESOLUTIONS: Final = (16, 64)
Law = NDArray[np.float64]  # [vocab], sum 1


def followed(target: Law, drawn: Law, told: Law) -> Law:
    """The law of a token that is drawn from `drawn` and verified as one of `told`.

    A token that is told to be impossible counts as nearly so, and is accepted wherever the target allows it.
    """
    ratio = np.divide(target, told, out=np.ones_like(told), where=told > 0)
    accepted = drawn * np.where(told > 0, np.minimum(1.0, ratio), target > 0)
    residual = np.maximum(0.0, target - told)
    total = float(residual.sum())
    law: Law = accepted + (1.0 - accepted.sum()) * (residual / total if total else target)
    return law


def entropy(law: Law) -> float:
    """Nats."""
    positive = law[law > 0]
    return -float((positive * np.log(positive)).sum())


@cache
def _models() -> tuple[TextFormat, tuple[Decoder, Decoder]]:
    tokenizer = str(EMBEDDED_TOKENIZER)
    target, drafter = (
        Decoder.load(str(path), tokenizer=tokenizer, threads=1) for path in (EMBEDDED_MODEL, EMBEDDED_DRAFT)
    )
    return TextFormat(target.tokenizer), (target, drafter)


def _laws(_: Results, case: Row) -> Iterator[Row]:
    """Along an answer of the target: how far the law of S-Q and of Q-S is from the target's, and their entropies."""
    form, decoders = _models()
    texts = Texts.draw_joint(case["question"] + 1)
    query = decoders[0].tokenizer.encode(form.query(Conversation.of(texts.questions[-1])).text)
    document = form.document_tokens(texts.documents["cloud"][case["question"]])
    target, drafter = (Reading(one, *one.open([document], query, case["tokens"] + 2)) for one in decoders)
    path: list[int] = []
    draw = np.random.default_rng(case["question"])
    for _position in range(case["tokens"]):
        logits = [reading.logits(path)[0].double() for reading in (target, drafter)]
        for temperature in TEMPERATURES:
            p, q = (torch.softmax(each / temperature, -1).numpy() for each in logits)
            for resolution in RESOLUTIONS:
                rounded = quantise(q, resolution) / resolution
                for name, drawn in (("S-Q", q), ("Q-S", rounded)):
                    law = followed(p, drawn, rounded)
                    yield {
                        "temperature": temperature,
                        "way": f"{name}, ℓ {resolution}",
                        "moved": 0.5 * float(np.abs(law - p).sum()),
                        "entropy": entropy(law),
                        "target": entropy(p),
                    }
        path.append(int(draw.choice(len(p), p=torch.softmax(logits[0], -1).numpy())))


def _show_laws(results: Results, rows: list[Row]) -> list[Claim]:
    def shown(those: list[Row]) -> str:
        return f"{mean(those, 'moved'):.4f}; {mean(those, 'entropy'):.3f} ({mean(those, 'target'):.3f})"

    note = "Total variation from the target's law; entropy in nats (the target's). Exact laws, no samples."
    results.table(
        "QSV Fig. 3: law of a token by order and temperature", pivot(rows, ["way"], "temperature", shown), note
    )
    title = "QSV Fig. 3: distance from the target's law, and entropy (paper: S-Q loses quality, Q-S does not)"
    with results.figure("qsv-3", 2, title=title) as axes:
        shown_as = (("moved", "total variation"), ("entropy", "entropy, nats"))
        for axis, (field, unit) in zip(axes, shown_as, strict=True):
            curves(axis, rows, "temperature", field, "way")
            labelled(axis, "temperature", unit)

    def moved(way: str, temperature: float) -> float:
        return mean(where(rows, way=way, temperature=temperature), "moved")

    exact = max(values([row for row in rows if row["way"].startswith("Q-S")], "moved"))
    by_heat = [mean(where(rows, temperature=each), "entropy") for each in TEMPERATURES]
    way = f"S-Q, ℓ {RESOLUTIONS[1]}"
    return [
        Claim("Fig. 3a: Q-S keeps the target's quality", "at all temperatures", f"distance at most {exact:.0e}"),
        Claim(
            "Fig. 3a: S-Q loses it, most at high temperatures",
            "ROUGE-2 falls",
            f"distance {moved(way, 0.2):.4f} at 0.2, {moved(way, 1.4):.4f} at 1.4",
        ),
        Claim(
            "Fig. 3b: entropy grows with temperature, nats",
            "in all ways",
            " < ".join(f"{each:.2f}" for each in by_heat),
        ),
    ]


# --- QSV, bits per token

VOCABULARY: Final = 50_272  # OPT's
SUPPORT: Final = 8  # tokens with a unit, as distributions of some nats have


def _bits(_: Results, case: Row) -> Iterator[Row]:
    size = case["resolution"], VOCABULARY
    yield {"fixed": fixed_index_bits(*size), "short": short_index_bits(*size, SUPPORT), "dense": 32 * VOCABULARY}


def _show_bits(results: Results, rows: list[Row]) -> list[Claim]:
    columns = {name: middle(name, ",.0f") for name in ("fixed", "short", "dense")}
    note = f"Fixed: Eq. 6. Short: this project's, {SUPPORT} tokens with a unit. Dense: 32 bits. V = {VOCABULARY:,}."
    results.table("QSV: bits of a distribution (paper: 704)", table(rows, {"ℓ": "resolution"}, columns), note)
    here = f"{rows[-1]['fixed']} with ℓ {rows[-1]['resolution']}, {rows[-1]['short']} short"
    return [Claim("bits of a distribution", "704", here)]


# --- QSV, Fig. 4: throughput by policy, uplink and temperature

LENGTH: Final = 3  # the paper's fixed draft length
UPLINKS: Final = (Network(0.0, 40.0), Network(0.0, 400.0))  # both states of the paper's channel; its downlink is free


def _policy(name: str, **fields: Any) -> Mode:
    given: dict[str, Any] = {"method": "qsv", "resolution": 64}
    return make_mode(name, family=name, **given | fields)


POLICIES: Final = (
    TARGET,
    _policy("S-Q", order="sample-quantise", draft_policy="fixed", draft_length=LENGTH),
    _policy("Q-S", draft_policy="fixed", draft_length=LENGTH),
    _policy("heuristic", draft_policy="heuristic"),
    _policy("goodput", draft_policy="goodput", resolution=None),
    _policy("DDQN", draft_policy="ddqn", resolution=None),
)


def _policy_cases(short: bool) -> Sequence[Row]:
    if short:
        return grid(temperature=(1.0,), tokens=(10,), seeds=(1,), uplinks=(1,))
    return grid(temperature=(0.6, 1.0), tokens=(64,), seeds=(3,), uplinks=(2,))


def _policies(results: Results, case: Row) -> Iterator[Row]:
    modes = dict.fromkeys(UPLINKS[-case["uplinks"] :], POLICIES)
    part = Part(0.9, modes, seeds=tuple(range(1, case["seeds"] + 1)))
    steps = (DRAFT_MS, VERIFY_MS)
    yield from measure(part, Plan((part,), case["tokens"], *steps, case["temperature"], _own(case)), results.say)


def _show_policies(results: Results, rows: list[Row]) -> list[Claim]:
    rows = [row | {"per_second": 1e3 / row["per_token"]} for row in rows]
    index = {"uplink, kb/s": "rate", "T": "temperature"}
    note = f"Drafts of {DRAFT_MS:g} ms and passes of {VERIFY_MS:g} ms, as in the paper; overlap .9 at T = 1, V = 2,048."
    results.table("QSV Fig. 4: tokens per second by policy", pivot(rows, index, "mode", spread("per_second", 1)), note)
    panels = sorted({row["rate"] for row in rows})
    title = "QSV Fig. 4: tokens per second (paper: all above the target alone, dynamic above every fixed length)"
    with results.figure("qsv-4", len(panels), title=title) as axes:
        for axis, rate in zip(axes, panels, strict=True):
            curves(axis, where(rows, rate=rate), "temperature", "per_second", "mode")
            labelled(axis, "temperature", "tokens per second", f"uplink {rate:g} kb/s")
    rate = {mode.name: mean(where(rows, mode=mode.name), "per_second") for mode in POLICIES}
    fixed, alone = rate["Q-S"], rate[TARGET.name]
    return [
        Claim("Fig. 4: Q-S over the target alone", "above", times(fixed, alone)),
        Claim("Fig. 4: DDQN over a fixed length", "above", times(rate["DDQN"], fixed)),
        Claim("Fig. 4: DDQN over the heuristic", "above", times(rate["DDQN"], rate["heuristic"])),
        Claim("Fig. 4: `goodput` of this project over a fixed length", "–", times(rate["goodput"], fixed)),
    ]


FIGURES: Final = (
    Figure("DSSD 1", "the paper's equations", lambda _: grid(length=TABLE_1, alpha=ALPHAS), _table_1, _show_table_1),
    Figure("DSSD 2", "two daemons, limited line, emulated steps", _table_2_cases, _table_2, _show_table_2),
    Figure(
        "QSV 3",
        "exact laws of the embedded pair",
        lambda short: grid(question=range(2 if short else 8), tokens=(4 if short else 14,)),
        _laws,
        _show_laws,
    ),
    Figure("QSV bits", "Eq. 6", lambda _: grid(resolution=RESOLUTIONS), _bits, _show_bits),
    Figure("QSV 4", "two daemons, limited line, emulated steps", _policy_cases, _policies, _show_policies),
)
