"""Greedy decoding of the mixture over documents, for many questions at a time: the evaluation's reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.scoring.lexical import LexicalScorer
from scripts.demo_model.tokenizer import EOS_ID, PAD_ID

LONGEST_ANSWER = 48
QUESTIONS_PER_BATCH = 16


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


@dataclass(slots=True)
class Agreement:
    """Shares of positions where one side's own choice is the mixture's, over the positions of all answers."""

    positions: int = 0
    device: int = 0
    cloud: int = 0
    either: int = 0
    distance: list[float] = field(default_factory=list)


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

    def answers(self, cases: Sequence[Case], side: str, agreement: Agreement | None = None) -> list[str]:
        """The greedy answer of each case. ``side`` is ``both``, ``device`` or ``cloud``."""
        found: list[str] = []
        for start in range(0, len(cases), QUESTIONS_PER_BATCH):
            found += self._batch(cases[start : start + QUESTIONS_PER_BATCH], side, agreement)
        return found

    @torch.no_grad()
    def _batch(self, cases: Sequence[Case], side: str, agreement: Agreement | None) -> list[str]:
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
            if agreement is not None:
                _compare(agreement, weighted, scores, tokens, done)
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


def _compare(
    agreement: Agreement, weighted: torch.Tensor, scores: torch.Tensor, tokens: torch.Tensor, done: list[bool]
) -> None:
    half = weighted.shape[1] // 2
    share = scores.softmax(-1)
    device = weighted[:, :half].sum(1) / share[:, :half].sum(1)[:, None]
    cloud = weighted[:, half:].sum(1) / share[:, half:].sum(1)[:, None]
    for index, finished in enumerate(done):
        if finished:
            continue
        left = int(device[index].argmax()) == int(tokens[index])
        right = int(cloud[index].argmax()) == int(tokens[index])
        agreement.positions += 1
        agreement.device += left
        agreement.cloud += right
        agreement.either += left or right
        agreement.distance.append(float((device[index] - cloud[index]).abs().sum() / 2))


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
