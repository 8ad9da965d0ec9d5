"""The suite `methods-work`: microseconds per proposed token that both sides spend beside their models."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

import torch

from common.answer.request import read_own_options
from common.methods.catalog import METHODS
from common.methods.drafted.method import DraftVerify
from common.sampling.drafting import RaceKernel
from common.sampling.draws import Place
from proto.digest import EMPTY
from proto.messages import Open
from proto.rounds import Propose
from scripts.bench.measuring import Spread, Table
from scripts.bench.positions import synthetic
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, pivot, values

AIMS: Final = {2048: 1e3, 151_936: 4e3}  # microseconds by vocabulary, both sides together
LENGTH: Final = 6  # tokens of a proposal
FULL_MESSAGE: Final = ("dsd all tokens", 151_936)  # in which one token's distribution fills a message
OPTIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "dsd top-k 10": ("dsd", {}),
    "dsd all tokens": ("dsd", {"top_k": 0}),
    "dssd": ("dssd", {}),
    "qsv fixed index": ("qsv", {"index_code": "fixed", "resolution": 64}),
    "qsv short index": ("qsv", {"resolution": 64}),
    "coupled": ("coupled", {}),
}
PIECES = DRAFT, PACK, READ, TARGET, JUDGE, SETTLE = "draft", "pack", "read", "target", "judge", "settle"
NOTE: Final = (
    f"Microseconds per proposed token, both sides together, proposals of {LENGTH} tokens (of one where whole "
    "distributions of the large vocabulary fill a message), 3 nats: median (10th to 90th percentile), the largest "
    "piece and its share."
)
POSITIONS, SHORT_POSITIONS = 21 * LENGTH, 3 * LENGTH
ENTROPY: Final = 3.0  # nats
DISAGREEMENT: Final = 0.2  # standard deviation of each side's noise on the logits
SEED: Final = 41

Laps = dict[str, list[float]]  # microseconds, by piece


def run(results: Results) -> None:
    """Time every piece of every method, and say which of them takes the most."""
    vocabularies, count = (list(AIMS)[:1], SHORT_POSITIONS) if results.short else (list(AIMS), POSITIONS)
    cases = grid(vocabulary=vocabularies, method=OPTIONS)
    rows = results.measured(cases, lambda case: measure(case["method"], case["vocabulary"], count))
    results.table("Work beside the models", shown(rows), NOTE)


def shown(rows: list[Row]) -> Table:
    """A line for each method."""
    columns = {f"V = {size:,} (at most {most:,.0f})": size for size, most in AIMS.items()}
    return pivot(rows, ["method"], "vocabulary", _cell, columns)


def _cell(rows: list[Row]) -> str:
    """All that proposals take, the largest piece and its share."""
    pieces = {piece: median(values(rows, piece)) for piece in PIECES}
    whole = Spread.of([sum(row[piece] for piece in PIECES) for row in rows])
    most = max(pieces, key=pieces.__getitem__)
    share = pieces[most] / sum(pieces.values())
    return f"{whole.median:,.0f} ({whole.low:,.0f}-{whole.high:,.0f}), {most} {share:.2f}"


def measure(name: str, vocabulary: int, count: int) -> Iterator[Row]:
    """Proposals of synthetic positions, one after the other, through all that both sides do with them.

    Rows have microseconds per proposed token by piece. The first proposal, for which kernels may have to be compiled,
    does not count.
    """
    method_name, options = OPTIONS[name]
    method = METHODS[method_name]
    if not isinstance(method, DraftVerify):
        raise TypeError(f"{method_name} verifies nothing")
    length = 1 if (name, vocabulary) == FULL_MESSAGE else LENGTH
    opening = _opening(method_name, options | {"draft_length": length}, count)
    scheme = method.scheme(opening, read_own_options(method.request, opening), vocabulary)
    positions = list(synthetic(vocabulary, ENTROPY, count + 1, SEED, DISAGREEMENT))
    kernel, laps = RaceKernel(vocabulary), defaultdict[str, list[float]](list)
    for start in range(0, count, length):
        places, first = range(start, start + length), Place(start, EMPTY)
        with _Lap(laps, DRAFT):
            views = []
            ahead = first
            for place in places:
                given = _view(scheme.drafter, kernel, place, positions[place][0])
                views.append(scheme.drafts.drawn(ahead, given))
                ahead = ahead.behind(views[-1].token)
        with _Lap(laps, PACK):
            tokens, payload = scheme.drafts.pack(views, len(views))
        message = Propose(1, start + 1, start, (), (), tokens, payload)
        with _Lap(laps, READ):
            proposed = scheme.judge.read(message)
        with _Lap(laps, TARGET):
            own = [_view(scheme.verifier, kernel, place, positions[place][1]) for place in (*places, start + length)]
        with _Lap(laps, JUDGE):
            judgement = scheme.judge.judge(first, proposed, own)
        with _Lap(laps, SETTLE):
            if judgement.token is None and judgement.accepted < length:
                rejected = first
                for view in views[: judgement.accepted]:
                    rejected = rejected.behind(view.token)
                scheme.drafts.settle(rejected, views[judgement.accepted], judgement.payload)
    for proposal in range(1, len(laps[DRAFT])):
        yield {"proposal": proposal} | {piece: laps[piece][proposal] / length for piece in PIECES}


class _Lap:
    """Notes how long its block took, in microseconds."""

    def __init__(self, laps: Laps, piece: str) -> None:
        self._lap = laps[piece]

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._lap.append(1e6 * (time.perf_counter() - self._began))


def _view(drafter: Any, kernel: RaceKernel, position: int, probabilities: torch.Tensor) -> Any:
    race = drafter.race(position)
    found = None if race is None else kernel.run(probabilities[None], [race])[0]
    return drafter.drafted(position, probabilities, found)


def _opening(method: str, options: dict[str, Any], count: int) -> Open:
    return Open(
        session=1,
        method=method,
        question="q",
        prompt="q",
        documents=1,
        seed=SEED,
        temperature=1.0,
        sampler="race" if method == "coupled" else "rejection",
        codec="race",
        entries=32,
        exact=True,
        top_p=1.0,
        placement="cloud",
        sources="cloud",
        run_ahead=64,
        max_tokens=count + 1,
        options=json.dumps(options),
    )
