"""A small cross-encoder for the demonstration's world: which document holds what the answer needs next?

It starts from the embedded language model, which can look a name up in a text, and learns to say whether it is there.
Its weights are made for the benchmark and kept nowhere else.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast, Qwen2ForSequenceClassification
from transformers.utils import logging

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.model.conversation import Conversation
from common.engine.model.prompt import text_query
from common.engine.model.tokenizer import Tokenizer
from scripts.bench.results import Results
from scripts.demo_model.world.facts import Document, World
from scripts.demo_model.world.library import PUBLIC, LibraryPlan, LibraryQuestion, draw_questions, make_library

LONGEST = 256  # tokens of a pair; the world's texts are shorter
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """One step reads `groups` texts, each beside `documents` documents, one of which is the right one."""

    steps: int = 1500
    groups: int = 4
    documents: int = 6
    random_documents: int = 2  # of them; the others share the most telling words with the text
    rate: float = 5e-4
    seed: int = 77


@dataclass(frozen=True, slots=True)
class Group:
    """A text and documents, the first of which holds what comes next."""

    text: str
    documents: tuple[str, ...]


def trained(folder: Path, plan: TrainingPlan, results: Results) -> Path:
    """The folder with the model; trains it unless it is there."""
    if (folder / "model.safetensors").is_file():
        return folder
    torch.manual_seed(plan.seed)
    tokenizer = _pair_tokenizer()
    logging.set_verbosity_error()  # that the head is new is the point
    model: Any = Qwen2ForSequenceClassification.from_pretrained(EMBEDDED_MODEL, num_labels=1, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=0.01)
    warm = max(plan.steps // 10, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (plan.steps - step) / max(plan.steps - warm, 1))
    )
    source_of_groups = draw_groups(plan)
    history: list[tuple[float, float]] = []
    model.train()
    for step in range(plan.steps):
        groups = [next(source_of_groups) for _ in range(plan.groups)]
        texts = [group.text for group in groups for _ in group.documents]
        documents = [document for group in groups for document in group.documents]
        pairs = tokenizer(texts, documents, padding=True, truncation="longest_first", return_tensors="pt")
        logits = model(**pairs).logits.view(plan.groups, plan.documents)
        loss = torch.nn.functional.cross_entropy(logits, torch.zeros(plan.groups, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        history.append((float(loss.detach()), float((logits.argmax(1) == 0).float().mean())))
        if step % 50 == 49 or step == plan.steps - 1:
            recent = history[-50:]
            mean = [sum(values) / len(recent) for values in zip(*recent, strict=True)]
            results.say(f"cross-encoder, step {step + 1}: loss {mean[0]:.3f}, right document first {mean[1]:.2f}")
    results.samples("training of the cross-encoder, loss and share right", history)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _pair_tokenizer() -> Any:
    """The embedded model's, with an end after either text; the last one is where the head looks."""
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER)
    end = tokenizer.eos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    tokenizer.model_max_length = LONGEST
    return tokenizer


def draw_groups(plan: TrainingPlan) -> Iterator[Group]:
    """Groups without end, from libraries of names that no evaluation uses."""
    draws = random.Random(plan.seed)
    tokenizer = Tokenizer.load(str(EMBEDDED_TOKENIZER))
    number = 0
    while True:
        world = World(plan.seed + number)
        number += 1
        library = make_library(world, LibraryPlan())
        documents = (*library.private, *library.public)
        texts = [document.text.strip() for document in documents]
        words = [set(WORD.findall(text.lower())) for text in texts]
        counts = Counter(word for held in words for word in held)
        for question in draws.sample(draw_questions(world, library, 20), 60):
            text, number_of_value = cut(question, tokenizer, draws)
            holders = [index for index, held in enumerate(documents) if holds(held, question, number_of_value)]
            if not holders:
                raise RuntimeError(f"no document answers {question.question}")
            asked = set(WORD.findall(f"{question.question} {question.answer}".lower()))
            telling = [sum(math.log(len(texts) / counts[word]) for word in asked & held) for held in words]
            others = sorted(set(range(len(texts))) - set(holders), key=lambda index: -telling[index])
            near = others[: plan.documents - 1 - plan.random_documents]
            chosen = [holders[0], *near, *draws.sample(others[len(near) :], plan.random_documents)]
            yield Group(text, tuple(texts[index] for index in chosen))


def cut(question: LibraryQuestion, tokenizer: Tokenizer, draws: random.Random) -> tuple[str, int]:
    """The question with a beginning of its answer, and which of its values the answer needs next."""
    query = tokenizer.encode(text_query(Conversation.of(question.question)).text)
    answer = tokenizer.encode(f" {question.answer}")
    prefix = answer[: draws.choice([0, draws.randrange(len(answer)), draws.randrange(len(answer))])]
    said = tokenizer.decode(prefix)
    last = len(question.values) - 1
    waiting = (number for number, value in enumerate(question.values) if value not in said)
    return tokenizer.decode([*query, *prefix]).strip(), next(waiting, last)


def holds(document: Document, question: LibraryQuestion, number: int) -> bool:
    """Whether `document` states the value `number` of the answer, of what the question asks for."""
    value = question.values[number]
    private = question.type != PUBLIC and number == 0
    about = question.question if question.type == PUBLIC else question.values[0]  # what names a public entity
    return any(
        fact.value == value
        and (fact.kind in question.question and not fact.link if private else bool(fact.link) and fact.link in about)
        for fact in document.facts
    )
