"""Keys and values that were sent in 8 bits go on as the document's own would, nearly."""

from __future__ import annotations

import pytest
import torch

from common.engine.kv.documents import largest_states, pack_states, shortened, unpack_states
from tests.common.engine.model.tiny_models import Pair, some_tokens

QUERY = [5, 6, 7]
# Layers that are alike, without a window and with one, that keep latents, that share keys, and that are of two sizes.
LAYOUTS = ("llama", "mistral", "deepseek-v3", "gemma3n", "gemma4", "demo")


@pytest.mark.parametrize("pair", LAYOUTS, indirect=True)
def test_a_row_goes_on_from_what_was_sent(pair: Pair) -> None:
    decoder = pair.decoder
    document = some_tokens(decoder, 30, seed=4)
    exact = decoder.open([document], QUERY, 4)[1]
    data = pack_states(document, decoder.document_states(document, None))
    assert len(data) <= largest_states(decoder.layout, len(document))
    # a quarter of float32, and what scales and token ids add to that
    assert len(data) < 0.45 * decoder.token_bytes * len(document)
    tokens, states = unpack_states(data, decoder.layout, decoder.vocabulary, 64)
    assert tokens == document
    misses = decoder.document_cache.counters.misses
    logits = decoder.open([tokens, document], QUERY, 4, given={0: states})[1]
    assert decoder.document_cache.counters.misses == misses  # nothing was computed in place of what was given
    spread = float(exact.max() - exact.min())
    assert 0 < float((logits[0] - exact[0]).abs().max()) < 0.02 * spread
    assert float((logits[1] - exact[0]).abs().max()) < 1e-4 * spread


def test_given_states_are_not_kept(llama: Pair) -> None:
    """Another document of the same tokens is the device's own, and must not get numbers that somebody sent."""
    decoder = llama.decoder
    document = some_tokens(decoder, 12, seed=9)
    exact = decoder.open([document], QUERY, 4)[1]
    lies = tuple((torch.zeros_like(key), torch.zeros_like(value)) for key, value in
                 decoder.document_states(document, None))  # fmt: skip
    decoder.open([document], QUERY, 4, given={0: lies})
    assert torch.equal(decoder.open([document], QUERY, 4)[1], exact)


def test_the_first_tokens_are_those_of_the_shorter_document(llama: Pair) -> None:
    decoder = llama.decoder
    document = some_tokens(decoder, 20, seed=2)
    cut = shortened(decoder.document_states(document, None), 13)
    for (key, value), (same_key, same_value) in zip(cut, decoder.document_states(document[:13], None), strict=True):
        assert torch.allclose(key, same_key, atol=1e-5)
        assert torch.allclose(value, same_value, atol=1e-5)
