"""Both embedded models in this process: what they expect behind given tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.model.conversation import Conversation
from common.engine.model.decoder import Decoder
from common.engine.model.prompt import TextFormat
from common.sampling.warping import Warp
from scripts.bench.methods.plan import TARGET
from scripts.bench.qsv.answers import Answer, Town
from scripts.bench.qsv.laws import Drafting, Law, distance, entropy, probability
from scripts.bench.qsv.plan import LENGTH
from scripts.bench.rapid.decoding import Reader

RESERVE: Final = 64  # tokens of an answer that rows have room for


@dataclass(frozen=True, slots=True)
class Computed:
    """Of one temperature and resolution: means over questions, `every` and `entropies` over all positions."""

    right: dict[str, float]  # probability of the right answer, under the target and under S-Q
    first: float  # total variation between S-Q's law and the target's, of the first token
    every: float  # of every token
    entropies: tuple[float, float]  # nats of the target's law and of S-Q's
    exact: float  # the largest total variation of Q-S's law from the target's anywhere


class Models:
    """Target and drafter on the entry that each question's answers were read from."""

    def __init__(self, town: Town, answers: Sequence[Answer]) -> None:
        """Raises `RuntimeError` where the daemons' prompt was another one."""
        self._decoders = [
            Decoder.load(str(place), tokenizer=str(EMBEDDED_TOKENIZER), dtype="float32", threads=1)
            for place in (EMBEDDED_MODEL, EMBEDDED_DRAFT)
        ]
        self._tokenizer = self._decoders[0].tokenizer
        (self._eos,) = self._decoders[0].eos
        self._ids = {self._tokenizer.piece(token): token for token in range(self._decoders[0].vocabulary)}
        self._right = [[*self._tokenizer.encode(f" {each.answer}"), self._eos] for each in town.questions]
        self._readers: list[tuple[Reader, Reader]] = []
        form = TextFormat(self._tokenizer)
        for number, question in enumerate(town.questions):
            asked = [each for each in answers if each.question == number]
            (document, *others) = {each.document for each in asked}
            prompts = {each.prompt for each in asked if each.way == TARGET.name}  # of one model
            text = form.document_tokens(town.texts.documents["cloud"][document])
            query = self._tokenizer.encode(form.query(Conversation.of(question.question)).text)
            if others or prompts != {len(text) + len(query)}:
                raise RuntimeError(f"the daemons read another prompt for {question.question!r} than is computed here")
            target, drafter = (Reader(each, text, query, RESERVE) for each in self._decoders)
            self._readers.append((target, drafter))

    def close(self) -> None:
        """Give the memory back."""
        for reader in (each for pair in self._readers for each in pair):
            reader.close()
        for decoder in self._decoders:
            decoder.close()

    def computed(self, temperature: float, resolution: int) -> Computed:
        """The laws behind the beginnings of all right answers."""
        right: dict[str, list[float]] = {"target": [], "S-Q": []}
        first, every, entropies, exact = [], [], [], 0.0
        warp = Warp(temperature)
        for tokens, readers in zip(self._right, self._readers, strict=True):
            target, drafter = (_laws(reader, tokens, warp) for reader in readers)
            pairs = list(zip(target, drafter, strict=True))
            sampled = [Drafting.inexact(p, q, resolution) for p, q in pairs]
            laws = [each.law() for each in sampled]
            right["target"].append(float(np.prod([p[token] for p, token in zip(target, tokens, strict=True)])))
            right["S-Q"].append(probability(tokens, sampled, LENGTH))
            distances = [distance(law, p) for law, p in zip(laws, target, strict=True)]
            first.append(distances[0])
            every += distances
            entropies += [(entropy(p), entropy(law)) for law, p in zip(laws, target, strict=True)]
            exact = max(exact, *(distance(Drafting.exact(p, q, resolution).law(), p) for p, q in pairs))
        own, theirs = np.mean(entropies, axis=0).tolist()
        means = {order: float(np.mean(values)) for order, values in right.items()}
        return Computed(means, float(np.mean(first)), float(np.mean(every)), (own, theirs), exact)

    def surprises(self, answer: Answer) -> list[float]:
        """-log of the target's probability, at the answer's temperature, of each of its tokens; nats.

        It ends before the first token that its piece of the text does not tell, a part of a character.
        """
        tokens = self.tokens(answer)
        if not tokens:
            return []
        laws = _laws(self._readers[answer.question][0], tokens, Warp(answer.temperature))
        return [-float(np.log(max(law[token], np.finfo(float).tiny))) for law, token in zip(laws, tokens, strict=True)]

    def tokens(self, answer: Answer) -> list[int]:
        """The ids of an answer's pieces, up to the first one that is not a token's text."""
        found: list[int] = []
        for place, piece in enumerate(answer.pieces):
            if answer.ended and place == len(answer.pieces) - 1:
                found.append(self._eos)
            else:
                # The space that answers begin with is not shown.
                token = self._ids.get(f" {piece}", self._ids.get(piece)) if place == 0 else self._ids.get(piece)
                if token is None or not piece:
                    break
                found.append(token)
        return found


@contextmanager
def models(town: Town, answers: Sequence[Answer]) -> Iterator[Models]:
    """The models, given back at the end of the block."""
    found = Models(town, answers)
    try:
        yield found
    finally:
        found.close()


def _laws(reader: Reader, tokens: Sequence[int], warp: Warp) -> list[Law]:
    rows = reader.distributions(tokens[:-1], len(tokens))
    return [_dense(row, warp) for row in rows]


def _dense(row: torch.Tensor, warp: Warp) -> Law:
    law = np.zeros(len(row))
    found = warp(row)
    law[found.ids] = found.probabilities
    return law
