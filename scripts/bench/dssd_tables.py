"""The suite `dssd-tables`: the tables of DSSD (Ning et al. 2025), as its equations give them."""

from __future__ import annotations

from itertools import product
from typing import Final

from common.figures import line_style
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from tests.common.draft_policy.dssd_times import (
    Dense,
    dsd_communication,
    dsd_round,
    dssd_communication,
    dssd_round,
    rejection,
    speed_up,
)

LENGTHS: Final = (2, 4, 6, 8)
ALPHAS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
TABLE_1: Final = Dense(vocabulary=50_000, value_bits=16, rate=100e6, non_transmission=0.020)
OPT_VOCABULARY: Final = 50_265
LINKS: Final = ((0, 100, 8), (20, 100, 8), (50, 10, 8), (20, 50, 8), (50, 50, 8), (50, 10, 6))  # ms, Mb/s, tokens
ROUNDS: Final = {8: 31, 6: 8}  # of an answer of 128 tokens, as the printed times imply by length
PRINTED: Final = (
    ("3.91", "0.01"),
    ("4.60", "0.62"),
    ("41.44", "1.55"),
    ("8.59", "0.62"),
    ("9.52", "1.55"),
    ("8.12", "0.40"),
)
ALPHA: Final = 0.61
# Table 3: seconds of the target's and of the draft's steps, in the ratios that the paper gives.
TARGET: Final = 0.033
PAIRS: Final = {"125M, 6.7B (c = .1, α = .61)": (0.1, 0.61), "125M, 13B (c = .05, α = .53)": (0.05, 0.53)}

NOTE_1 = "V = 50,000, 16 bits, 100 Mb/s, 20 ms: all 24 cells as printed."
NOTE_2 = (
    "V = 50,265, 32 bits; 31 rounds at length 8 and 8 at length 6. The paper truncates; 3.91 should be 3.98. Its DSSD "
    "column is rounds times T_NTT, without what comes down after a rejection (Eq. 9)."
)
NOTE_3 = (
    "Where the paper's numbers disagree with its text, its claim is reproduced: DSSD's best length lies inside. "
    "By Eqs. 13 and 15, with dense distributions and this α, it does not beat the target alone at 20 ms."
)


def run(results: Results) -> None:
    """Print the three tables; draw the third."""
    _table_1(results)
    _table_2(results)
    _table_3(results)


def _table_1(results: Results) -> None:
    cells = {
        (length, alpha): (rejection(alpha, length), dssd_communication(TABLE_1, alpha, length))
        for length, alpha in product(LENGTHS, ALPHAS)
    }
    rows = [
        [
            str(length),
            *(f"{share:.2f} ({1e3 * seconds:.2f} ms)" for share, seconds in (cells[length, a] for a in ALPHAS)),
        ]
        for length in LENGTHS
    ]
    results.samples("table 1", [[length, alpha, *cell] for (length, alpha), cell in cells.items()])
    results.table("Table 1: 1 - α^γ and T_comm", Table(["γ", *(f"α {alpha:g}" for alpha in ALPHAS)], rows), NOTE_1)


def _table_2(results: Results) -> None:
    rows = []
    for (wait, rate, length), (printed_dsd, printed_dssd) in zip(LINKS, PRINTED, strict=True):
        link = Dense(OPT_VOCABULARY, 32, 1e6 * rate, 1e-3 * wait)
        rounds = ROUNDS[length]
        dsd, dssd = rounds * dsd_communication(link, length), rounds * dssd_communication(link, ALPHA, length)
        rows.append([f"{wait}", f"{rate}", f"{length}", f"{dsd:.3f}", printed_dsd, f"{dssd:.3f}", printed_dssd])
    heads = ["NTT ms", "Mb/s", "γ", "DSD s", "printed", "DSSD s", "printed "]
    results.samples("table 2", rows)
    results.table(f"Table 2: T_com of an answer, α = {ALPHA:g}", Table(heads, rows), NOTE_2)


def _table_3(results: Results) -> None:
    link = Dense(OPT_VOCABULARY, 32, 100e6, 0.020)
    lengths = range(1, 17)
    found: dict[str, list[float]] = {}
    for name, (ratio, alpha) in PAIRS.items():
        draft = ratio * TARGET
        found[f"DSD {name}"] = [
            speed_up(dsd_round(link, length, draft, TARGET), alpha, length, TARGET) for length in lengths
        ]
        found[f"DSSD {name}"] = [
            speed_up(dssd_round(link, alpha, length, draft, TARGET), alpha, length, TARGET) for length in lengths
        ]
    rows = [
        [
            name,
            *(f"{ratios[length - 1]:.2f}" for length in (1, 2, 3, 4, 6, 8, 12, 16)),
            f"{1 + ratios.index(max(ratios))}",
        ]
        for name, ratios in found.items()
    ]
    heads = ["pair", *(f"γ {length}" for length in (1, 2, 3, 4, 6, 8, 12, 16)), "best γ"]
    results.samples("table 3", found)
    results.table("Table 3: speed-up over the target alone, 20 ms, 100 Mb/s", Table(heads, rows), NOTE_3)
    title = "Speed-up over the target alone by draft length; 20 ms, 100 Mb/s, dense distributions of 32 bits a value"
    with results.figure("speed-up", columns=1, title=title) as (axes,):
        for number, (name, ratios) in enumerate(found.items()):
            axes.plot(list(lengths), ratios, label=name, **line_style(number))
        axes.axhline(1.0, color="black", linewidth=1.0)
        axes.set_xlabel("draft length γ")
        axes.set_ylabel("speed-up, times")
        axes.set_ylim(bottom=0)
