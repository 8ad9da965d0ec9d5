"""Answers as the cloud sees them, and how likely each candidate for the device's secret makes what it saw.

The device's note is one of some candidates, and the attacker has all of them, the model, its own documents and the
seed. An attacker is its logarithms of likelihoods, one per candidate, so every attack reads the same record.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.model.prompt import Conversation, PromptFormat
from common.methods.aggregate.method import LISTED_FOR_COINS
from common.sampling.certificate import WHOLE, Decision, MissingHere, eta_fixed
from common.sampling.coins import CoinSampler
from common.sampling.compiled import race_noise
from common.sampling.mixture import information, mixed, weigh
from common.sampling.race import LocalRace, RaceSampler
from common.scoring.lexical import LexicalScorer
from proto.codes import decode_probabilities, encode_probabilities

Logs = dict[str, NDArray[np.float64]]  # a logarithm of the likelihood per candidate, by attacker
Floats = NDArray[np.float64]

UNLIKELY: Final = math.log(1e-4)  # of what a candidate excludes: last bits may differ
LISTED: Final = 32  # K
GRAIN: Final = 0.25  # nats, of the mitigation for evidence
CERTAIN: Final = 60.0  # nats of evidence that leave the other side no weight


@dataclass(frozen=True, slots=True)
class Trial:
    """A question and the candidates for one note; the device has the one at `secret`."""

    question: str
    notes: tuple[str, ...]
    secret: int
    others: tuple[str, ...]  # the device's further documents, known to the attacker
    public: tuple[str, ...]
    seed: int
    temperature: float
    tokens: int


class Mixture(NamedTuple):
    probabilities: torch.Tensor  # float32 [vocab]
    evidence: float

    @property
    def rounded(self) -> Floats:
        return decode_probabilities(encode_probabilities(self.probabilities.double().numpy()))


@dataclass
class Model:
    """A model with its scorer; without one documents are weighed by the change that they make."""

    decoder: Decoder
    prompt: PromptFormat
    scorer: LexicalScorer | None

    def read(self, trial: Trial) -> Reading:
        return Reading(self, trial)


class Reading:
    """The mixtures of all candidates and of the cloud after any answer."""

    def __init__(self, model: Model, trial: Trial) -> None:
        self._model, self._trial = model, trial
        prompt, decoder = model.prompt, model.decoder
        query = list(decoder.tokenizer.encode(prompt.query(Conversation.of(trial.question)).text))
        texts = (*trial.notes, *trial.others, *trial.public)
        documents = [prompt.document_tokens(text) for text in texts]
        notes, own = len(trial.notes), len(trial.others)
        shared, last = list(range(notes, notes + own)), len(texts)
        self._sides = [[note, *shared] for note in range(notes)] + [list(range(notes + own, last))]
        self._without = last if model.scorer is None else None
        self._rows, self._first = self._open([*documents, []] if model.scorer is None else documents, query)
        scorer = model.scorer
        self._scoring = (
            None if scorer is None else [scorer.begin(query, [documents[row] for row in side]) for side in self._sides]
        )

    def _open(self, documents: Sequence[Sequence[int]], query: Sequence[int]) -> tuple[Rows, torch.Tensor]:
        return self._model.decoder.open(documents, query, self._trial.tokens + 1)

    def after(self, answer: Sequence[int]) -> tuple[list[Mixture], Mixture]:
        """The mixtures of the device for each candidate, and the cloud's, after one more token than before."""
        logits = self._model.decoder.step(self._rows, answer[-1:]) if answer else self._first
        rows = torch.softmax(logits, dim=-1, dtype=torch.float32)
        found = []
        for number, side in enumerate(self._sides):
            if self._scoring is not None:
                scores = self._scoring[number].scores(answer)
            else:
                chosen = [*side, self._without]
                scores = information(logits[chosen], rows[chosen])
            weights = weigh(scores)
            (mixture,) = mixed([rows[side]], [weights])
            found.append(Mixture(mixture, weights.evidence))
        return found[:-1], found[-1]

    def close(self) -> None:
        self._model.decoder.memory.give_back(self._rows)


# --- the cloud's part in an answer

