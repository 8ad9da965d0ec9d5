"""Drafts of several answers from one pass, some of them with a row that has no document."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from common.answer.values import SideDraft
from common.engine import draw as sampling
from common.engine.draw import Sample, draw
from common.sampling.mixture import Attribution, distributions, information, mixed
from common.sampling.race import LocalRace, RaceKernel
from tests.common.engine.greedy_client import RaceDrafter

VOCABULARY = 500
LOGITS = 3 * torch.randn(8, VOCABULARY, generator=torch.Generator().manual_seed(6))
PLAIN, CONTRASTED = np.array([0.5, -1.0]), np.array([0.2, 0.1])
KERNEL = RaceKernel(VOCABULARY)


def sample(scores: np.ndarray, gain: float | None = None) -> Sample:
    return Sample(3, scores, RaceDrafter(seed=9, vocabulary=VOCABULARY), gain=gain)


def only(drawn: list[SideDraft | Exception]) -> list[SideDraft]:
    assert all(isinstance(each, SideDraft) for each in drawn), drawn
    return [each for each in drawn if isinstance(each, SideDraft)]


def test_what_a_document_tells_is_part_of_its_weight() -> None:
    (found,) = only(draw(LOGITS[:3], [sample(CONTRASTED, 2.0)], KERNEL))
    scores = CONTRASTED + 2.0 * information(LOGITS[:3])
    (expected,) = only(draw(LOGITS[:2], [sample(scores)], KERNEL))
    assert found.evidence == expected.evidence != only(draw(LOGITS[:2], [sample(CONTRASTED)], KERNEL))[0].evidence
    assert found.view.token == expected.view.token
    assert isinstance(found.mixing, Attribution)
    assert isinstance(expected.mixing, Attribution)
    assert np.array_equal(found.mixing.weights, expected.mixing.weights)
    assert np.array_equal(found.mixing.probabilities, expected.mixing.probabilities)
    assert torch.equal(kept_of(found)[0], kept_of(expected)[0])
    without = distributions(LOGITS[2:3])[0].numpy()
    assert found.mixing.without is not None
    assert np.array_equal(found.mixing.without, without[found.mixing.ids])


def test_each_row_is_normalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def counting(normalise: Callable[..., Any]) -> Callable[..., Any]:
        def counted(logits: torch.Tensor, *args: Any, **options: Any) -> Any:
            rows.append(logits.numel() // VOCABULARY)
            return normalise(logits, *args, **options)

        return counted

    for place, name in ((torch, "softmax"), (torch, "log_softmax"), (torch.Tensor, "logsumexp")):
        monkeypatch.setattr(place, name, counting(getattr(place, name)))
    only(draw(LOGITS, [sample(PLAIN), sample(CONTRASTED, 1.0), sample(CONTRASTED, 1.0)], KERNEL))
    assert rows == [8]


def test_answers_with_and_without_such_a_row_go_together() -> None:
    samples = [sample(PLAIN), sample(CONTRASTED, 1.0), sample(CONTRASTED, 1.0)]
    together = only(draw(LOGITS, samples, KERNEL))
    ends = [0, 2, 5, 8]
    for index, each in enumerate(samples):
        (alone,) = only(draw(LOGITS[ends[index] : ends[index + 1]], [each], KERNEL))
        assert (together[index].evidence, together[index].view.token) == (alone.evidence, alone.view.token)


def test_a_broken_row_ends_its_own_answer_only() -> None:
    broken = LOGITS.clone()
    broken[4] = torch.nan  # the row without a document of the second answer
    first, second, third = draw(broken, [sample(PLAIN), sample(CONTRASTED, 1.0), sample(CONTRASTED, 1.0)], KERNEL)
    assert isinstance(second, ValueError)
    assert only([first, third])


def test_what_failed_leaves_its_memory_to_what_is_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failed, held = list[weakref.ref[torch.Tensor]](), list[bool]()

    def fragile(rows: Sequence[torch.Tensor], weights: Sequence[Any]) -> Any:
        held.append(any(each() is not None for each in failed))
        if len(weights) > 1:
            mixtures = torch.zeros(10)
            failed.append(weakref.ref(mixtures))
            raise RuntimeError("out of memory")
        return mixed(rows, weights)

    monkeypatch.setattr(sampling, "mixed", fragile)
    assert len(only(draw(LOGITS[:4], [sample(PLAIN)] * 2, KERNEL))) == 2
    assert failed
    assert held == [False] * 3


@pytest.mark.parametrize("count", [1, 2])
def test_a_draft_outlives_the_passes_that_follow(count: int) -> None:
    """Passes share their working memory, and a draft is looked at until its position is decided."""
    drawn = only(draw(LOGITS[: 2 * count], [sample(PLAIN)] * count, KERNEL))
    kept = [kept_of(each) for each in drawn]
    only(draw(LOGITS[2 * count :] * 2, [sample(CONTRASTED)] * (4 - count), KERNEL))
    for each, (mixture, shares) in zip(drawn, kept, strict=True):
        assert torch.equal(kept_of(each)[0], mixture)
        assert np.array_equal(kept_of(each)[1], shares)


def kept_of(drawn: SideDraft) -> tuple[torch.Tensor, np.ndarray]:
    """Copies of a draft's mixture and of what its documents make of it."""
    assert isinstance(drawn.view, LocalRace)
    assert isinstance(drawn.mixing, Attribution)
    assert drawn.view.probabilities.untyped_storage().nbytes() == 4 * VOCABULARY  # it keeps nobody else's
    return drawn.view.probabilities.clone(), drawn.mixing.probabilities.copy()
