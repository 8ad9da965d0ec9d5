"""Exact match on the demonstration's world against documents per side: output and context aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.scoring.lexical import LexicalScorer
from scripts.demo_model.evaluate import retrieve
from scripts.demo_model.generation import Case, Decoder
from scripts.demo_model.retrieval import Retriever
from scripts.demo_model.world.facts import World
from scripts.demo_model.world.library import BOTH, PRIVATE, PUBLIC, LibraryPlan, draw_questions, make_library

COUNTS = (0, 1, 2, 4, 8, 16)
SHORT_COUNTS = (0, 2)
KINDS = {PRIVATE: "private fact", PUBLIC: "public fact", BOTH: "both"}
CONTEXT = 256  # tokens of documents that are concatenated, at most, as in DRAGON §7.3
SEED = 7400

Shares = dict[str, dict[int, dict[str, float]]]  # by method, documents per side, kind of question


def exact_match(counts: Sequence[int], libraries: int, questions: int) -> Shares:
    """Share of answers that are right to the letter, greedy, with the embedded model."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM.from_pretrained(EMBEDDED_MODEL, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER)
    decoder = Decoder(model, tokenizer, LexicalScorer.load(EMBEDDED_TOKENIZER))
    retriever = Retriever()
    drawn = []
    for index in range(libraries):
        world = World(SEED + index, test=True)
        library = make_library(world, LibraryPlan())
        drawn.append((library, draw_questions(world, library, questions)))
    result: Shares = {}
    for count in counts:
        cases = [case for library, asked in drawn for case in retrieve(retriever, library, asked, max(count, 1))]
        if count == 0:
            cases = [replace(case, private=("",), public=("",)) for case in cases]
        for method, side, shown in _methods(decoder, cases):
            answers = decoder.answers(shown, side)
            right = [answer == case.answer for answer, case in zip(answers, shown, strict=True)]
            by_kind = {}
            for kind, name in KINDS.items():
                those = [ok for ok, case in zip(right, shown, strict=True) if case.type == kind]
                by_kind[name] = sum(those) / len(those)
            result.setdefault(method, {})[count] = by_kind
    return result


def _methods(decoder: Decoder, cases: Sequence[Case]) -> list[tuple[str, str, list[Case]]]:
    """Name, sides and cases of each method."""
    joined = [replace(case, private=(_concatenated(decoder, case),), public=()) for case in cases]
    every = list(cases)
    return [
        ("device only", "device", every),
        ("cloud only", "cloud", every),
        ("DRCG (concatenated)", "device", joined),
        ("DRAGON", "both", every),
    ]


def _concatenated(decoder: Decoder, case: Case) -> str:
    """Both sides' documents in turn, best first, as many as the context holds; the best one next to the question."""
    texts = [text for pair in zip(case.private, case.public, strict=True) for text in pair]
    kept: list[str] = []
    length = 0
    for text in texts:
        length += len(decoder.encode(" " + text))
        if length > CONTEXT and kept:
            break
        kept.append(text)
    return " ".join(reversed(kept))
