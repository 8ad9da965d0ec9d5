"""The quality suite: its mixture, its corpus, and a short run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from scripts.bench.quality import perplexity
from scripts.bench.quality.blocks import BlockPass, block_pass
from scripts.bench.quality.corpus import END, TEXT_FOLDER, Corpus, spread, train_tokenizer
from scripts.bench.quality.perplexity import Sizes, Text, mixture
from scripts.bench.quality.suite import report
from scripts.bench.quality.text_model import Recipe, is_trained, train
from scripts.bench.results import NoText, Results

pytestmark = pytest.mark.suite

WORDS = ["alpha", "beta", "gamma", "delta", "house", "tree", "river", "mill", "stone", "harbour"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(" ".join(random.choice(WORDS, 300)))
    return folder


def test_aggregating_per_side_and_then_both_is_one_mixture() -> None:
    """Eq. 1 on each side, then η from the evidences, against the weights over all documents."""
    random = np.random.default_rng(1)
    log_likelihood = np.log(random.uniform(0.01, 1.0, (4, 6)))
    similarity = random.uniform(0.2, 0.4, 4).astype(np.float32)
    scores = 20.0 * similarity.astype(np.float64)
    sides = []
    for side in (slice(0, 2), slice(2, 4)):
        evidence = np.logaddexp.reduce(scores[side])
        sides.append((evidence, np.exp(log_likelihood[side] + (scores[side] - evidence)[:, None]).sum(axis=0)))
    weights = np.exp([evidence - np.logaddexp.reduce(scores) for evidence, _ in sides])
    both = weights[0] * sides[0][1] + weights[1] * sides[1][1]
    assert mixture(log_likelihood, scores[:, None]) == pytest.approx(-float(np.log(both).mean()))


def test_the_halves_of_a_corpus_share_no_text(texts: Path) -> None:
    corpus = Corpus.load(texts)
    assert len(corpus.known) + len(corpus.unseen) == 8
    assert corpus.known
    assert corpus.unseen
    assert not set(corpus.known) & set(corpus.unseen)


def test_a_missing_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(TEXT_FOLDER, raising=False)
    with pytest.raises(NoText, match=TEXT_FOLDER):
        Corpus.load()
    with pytest.raises(NoText, match="holds no two"):
        Corpus.load(tmp_path)


def test_pieces_are_taken_from_everywhere() -> None:
    assert spread([[number] for number in range(10)], 4) == [[0], [3], [6], [9]]


def test_a_block_alone_is_a_row_and_every_row_begins_alike(texts: Path) -> None:
    """Otherwise one document per side would tell of the token that a row lacks, not of blocks."""
    corpus = Corpus.load(texts)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(corpus.known, 300), eos_token=END)
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    text = Text(LlamaForCausalLM(config), tokenizer, corpus, Sizes(8, 16, 20, 1, (1, 2), context=64))
    found = text.window(0)
    for blocks in (perplexity.SIDES_BLOCKS, perplexity.SIDES_AGAIN):
        assert found[blocks, 1] == pytest.approx(found[perplexity.SIDES, 1], abs=1e-5)
        assert found[blocks, 2] != pytest.approx(found[perplexity.SIDES, 2], abs=1e-5)


def test_differences_are_per_cent_of_perplexity(tmp_path: Path) -> None:
    """Twice the perplexity is +100 %, half of it -50 %."""
    twice = perplexity.COMPARED[0][0]
    found = {method: {count: [1.0, 1.5, 2.0] for count in (0, 1)} for method in perplexity.METHODS}
    found[twice][1] = [each + math.log(2) for each in found[twice][1]]
    results = Results("quality", tmp_path)
    report(results, "Perplexity", "perplexity", found, Sizes(8, 16, 20, 3, (0, 1)))
    rows = results.record["tables"]["Differences in per cent: Perplexity"]["rows"]
    told = {(one, other): cells[0] for one, other, *cells in rows}
    assert told[perplexity.COMPARED[0]] == "+100.00"
    assert {cell for (_, other), cell in told.items() if other == twice} == {"-50.00"}


def test_a_model_of_other_texts_is_not_used(texts: Path, tmp_path: Path) -> None:
    recipe = Recipe(vocabulary=300, steps=1, batch=2, window=32, document=16, library=10)
    corpus, folder = Corpus.load(texts), tmp_path / "model"
    folder.mkdir()
    train(corpus, recipe, folder, print)
    assert is_trained(corpus, recipe, folder)
    assert not is_trained(Corpus(corpus.unseen, corpus.known), recipe, folder)


class TestBlocks:
    DOCUMENTS = ([11, 12, 13], [21, 22], [31, 32, 33, 34])
    QUERY = (41, 42)

    def logits(self, read: BlockPass) -> torch.Tensor:
        torch.manual_seed(4)
        config = LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
        )
        model = LlamaForCausalLM(config).eval()
        with torch.inference_mode():
            found: torch.Tensor = model(
                input_ids=read.tokens[None], position_ids=read.positions[None], attention_mask=read.mask
            ).logits[0, -len(self.QUERY) :]
        return found

    def plain(self, tokens: list[int]) -> BlockPass:
        size = len(tokens)
        return BlockPass(torch.tensor(tokens), torch.arange(size), torch.ones(size, size).tril().bool())

    def test_documents_that_are_read_again_as_a_whole_are_one_context(self) -> None:
        whole = self.plain([1, *(token for document in self.DOCUMENTS for token in document), *self.QUERY])
        again = self.logits(block_pass(self.DOCUMENTS, self.QUERY, 1, 1.0))
        assert torch.allclose(again, self.logits(whole), atol=1e-5)
        for share in (0.0, 0.5):
            assert not torch.allclose(self.logits(block_pass(self.DOCUMENTS, self.QUERY, 1, share)), again, atol=1e-3)

    def test_one_document_is_one_context(self) -> None:
        alone = block_pass(self.DOCUMENTS[:1], self.QUERY, 1, 0.5)
        assert torch.allclose(self.logits(alone), self.logits(self.plain([1, *self.DOCUMENTS[0], *self.QUERY])))

    def test_a_document_sees_the_beginning_and_itself(self) -> None:
        read = block_pass(self.DOCUMENTS, self.QUERY, 1)
        tokens = read.tokens.tolist()
        assert read.tokens[read.sees[tokens.index(22)]].tolist() == [1, 21, 22]
        assert read.tokens[read.sees[-1]].tolist() == [1, 11, 12, 13, 21, 22, 31, 32, 33, 34, 41, 42]
