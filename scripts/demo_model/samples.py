"""The sample libraries of the demonstration, and questions that need one side or both."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from scripts.demo_model.evaluate import retrieve
from scripts.demo_model.generation import Case, Decoder
from scripts.demo_model.retrieval import Retriever
from scripts.demo_model.world.facts import Document, World
from scripts.demo_model.world.library import BOTH, PRIVATE, PUBLIC, LibraryPlan, draw_questions, make_library

SEED = 2024
CANDIDATES = 30
WANTED = {PRIVATE: 2, PUBLIC: 2, BOTH: 8}
NEEDS = {PRIVATE: "private", PUBLIC: "public", BOTH: "both"}
ALONE = {PRIVATE: "device", PUBLIC: "cloud"}
"""The side that may answer a question of a type by itself."""


def write_samples(decoder: Decoder, retriever: Retriever, root: Path) -> list[dict[str, object]]:
    """Write both libraries and the questions below the project's root; returns the questions."""
    world = World(SEED, test=True)
    library = make_library(world, LibraryPlan())
    cases = retrieve(retriever, library, draw_questions(world, library, CANDIDATES))
    questions = choose(decoder, cases)
    _write(root / "device" / "sample_library", library.private)
    _write(root / "cloud" / "sample_library", library.public)
    path = root / "scripts" / "demo" / "questions.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(questions, indent=2) + "\n")
    return questions


def choose(decoder: Decoder, cases: Sequence[Case]) -> list[dict[str, object]]:
    """Questions that both sides get right together, and a side without the facts gets wrong; relations vary."""
    sides = {side: decoder.answers(cases, side) for side in ("both", "device", "cloud")}
    taken: Counter[str] = Counter()
    relations: set[str] = set()
    chosen: list[dict[str, object]] = []
    for index, case in enumerate(cases):
        right = {side for side, answers in sides.items() if answers[index] == case.answer}
        allowed = {"both", ALONE[case.type]} if case.type in ALONE else {"both"}
        if right != allowed or case.relation in relations or taken[case.type] == WANTED[case.type]:
            continue
        taken[case.type] += 1
        relations.add(case.relation)
        chosen.append(
            {
                "question": case.question,
                "needs": NEEDS[case.type],
                "answer": case.answer,
                "device_alone": sides["device"][index],
                "cloud_alone": sides["cloud"][index],
            }
        )
    missing = [NEEDS[type_] for type_, count in WANTED.items() if taken[type_] < min(count, 3)]
    if missing:
        raise ValueError(f"too few questions come out right that need: {', '.join(missing)}")
    return chosen


def _write(folder: Path, documents: Sequence[Document]) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for number, document in enumerate(documents, start=1):
        facts = document.facts
        subject = "-".join(dict.fromkeys(fact.link.lower() or fact.kind for fact in facts))
        kind = f"{facts[0].kind}-" if facts[0].link else ""
        (folder / f"{number:03d}-{kind}{subject}.md").write_text(document.text + "\n")