Lie = Callable[[int, Mixture], Mixture]  # the cloud's claim at a position, in place of its mixture


def honest(position: int, mixture: Mixture) -> Mixture:
    return mixture


def weightless(position: int, mixture: Mixture) -> Mixture:
    """Leaves all weight to the device."""
    return mixture._replace(evidence=-CERTAIN)


def forced(tokens: Sequence[int]) -> Lie:
    """Makes the answer begin with `tokens`, then leaves all weight to the device."""

    def lie(position: int, mixture: Mixture) -> Mixture:
        if position >= len(tokens):
            return weightless(position, mixture)
        point = torch.zeros_like(mixture.probabilities)
        point[tokens[position]] = 1.0
        return Mixture(point, CERTAIN)

    return lie


# --- one position


@dataclass
class Seen:
    """All that was seen of an answer, as logarithms of likelihoods."""

    logs: Logs = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    accepted: int = 0  # drafts of the cloud

    def add(self, attacker: str, logs: Floats) -> None:
        self.logs[attacker] = self.logs.get(attacker, np.zeros(len(logs))) + np.maximum(logs, UNLIKELY)


def targets(mixtures: Sequence[Mixture], cloud: Mixture, temperature: float) -> Floats:
    """The law of the token for each candidate, `[candidates, vocab]`; at temperature 0 a certainty."""
    etas = [eta_fixed(each.evidence, cloud.evidence) / WHOLE for each in mixtures]
    laws: Floats = np.stack(
        [eta * each.rounded + (1 - eta) * cloud.rounded for eta, each in zip(etas, mixtures, strict=True)]
    )
    if temperature == 0:
        certain: Floats = (np.arange(laws.shape[1]) == laws.argmax(axis=1)[:, None]).astype(np.float64)
        return certain
    laws **= 1.0 / temperature
    laws /= laws.sum(axis=1, keepdims=True)
    return laws


def excluded(fits: Sequence[bool] | NDArray[np.bool_]) -> Floats:
    return np.where(np.asarray(fits), 0.0, UNLIKELY)


def race(trial: Trial, sampler: RaceSampler, mixtures: Sequence[Mixture], cloud: Mixture, at: int, seen: Seen) -> int:
    """Decide a position as `strict` and `balanced` do; returns the token."""
    own = mixtures[trial.secret]
    mine: LocalRace = sampler.draft(at, own.probabilities)
    theirs: LocalRace = sampler.draft(at, cloud.probabilities)
    token, _ = decided(sampler, at, mine, theirs, (own.evidence, cloud.evidence))
    ids = np.arange(len(own.probabilities))
    noise = race_noise(trial.seed, at, ids, trial.temperature).astype(np.float64)
    speeds, other = [each.rounded / noise for each in mixtures], cloud.rounded / noise
    etas = [eta_fixed(each.evidence, cloud.evidence) for each in mixtures]
    won = [int((eta * own + (WHOLE - eta) * other).argmax()) for eta, own in zip(etas, speeds, strict=True)]
    drafts = np.asarray([int(each.argmax()) for each in speeds])
    law = targets(mixtures, cloud, trial.temperature)
    fits = np.asarray(won) == token
    told = mine.entries
    lists = [
        np.array_equal(encode_probabilities(each.probabilities.double().numpy()[told.ids]), told.codes)
        for each in mixtures
    ]
    evidence = np.asarray([each.evidence for each in mixtures])
    seen.add("text", np.log(np.maximum(law[:, token], 1e-300)))
    seen.add("strict", excluded(fits))
    seen.add("strict, times", excluded(fits & ((drafts == token) == (mine.token == token))))
    seen.add("evidence", excluded(fits & (evidence == own.evidence)))
    coarse = np.round(evidence / GRAIN) == round(own.evidence / GRAIN)
    seen.add("evidence by quarters", excluded(fits & coarse))
    seen.add("balanced", excluded(fits & np.asarray(lists)))
    seen.accepted += theirs.token == token
    return token


