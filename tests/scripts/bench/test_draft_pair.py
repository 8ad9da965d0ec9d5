"""Pairs of a target and a drafter: their overlap is the one that was asked for, and the drafter is the cheaper one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from common.engine.model.decoder import Decoder, cache_keyword
from scripts.bench.synthetic_model import DraftPair, make_pair, prompts

pytestmark = [pytest.mark.timeout(400), pytest.mark.suite]  # a pair takes some 12 s of processor time
ROWS, PROMPT, DRAWN = 120, 48, 12  # of the texts of the test itself: the documents that the pair was not made with


@pytest.fixture(scope="module", params=(0.6, 0.97))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DraftPair:
    return make_pair(tmp_path_factory.mktemp("pair"), request.param)


@torch.no_grad()
def drawn_from(target: Any) -> torch.Tensor:
    """Texts whose last tokens are drawn from the target."""
    generator = torch.Generator().manual_seed(5)
    texts = prompts(PROMPT)[-ROWS:]
    cache = {cache_keyword(target): DynamicCache(config=target.config)}
    following = texts
    for _ in range(DRAWN):
        passed = target(following, use_cache=True, **cache)
        following = torch.multinomial(passed.logits[:, -1].softmax(-1), 1, generator=generator)
        texts = torch.cat((texts, following), 1)
    return texts


def test_the_overlap_of_what_was_saved(pair: DraftPair) -> None:
    """Behind documents that were not used to set it: at .6 that makes a standard error of .005. Seeds are fixed."""
    target, drafter = (AutoModelForCausalLM.from_pretrained(each) for each in (pair.target, pair.drafter))
    texts = drawn_from(target)
    with torch.no_grad():
        p, q = (model(texts).logits[:, PROMPT - 1 : -1].double().softmax(-1) for model in (target, drafter))
    assert float(torch.minimum(p, q).sum(-1).mean()) == pytest.approx(pair.wanted, abs=0.015)
    assert pair.measured.overlap == pytest.approx(pair.wanted, abs=0.01)
    entropies = [float(torch.special.entr(each).sum(-1).mean()) for each in (p, q)]
    assert entropies == pytest.approx([3.0, 3.0], abs=0.5)
    assert pair.measured.entropy == pytest.approx(entropies[0], abs=0.2)


def test_prompts_are_documents_each_once() -> None:
    rows = prompts(64)
    assert rows.shape == (240, 64)
    assert len({tuple(row) for row in rows.tolist()}) == 240
    assert int(rows.min()) >= 0 and int(rows.max()) < 2048


def test_the_drafter_is_cheaper(pair: DraftPair) -> None:
    models = [AutoModelForCausalLM.from_pretrained(each) for each in (pair.target, pair.drafter)]
    parameters, draft_parameters = (model.num_parameters() for model in models)
    assert 2 * draft_parameters < parameters
    assert [len(model.model.layers) for model in models] == [4, 1]


def test_daemons_can_load_both_and_they_never_end(pair: DraftPair) -> None:
    generator = torch.Generator().manual_seed(3)
    for model in (pair.device["model"], pair.device["draft_model"]):
        decoder = Decoder.load(str(model), tokenizer=str(pair.device["tokenizer"]), threads=1)
        assert decoder.vocabulary == 2048
        texts = torch.randint(2, decoder.vocabulary, (8, 40), generator=generator).tolist()
        rows = [decoder.open([text], text[:8], 4)[1][0].softmax(-1) for text in texts]
        assert max(float(row[token]) for row in rows for token in decoder.eos) == 0.0


@pytest.mark.parametrize("overlap", [0.0, 1.0, -0.5, math.nan])
def test_overlaps_that_no_pair_has(overlap: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an overlap must be between 0 and 1"):
        make_pair(tmp_path, overlap)
    assert not list(tmp_path.iterdir())
