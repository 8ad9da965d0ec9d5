"""After every commit, both sides' caches continue as a fresh reading of the committed prefix would.

Two sessions with the real model under a virtual clock that delays, drops and reorders. Tolerance: 2e-4 absolute, for
passes in float32 that split the same tokens differently. The largest difference seen is 1.2e-5, at logits up to 20; a
side that kept the keys of a rejected token differs by 5 and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from common.answer.patience import WaitLimits
from common.answer.values import View
from common.engine.jobs import AnswerRows, Prompt
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.session import SessionConfig
from common.sampling.race import RaceSampler
from common.scoring.lexical import LexicalScorer
from proto.messages import Placement, Side
from scripts.simulation.world import Fate, Network, SideModel, World
from tests.support.one_side import OneSide

FOLDER = Path(__file__).resolve().parents[3] / "common" / "demo_model"
TOLERANCE = 2e-4
DOCUMENTS = {
    "device": ("Horror games are what I enjoy most.", "My dance class is at Delthcine House.", "My job is lawyer."),
    "cloud": ("The best-selling horror game is Falling Circus.", "Among puzzle games, Iron Road sells best."),
}
QUESTION = "\nQuestion: What is the best-selling game of the kind I like?\nAnswer:"


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder.load(str(FOLDER / "target"), tokenizer=str(FOLDER / "tokenizer"), dtype="float32")


class ModelPredictor:
    """A side's real decoding, as a daemon does it."""

    def __init__(self, decoder: Decoder, side: Side, aggregation: RaceSampler) -> None:
        encode = decoder.tokenizer.encode
        begin = decoder.tokenizer.begin
        documents = tuple((begin or 0, *encode(" " + text)) for text in DOCUMENTS[side])
        prompt = Prompt(documents, tuple(encode(QUESTION)), (0.5,) * len(documents))
        scorer = LexicalScorer.load(FOLDER / "tokenizer")
        self.documents, self.query, self.decoder = documents, prompt.query, decoder
        self.decoding = OneSide(decoder, prompt, scorer, aggregation, reserve=64)
        self.seen = 0

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        logits = self.decoding.logits(prefix)
        self.check(prefix, logits)
        drawn = self.decoding.draft(prefix, logits)
        return drawn.view, drawn.evidence

    def check(self, prefix: Sequence[int], logits: torch.Tensor) -> None:
        for document, row in zip(self.documents, logits, strict=True):
            fresh = self.decoder.fresh_logits([*document, *self.query, *prefix])
            assert float((fresh - row).abs().max()) < TOLERANCE
            self.seen += 1


@pytest.mark.parametrize(
    ("placement", "temperature"), [("device", 0.0), ("device", 1.5), ("cloud", 1.5), ("mirrored", 1.5)]
)
def test_every_step_continues_the_committed_prefix(decoder: Decoder, placement: Placement, temperature: float) -> None:
    generator = np.random.default_rng(11)
    config = SessionConfig(1, placement, decoder.eos, 14, decoder.vocabulary)
    predictors: dict[Side, ModelPredictor] = {}

    def side(role: Side, seconds: float) -> SideModel:
        aggregation = RaceSampler(9, temperature, 32, decoder.vocabulary)
        predictors[role] = ModelPredictor(decoder, role, aggregation)
        return SideModel(predictors[role], aggregation, lambda position: seconds * generator.uniform(0.5, 1.5))

    class Aggregator:
        def next_aggregator(self, position: int, accepted: object) -> Side:
            return "cloud" if placement == "cloud" else "device"

    def fate(sender: Side) -> Fate:
        return Fate(() if generator.random() < 0.1 else (float(generator.exponential(0.1)),))

    world = World(
        config,
        side("device", 0.05),
        side("cloud", 0.02),
        lambda role: Aggregator(),
        Network(fate, ordered=False),
        WaitLimits(1.0, float("inf")),
        SpeculationLimits(6, 4, 0.01, 4),
    )
    assert world.run(until=300)
    length = len(world.device.session.committed)
    assert length > 5
    assert all(predictor.seen >= length for predictor in predictors.values())


def test_a_cache_that_is_not_cropped_is_noticed(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregation = RaceSampler(9, 0.0, 32, decoder.vocabulary)
    predictor = ModelPredictor(decoder, "device", aggregation)
    good, bad = decoder.tokenizer.encode(" You like horror")[:2]
    predictor.predict(0, [])
    predictor.predict(1, [good])
    predictor.predict(2, [good, bad])
    monkeypatch.setattr(AnswerRows, "feeds", lambda rows, wanted: [Feed(rows.rows, wanted.path[-1:], 1)])
    with pytest.raises(AssertionError):
        predictor.predict(2, [bad, good])
