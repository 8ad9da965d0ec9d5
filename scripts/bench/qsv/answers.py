"""Questions about the demonstration's public entries, asked of two real daemons in every way at every temperature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from scripts.bench.asking import PATIENT, Mode, check_whole, filled
from scripts.bench.qsv.plan import Sizes
from scripts.bench.workload import SIZE, WORLD_SEED, Texts
from scripts.daemons import Pair
from scripts.demo_model.world.facts import World
from scripts.demo_model.world.library import PUBLIC, LibraryQuestion, draw_questions, make_library

CLIENTS: Final = 2  # questions at a time
MODEL: Final = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}


@dataclass(frozen=True, slots=True)
class Town:
    """Libraries, and questions that one public entry answers, each with its only right answer."""

    texts: Texts
    questions: tuple[LibraryQuestion, ...]

    @classmethod
    def draw(cls, questions: int) -> Town:
        world = World(WORLD_SEED, test=True)
        library = make_library(world, SIZE)
        asked = tuple(each for each in draw_questions(world, library, questions) if each.type == PUBLIC)
        return cls(Texts.of(library, asked), asked)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `document` is the number of the public entry that was read, `prompt` how many tokens that took, on
    both sides together."""

    way: str
    temperature: float
    question: int
    right: bool
    ended: bool
    pieces: tuple[str, ...]
    document: int
    prompt: int


def ask(town: Town, sizes: Sizes, say: Callable[[str], None]) -> list[Answer]:
    """`draws` answers to every question in every way at every temperature. Raises `RuntimeError` where the cloud took
    no part."""
    found: list[Answer] = []
    device = {**MODEL, **PATIENT, "draft_model": str(EMBEDDED_DRAFT)}
    with filled(town.texts) as data, Pair(data, device, MODEL) as pair, ThreadPoolExecutor(CLIENTS) as pool:
        for temperature in sizes.temperatures:
            for way in sizes.ways:
                asked = partial(_answers, pair, town.questions, sizes, way, temperature)
                for answers in pool.map(asked, range(len(town.questions))):
                    found += answers
            say(f"temperature {temperature:g}: {len(found)} answers so far")
    return found


def _answers(
    pair: Pair, questions: Sequence[LibraryQuestion], sizes: Sizes, way: Mode, temperature: float, number: int
) -> list[Answer]:
    question = questions[number]
    fields: dict[str, Any] = {"temperature": temperature, "seed": sizes.seed, "n": sizes.draws, "documents": 1}
    response = pair.complete(question.question, max_tokens=sizes.max_tokens, **fields, **way.fields)
    prompt = response["usage"]["prompt_tokens"]
    return [_answer(way, temperature, number, question.answer, prompt, each) for each in response["choices"]]


def _answer(way: Mode, temperature: float, number: int, wanted: str, prompt: int, choice: Mapping[str, Any]) -> Answer:
    report = choice["dragon"]
    check_whole(report, way.name)
    (source,) = report["sources"]
    return Answer(
        way.name,
        temperature,
        number,
        choice["message"]["content"].strip() == wanted,
        choice["finish_reason"] == "stop",
        tuple(report["pieces"]),
        int(source["title"]),
        prompt,
    )