def decided(
    sampler: RaceSampler, at: int, mine: LocalRace, theirs: LocalRace, evidence: tuple[float, float]
) -> tuple[int, bool]:
    """The device's decision by the product's own sampler, and whether it asked the cloud."""
    local, remote, told = mine, sampler.read("cloud", at, sampler.pack(theirs)), False
    while not isinstance(outcome := sampler.aggregate("device", at, local, remote, evidence), Decision):
        asked = (outcome.ids, outcome.depth)
        if isinstance(outcome, MissingHere):
            local = sampler.complete(local, at, *asked, sampler.supply(mine, *asked))
        else:
            remote, told = sampler.complete(remote, at, *asked, sampler.supply(theirs, *asked)), True
    return outcome.token, told


def secret(trial: Trial, sampler: CoinSampler, mixtures: Sequence[Mixture], cloud: Mixture, at: int, seen: Seen) -> int:
    """Decide a position as `secret` does at temperature 1; returns the token. Questions are seen as well."""
    own = mixtures[trial.secret]
    mine, theirs = sampler.draft(at, own.probabilities), RaceSampler.draft(sampler, at, cloud.probabilities)
    token, asked = decided(sampler, at, mine, theirs, (own.evidence, cloud.evidence))
    etas = np.asarray([eta_fixed(each.evidence, cloud.evidence) / WHOLE for each in mixtures])
    law = targets(mixtures, cloud, 1.0)
    told = law[:, token]
    if token not in theirs.speed_of:  # a question tells whose part it was
        part = (1 - etas) * cloud.rounded[token]
        told = part if asked else np.maximum(law[:, token] - part, 0.0)
    seen.add("text", np.log(np.maximum(law[:, token], 1e-300)))
    seen.add("secret", np.log(np.maximum(told, 1e-300)))
    seen.accepted += theirs.token == token
    return token


def kept(trial: Trial, coins: random.Random, mixtures: Sequence[Mixture], cloud: Mixture, at: int, seen: Seen) -> int:
    """Decide a position by coins that keep the cloud's draft where they can; returns the token."""
    law = targets(mixtures, cloud, trial.temperature)
    (other,) = targets([cloud], cloud, trial.temperature)
    draft = pick(coins, other)
    keeps = np.minimum(1.0, law[:, draft] / other[draft])
    rest = np.maximum(0.0, law - other)
    rest /= np.maximum(rest.sum(axis=1, keepdims=True), 1e-300)
    token = draft if coins.random() < keeps[trial.secret] else pick(coins, rest[trial.secret])
    chance = (1 - keeps) * rest[:, token] + (keeps if token == draft else 0.0)
    seen.add("text", np.log(np.maximum(law[:, token], 1e-300)))
    seen.add("kept draft", np.log(np.maximum(chance, 1e-300)))
    seen.accepted += draft == token
    return token


def pick(coins: random.Random, law: Floats) -> int:
    edges = law.cumsum()
    return int(np.searchsorted(edges, coins.random() * edges[-1], side="right").clip(0, len(law) - 1))


# --- whole answers


def record(model: Model, trial: Trial, way: str, lie: Lie = honest, eos: frozenset[int] = frozenset()) -> Seen:
    """Let both sides answer, by the `race`, by the coins of `secret`, or by coins that `kept` the draft."""
    seen = Seen()
    own = CoinSampler(1.0, LISTED_FOR_COINS, model.decoder.vocabulary, coin=random.Random(trial.seed).random)
    sampler = RaceSampler(trial.seed, trial.temperature, LISTED, model.decoder.vocabulary, hide_ids=True)
    coins = random.Random(trial.seed)
    reading = model.read(trial)
    try:
        while len(seen.tokens) < trial.tokens and not eos & set(seen.tokens[-1:]):
            mixtures, cloud = reading.after(seen.tokens)
            at, cloud = len(seen.tokens), lie(len(seen.tokens), cloud)
            if way == "race":
                seen.tokens.append(race(trial, sampler, mixtures, cloud, at, seen))
            elif way == "secret":
                seen.tokens.append(secret(trial, own, mixtures, cloud, at, seen))
            else:
                seen.tokens.append(kept(trial, coins, mixtures, cloud, at, seen))
    finally:
        reading.close()
    return seen
