"""The suite `workers`: what a gateway adds to a message, and tokens per second of several processes against one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from scripts.bench.asking import PATIENT, ask, filled, make_mode
from scripts.bench.measuring import MEDIANS, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, over, paired, spread, table, where
from scripts.bench.workload import Texts
from scripts.daemons import Pair

THREADS: Final = 2  # of all processes of a cloud together
# Clouds by name; the first one is the measure.
CLOUDS: Final[Mapping[str, Mapping[str, object]]] = {
    "one process": {"threads": THREADS},
    "1 worker": {"workers": 1, "threads": THREADS},
    "2 workers": {"workers": 2, "threads": THREADS // 2},
}
# Every token waits for a message each way, and the device has next to nothing to do.
ALONE: Final = make_mode("alone", method="token-wise", sources="both", temperature=1.0)
TOGETHER: Final = make_mode("together", sources="cloud", temperature=1.0)
AT_A_TIME: Final = 16
ROUNDS: Final = 5
TOKENS: Final = 64
ANSWERS: Final = 6  # one after the other


def run(results: Results) -> None:
    """Ask the clouds in turn, round by round; each is started anew, on the same libraries."""
    rounds, tokens, answers = (1, 8, 1) if results.short else (ROUNDS, TOKENS, ANSWERS)
    texts = Texts.draw(AT_A_TIME)
    with filled(texts) as data:
        ask_cloud = partial(measure, data, texts.questions, tokens, answers)
        rows = results.measured(grid(round=range(rounds), cloud=CLOUDS), ask_cloud)
    note = f"{MEDIANS} over {rounds} rounds; load {load()}; {THREADS} threads in all, {tokens} tokens per answer."
    results.table("Workers", shown(rows), note)


def measure(data: Path, questions: tuple[str, ...], tokens: int, answers: int, case: Row) -> Iterator[Row]:
    """Answers one after the other, then many at a time: milliseconds per token, and tokens per second of all."""
    with Pair(data, PATIENT, CLOUDS[case["cloud"]]) as pair:
        one, other = (partial(ask, pair, mode=mode, max_tokens=tokens, seed=1) for mode in (ALONE, TOGETHER))
        one(questions[0])  # the first one compiles, and reads documents
        alone = [1e3 * float(one(question)["per_token"]) for question in questions[:answers]]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(other, questions))  # documents are read
            began = time.perf_counter()
            made = sum(int(report["tokens"]) for report in pool.map(other, questions))
            yield {"per_token": Spread.of(alone).median, "rate": made / (time.perf_counter() - began)}


def shown(rows: list[Row]) -> Table:
    """A line for each cloud; what is compared is of the same round."""
    first = where(rows, cloud=next(iter(CLOUDS)))
    return table(
        rows,
        ["cloud"],
        {
            "ms per token, token-wise": spread("per_token", 2),
            "µs more": lambda own: Spread.of(
                [1e3 * (one - base) for one, base in paired(own, first, "per_token", "round")]
            ).short(),
            f"tokens/s, {AT_A_TIME} answers": spread("rate"),
            "of one process": over(first, "rate", "round"),
        },
    )
