"""Adjusted drafts of two sides decide what one adjusted mixture of all documents would."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.answer.values import SideDraft
from common.engine.draw import Sample, draw
from common.methods.aggregate.driver import make_sampler
from common.methods.paper.joint import make_joint
from common.methods.paper.sampler import make_paper_sampler
from common.processors.processor import Adjustment
from common.sampling.certificate import Decision, JointToken, Logprobs
from common.sampling.race import RaceKernel, RaceSampler
from proto.messages import Open, Side

VOCABULARY, DOCUMENTS = 60, 3
KERNEL = RaceKernel(VOCABULARY)
OPEN = Open(
    1, "speculative", "q", "p", 4, 77, 0.0, "race", "race", VOCABULARY, True, 1.0, "device", "both", 1, 8, likeliest=8
)
SIDES: tuple[Side, Side] = ("device", "cloud")


class Case:
    """Logits and scores of both sides' documents, and an adjustment that matters."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        rows = generator.normal(0, 1.5, (2, DOCUMENTS, VOCABULARY)).astype(np.float32)
        self.logits = [torch.from_numpy(each) for each in rows]
        self.scores = generator.normal(0, 1, (2, DOCUMENTS))
        ids = generator.choice(VOCABULARY, 20, replace=False)
        self.allowed = torch.from_numpy(generator.random(VOCABULARY) < 0.7)
        self.adjustment = Adjustment(ids, generator.normal(0, 3, 20), self.allowed)

    def law(self) -> np.ndarray:
        """The adjusted mixture of all documents, [vocab], computed at once."""
        rows = torch.softmax(torch.cat(self.logits).double(), dim=-1).numpy()
        weights = np.exp(self.scores.reshape(-1))
        factors = np.ones(VOCABULARY)
        factors[self.adjustment.ids] = np.exp(self.adjustment.biases)
        mixture = (weights / weights.sum()) @ rows * factors * self.allowed.numpy()
        law: np.ndarray = mixture / mixture.sum()
        return law


def drawn_of(sample: Sample, logits: torch.Tensor) -> SideDraft:
    (drawn,) = draw(logits, [sample], KERNEL)
    assert isinstance(drawn, SideDraft)
    return drawn


def decide(case: Case) -> Decision:
    """The target of two sides that know nothing of each other but their drafts."""
    halves = [make_sampler(side, OPEN, VOCABULARY, make_paper_sampler) for side in SIDES]
    drafts = [
        drawn_of(Sample(5, scores, half, adjustment=case.adjustment), logits)
        for scores, half, logits in zip(case.scores, halves, case.logits, strict=True)
    ]
    device, cloud = halves
    assert isinstance(device, RaceSampler)
    remote = device.read("cloud", 5, cloud.pack(drafts[1].view))
    decided = device.aggregate("device", 5, drafts[0].view, remote, (drafts[0].evidence, drafts[1].evidence))  # type: ignore[arg-type]
    assert isinstance(decided, Decision)
    return decided


def told(logprobs: Logprobs | None) -> Logprobs:
    assert logprobs is not None
    return logprobs


@pytest.mark.parametrize("seed", range(40))
def test_two_sides_take_the_most_probable_token_of_the_law(seed: int) -> None:
    case = Case(seed)
    law, decided = case.law(), decide(case)
    assert decided.token == law.argmax()
    found = told(decided.logprobs)
    assert found.token == pytest.approx(np.log(law.max()), abs=1e-3)
    assert [token for token, _ in found.top[:5]] == np.argsort(-law)[:5].tolist()
    assert [value for _, value in found.top[:5]] == pytest.approx(np.sort(np.log(law[law > 0]))[::-1][:5], abs=2e-3)


@pytest.mark.parametrize("seed", range(10))
def test_a_device_with_all_documents_takes_it_too(seed: int) -> None:
    case = Case(seed)
    sample = Sample(
        5,
        case.scores.reshape(-1),
        make_sampler("device", OPEN, VOCABULARY, make_paper_sampler),
        fetched=DOCUMENTS,
        joint=make_joint(OPEN, VOCABULARY, "cpu"),
        adjustment=case.adjustment,
    )
    view = drawn_of(sample, torch.cat(case.logits)).view
    assert isinstance(view, JointToken)
    assert view.token == case.law().argmax()
    assert told(view.logprobs).token == pytest.approx(np.log(case.law().max()), abs=1e-3)


def test_documents_have_their_shares_in_a_token_as_before() -> None:
    case, half = Case(3), make_sampler("device", OPEN, VOCABULARY, make_paper_sampler)
    plain = drawn_of(Sample(5, case.scores[0], half), case.logits[0])
    changed = drawn_of(Sample(5, case.scores[0], half, adjustment=case.adjustment), case.logits[0])
    assert changed.evidence != plain.evidence
    for token in set(plain.view.listed.tolist()) & set(changed.view.listed.tolist()):  # type: ignore[attr-defined]
        assert changed.mixing.contributions(token) == pytest.approx(plain.mixing.contributions(token))


def test_an_answer_without_a_possible_token_ends_and_its_neighbour_does_not() -> None:
    case, half = Case(4), make_sampler("device", OPEN, VOCABULARY, make_paper_sampler)
    nothing = Adjustment(case.adjustment.ids, case.adjustment.biases, torch.zeros(VOCABULARY, dtype=torch.bool))
    samples = [Sample(5, case.scores[0], half), Sample(5, case.scores[1], half, adjustment=nothing)]
    good, bad = draw(torch.cat(case.logits), samples, KERNEL)
    assert isinstance(bad, ValueError)
    assert isinstance(good, SideDraft)
    assert good.view.token == drawn_of(samples[0], case.logits[0]).view.token
