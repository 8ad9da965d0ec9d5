"""Questions that need a private note and a public header, asked of two real daemons by several clients at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scripts.bench.asking import check_whole, filled, pair_of
from scripts.bench.measuring import Table, mean_interval, share_interval
from scripts.bench.plan import Plan
from scripts.bench.real.proposals import Asked
from scripts.bench.real.scores import contains, f1
from scripts.bench.workload import Texts

CLIENTS = 4

# The paper's names; fetched texts and one's own stand in one row of the device there.
METHODS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "device only": {"sources": "device"},
        "cloud only": {"sources": "cloud"},
        "DRCG": {"method": "fetch-text", "aggregation": "context"},
        "DRAGON": {"placement": "device"},
    }
)
# Other document weights than the default, by scorer; the second has no model of its own, so the embedding model is it.
WEIGHTS: Mapping[str, str] = MappingProxyType({"static": "static weights", "cross-encoder": "bi-encoder weights"})


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of one method, and what it scored."""

    method: str
    question: int
    kind: str
    text: str
    note: bool | None  # whether it has what only the note says; None where that is not asked for by name
    entry: bool  # whether it has what only the entry says
    f1: float

    @property
    def both(self) -> bool:
        """Whether it is right."""
        return self.entry and self.note is not False


def measure(
    texts: Texts, asked: Sequence[Asked], settings: Mapping[str, object], plan: Plan, say: Callable[[str], None]
) -> list[Answer]:
    """Every question by every method, and by aggregation with other document weights, at temperature 0.

    Raises `RuntimeError` where the device decided tokens alone.
    """
    found: list[Answer] = []
    with filled(texts) as data:
        say(f"{len(texts.documents['device'])} notes and {len(texts.documents['cloud'])} entries in the libraries")
        found += _by_pair(data, settings, METHODS, asked, plan, say)
        for scorer, weights in WEIGHTS.items():
            named = {f"DRAGON, {weights}": METHODS["DRAGON"]}
            found += _by_pair(data, {**settings, "scorer": scorer}, named, asked, plan, say)
    return found


def _by_pair(
    data: Path,
    settings: Mapping[str, object],
    methods: Mapping[str, Mapping[str, object]],
    asked: Sequence[Asked],
    plan: Plan,
    say: Callable[[str], None],
) -> list[Answer]:
    (documents,) = plan.documents
    limits = {"temperature": 0, "max_tokens": plan.tokens, "documents": documents}
    found: list[Answer] = []
    with pair_of(data, {**settings, "patience": 60.0}, settings) as pair, ThreadPoolExecutor(CLIENTS) as pool:
        for method, fields in methods.items():
            responses = pool.map(lambda each, fields=fields: pair.complete(each.text, **limits, **fields), asked)
            for number, (question, response) in enumerate(zip(asked, responses, strict=True)):
                check_whole(response["dragon"], f"{method}, {question.text}")
                found.append(judged(method, number, question, response))
            say(f"{method}: {len(asked)} answers")
    return found


def judged(method: str, number: int, asked: Asked, response: Mapping[str, Any]) -> Answer:
    """An answer as the HTTP interface gave it, with its scores."""
    text = response["choices"][0]["message"]["content"].strip()
    note = contains(text, [asked.also]) if asked.also else None
    wanted = [f"{asked.also} {one}" for one in asked.answers]
    return Answer(method, number, asked.kind, text, note, contains(text, asked.answers), f1(text, wanted))


def table(found: Sequence[Answer]) -> Table:
    """Shares of right answers and of right halves by method, with Wilson's intervals, and the mean F1."""
    rows = []
    for method in dict.fromkeys(answer.method for answer in found):
        of = [answer for answer in found if answer.method == method]
        halves = (
            [answer.both for answer in of],
            [answer.note for answer in of if answer.note is not None],
            [answer.entry for answer in of],
        )
        shares = [share_interval(sum(each), len(each)) for each in halves]
        rows.append([method, *shares, mean_interval([answer.f1 for answer in of])])
    return Table(["method", "both", "what the note says", "what the entry says", "F1"], rows)
