"""Questions that need a private note and a public header, asked of two real daemons by several clients at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from scripts.bench.measuring import Table
from scripts.bench.plan import Plan
from scripts.bench.real.proposals import Asked
from scripts.bench.real.scores import contains, f1
from scripts.bench.workload import Texts
from scripts.daemons import Pair

CLIENTS = 4
RESAMPLES = 2000
CONFIDENCE = (2.5, 97.5)  # percentiles

# The paper's names; fetched texts and one's own stand in one row of the device there.
METHODS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "device only": {"sources": "device"},
        "cloud only": {"sources": "cloud"},
        "DRCG": {"method": "fetch-text", "aggregation": "context"},
        "DRAGON": {"placement": "device"},
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of one method, and what it scored."""

    method: str
    question: int
    kind: str
    text: str
    match: bool
    f1: float


def measure(
    texts: Texts, asked: Sequence[Asked], settings: Mapping[str, object], plan: Plan, say: Callable[[str], None]
) -> list[Answer]:
    """Every question by every method, at temperature 0."""
    (documents,) = plan.documents
    found: list[Answer] = []
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        data = Path(folder)
        texts.fill_libraries(data)
        say(f"{len(texts.documents['device'])} notes and {len(texts.documents['cloud'])} entries in the libraries")
        with Pair(data, {**settings, "patience": 60.0}, settings) as pair, ThreadPoolExecutor(CLIENTS) as pool:
            for method, fields in METHODS.items():

                def ask(number: int, method: str = method, fields: Mapping[str, object] = fields) -> Answer:
                    limits = {"temperature": 0, "max_tokens": plan.tokens, "documents": documents}
                    return judged(method, number, asked[number], pair.complete(asked[number].text, **limits, **fields))

                found += pool.map(ask, range(len(asked)))
                say(f"{method}: {len(asked)} answers")
    return found


def judged(method: str, number: int, asked: Asked, response: Mapping[str, Any]) -> Answer:
    """An answer as the HTTP interface gave it, with its scores."""
    text = response["choices"][0]["message"]["content"].strip()
    return Answer(
        method, number, asked.kind, text, contains(text, asked.answers), max(f1(text, [one]) for one in asked.answers)
    )


def table(found: Sequence[Answer]) -> Table:
    """Shares by method and kind of question, with bootstrap intervals over the questions."""
    kinds = list(dict.fromkeys(answer.kind for answer in found))
    rows = []
    for method in METHODS:
        of = [answer for answer in found if answer.method == method]
        matches = {kind: [float(answer.match) for answer in of if answer.kind == kind] for kind in kinds}
        everything = [value for values in matches.values() for value in values]
        scores = [interval([answer.f1 for answer in of])]
        rows.append([method, interval(everything), *(interval(matches[kind]) for kind in kinds), *scores])
    return Table(["method", "match, all", *(f"match, {kind}" for kind in kinds), "F1, all"], rows)


def interval(values: Sequence[float]) -> str:
    """Mean and its 95 % interval by percentile bootstrap, the same for the same values."""
    samples = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(1).choice(samples, (RESAMPLES, len(samples))).mean(axis=1)
    low, high = np.percentile(drawn, CONFIDENCE)
    return f"{samples.mean():.2f} [{low:.2f}-{high:.2f}]"
