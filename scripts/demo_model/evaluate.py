"""The evaluation table: exact match per question type, together and one-sided, on three sets of libraries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.scoring.lexical import LexicalScorer
from scripts.demo_model.drafting import draft_agreement
from scripts.demo_model.generation import Agreement, Case, Decoder
from scripts.demo_model.retrieval import Retriever, nearest
from scripts.demo_model.world.facts import World
from scripts.demo_model.world.library import (
    BOTH,
    PRIVATE,
    PUBLIC,
    Library,
    LibraryPlan,
    LibraryQuestion,
    draw_questions,
    make_library,
)

DOCUMENTS_PER_SIDE = 4
SIDES = ("both", "device", "cloud")
DRAFT_STRIDE = 4
"""Every fourth question is enough to compare the models token by token."""
SETS = {
    "standard": LibraryPlan(),
    "unseen templates": LibraryPlan(unseen=True),
    "stress": LibraryPlan(crowded=True),
}


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Number of libraries per set, and of questions per library and type."""

    libraries: int = 5
    questions: int = 20
    seed: int = 7000


def prepare(retriever: Retriever, plan: EvaluationPlan, library_plan: LibraryPlan) -> list[Case]:
    """Draw libraries of held-out names and retrieve for every question."""
    cases: list[Case] = []
    for index in range(plan.libraries):
        world = World(plan.seed + index, test=True)
        library = make_library(world, library_plan)
        cases += retrieve(retriever, library, draw_questions(world, library, plan.questions))
    return cases


def retrieve(
    retriever: Retriever,
    library: Library,
    questions: Sequence[LibraryQuestion],
    documents: int = DOCUMENTS_PER_SIDE,
) -> list[Case]:
    """The `documents` that each side finds for each question, by the question alone."""
    private = retriever.embed([document.text for document in library.private])
    public = retriever.embed([document.text for document in library.public])
    vectors = retriever.embed([question.question for question in questions])
    cases = []
    for question, vector in zip(questions, vectors, strict=True):
        notes = [library.private[i] for i in nearest(vector, private, documents)]
        entries = [library.public[i] for i in nearest(vector, public, documents)]
        held = {fact.value for document in notes for fact in document.facts}
        offered = {fact.value for document in entries for fact in document.facts}
        found = question.type == PUBLIC or question.values[0] in held
        found = found and (question.type == PRIVATE or question.values[-1] in offered)
        cases.append(
            Case(
                question.type,
                question.relation,
                question.question,
                question.answer,
                question.values,
                tuple(document.text for document in notes),
                tuple(document.text for document in entries),
                found,
            )
        )
    return cases


def measure(decoder: Decoder, cases: Sequence[Case], sides: Sequence[str] = SIDES) -> dict[str, Any]:
    """Exact match per side and type, how often retrieval found the facts, and how far the sides agree."""
    agreement = Agreement()
    table: dict[str, Any] = {}
    for side in sides:
        answers = decoder.answers(cases, side, agreement if side == "both" else None)
        right = [answer == case.answer for answer, case in zip(answers, cases, strict=True)]
        table[side] = {t: _share(cases, right, t) for t in (PRIVATE, PUBLIC, BOTH)}
        if side == "both":
            found = [r for r, case in zip(right, cases, strict=True) if case.found]
            table["both, facts retrieved"] = round(sum(found) / max(1, len(found)), 3)
            table["misses"] = [
                {"question": c.question, "expected": c.answer, "answer": a, "retrieved": c.found}
                for c, a, ok in zip(cases, answers, right, strict=True)
                if not ok
            ][:8]
    table["retrieved"] = {t: _share(cases, [case.found for case in cases], t) for t in (PRIVATE, PUBLIC, BOTH)}
    table["questions"] = len(cases)
    if agreement.positions:
        table["greedy agreement with the mixture"] = {
            name: round(getattr(agreement, name) / agreement.positions, 3) for name in ("device", "cloud", "either")
        }
        table["mean total variation"] = round(float(np.mean(agreement.distance)), 3)
    return table


def _share(cases: Sequence[Case], right: Sequence[bool], type_: str) -> float:
    chosen = [ok for case, ok in zip(cases, right, strict=True) if case.type == type_]
    return round(sum(chosen) / max(1, len(chosen)), 3)


def evaluate(models: Path, plan: EvaluationPlan) -> dict[str, Any]:
    """The whole table for the model folder ``models`` (``tokenizer``, ``target``, ``draft``)."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(models / "tokenizer")
    model = Qwen2ForCausalLM.from_pretrained(models / "target", dtype=torch.float32)
    draft = Qwen2ForCausalLM.from_pretrained(models / "draft", dtype=torch.float32).eval()
    scorer = LexicalScorer.load(models / "tokenizer")
    decoder = Decoder(model, tokenizer, scorer)
    retriever = Retriever()
    table: dict[str, Any] = {"scorer": scorer.identity, "documents per side": DOCUMENTS_PER_SIDE, "sets": {}}
    for name, library_plan in SETS.items():
        print(f"evaluating: {name}", flush=True)
        cases = prepare(retriever, plan, library_plan)
        table["sets"][name] = measure(decoder, cases)
        if name == "standard":
            table["draft"] = draft_agreement(model, draft, tokenizer, cases[::DRAFT_STRIDE])
    return table


def show(table: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = ["| set | side | (a) private | (b) public | (c) both |", "|---|---|---|---|---|"]
    for name, result in table["sets"].items():
        for side in (*SIDES, "retrieved"):
            scores = " | ".join(f"{result[side][t]:.3f}" for t in (PRIVATE, PUBLIC, BOTH))
            lines.append(f"| {name} | {side} | {scores} |")
    return "\n".join(lines)


def save(table: dict[str, Any], path: Path) -> None:
    """Write the table as JSON."""
    path.write_text(json.dumps(table, indent=1) + "\n")
