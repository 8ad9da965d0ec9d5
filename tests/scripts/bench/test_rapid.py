"""The parts of the suite `rapid`. How long anything takes is not tested."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_TOKENIZER
from common.engine.model.decoder import Decoder
from common.library.embedder import SentenceTransformerEmbedder
from scripts.bench.rapid.decoding import Reader, alone, scheme_of, together
from scripts.bench.rapid.haystack import haystack, retrieved
from scripts.bench.rapid.laws import laws, paper_law

pytestmark = pytest.mark.suite

TOKENS = 24


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = Decoder.load(str(EMBEDDED_DRAFT), tokenizer=str(EMBEDDED_TOKENIZER), dtype="float32")
    yield decoder
    decoder.close()


@pytest.mark.parametrize("length", [1, 5])
def test_both_together_are_the_verifier_without_strength(decoder: Decoder, length: int) -> None:
    encode = decoder.tokenizer.encode
    document = encode(" The best-selling horror game is Falling Circus. Iron Road sells best among puzzle games.")
    query = encode("\nQuestion: What is the best-selling horror game?\nAnswer:")
    whole, part = (Reader(decoder, tokens, query, TOKENS + 1) for tokens in (document, document[:5]))
    scheme = scheme_of(decoder.vocabulary, tuple(sorted(decoder.eos)), TOKENS, eta=0.0)
    expected = alone(whole, scheme, 1)
    found = together(part, whole, scheme, length)
    assert found.tokens == expected.tokens
    assert found.proposed > found.accepted  # the drafter does not know all of it
    for reader in (whole, part):
        reader.close()


def test_the_needle_is_what_a_library_finds(decoder: Decoder) -> None:
    hay = haystack(decoder.tokenizer, 900, 0.5, 3)
    assert 850 < len(decoder.tokenizer.encode(hay.text)) < 1000
    parts = retrieved(hay, decoder.tokenizer, SentenceTransformerEmbedder(), 250)
    assert hay.answer in parts.related
    assert hay.answer not in parts.unrelated
    assert len(decoder.tokenizer.encode(parts.related)) <= 250


def test_the_published_law() -> None:
    """The golden numbers of η 2."""
    p, q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.3, 0.5])
    target = np.asarray([0.292285, 0.319547, 0.388168])
    assert paper_law(p, target, q) == pytest.approx([0.311832, 0.3, 0.388168], abs=1e-6)
    found = laws(torch.from_numpy(p), torch.from_numpy(q), 2.0)
    assert found.from_verifier == pytest.approx(0.188168, abs=1e-6)
    assert found.accepted == pytest.approx(np.minimum(target, q).sum(), abs=1e-6)
    assert laws(torch.from_numpy(p), torch.from_numpy(q), 0.0).moved == 0.0
