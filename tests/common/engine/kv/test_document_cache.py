"""Documents are computed once, and a hit changes no number."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from common.engine.kv.documents import DocumentCache
from common.engine.kv.memory import DocumentStates
from common.engine.model.decoder import Decoder
from tests.common.engine.model.tiny_models import Pair, make_model, some_tokens

QUERY = [5, 6, 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("llama", tmp_path_factory.mktemp("model"))


def states(tokens: int) -> DocumentStates:
    """States of `tokens` x 8 bytes."""
    return ((torch.zeros(1, tokens, 1), torch.zeros(1, tokens, 1)),)


class TestDecoderWithCache:
    def test_hits_and_misses_give_the_same_bits(self, folder: Path) -> None:
        cached = Decoder.load(str(folder))
        uncached = Decoder.load(str(folder), document_cache_bytes=0)
        documents = [some_tokens(cached, count, seed=count) for count in (6, 25, 11)]
        expected = uncached.open(documents, QUERY, 4)[1]
        for opened in ("computed", "from the cache"):
            assert torch.equal(cached.open(documents, QUERY, 4)[1], expected), opened
        counters = cached.document_cache.counters
        assert (counters.hits, counters.misses, counters.entries) == (3, 3, 3)
        assert counters.bytes == (6 + 25 + 11) * cached.token_bytes
        assert uncached.document_cache.counters.entries == 0
        # In another order and company, under another question: still the same numbers for the same row.
        again = cached.open([documents[2]], QUERY, 4)[1]
        assert float((again[0] - expected[2]).abs().max()) <= 2e-5 * float(expected.abs().max())

    def test_answers_do_not_leak_into_the_cache(self, llama: Pair) -> None:
        document = some_tokens(llama.decoder, 20, seed=3)
        rows, _ = llama.decoder.open([document, document], QUERY, 40)
        llama.decoder.step(rows, [9] * 30)
        rows.crop(0)
        logits = llama.decoder.open([document], [8, 9], 4)[1]
        llama.check(logits, [[*document, 8, 9]])

    def test_the_same_document_twice_is_computed_once(self, folder: Path) -> None:
        decoder = Decoder.load(str(folder))
        decoder.open([[5, 6, 7], [5, 6, 7]], QUERY, 4)
        counters = decoder.document_cache.counters
        assert (counters.hits, counters.misses) == (1, 1)


class TestDocumentCache:
    def test_drops_what_was_used_longest_ago(self) -> None:
        cache = DocumentCache(limit_bytes=24)
        names = [DocumentCache.key("model", [number]) for number in range(3)]
        cache.put(names[0], states(1))
        cache.put(names[1], states(2))
        assert cache.get(names[0]) is not None
        cache.put(names[2], states(1))
        assert cache.get(names[1]) is None
        assert cache.get(names[0]) is not None
        assert cache.get(names[2]) is not None
        counters = cache.counters
        assert (counters.evictions, counters.entries, counters.bytes) == (1, 2, 16)

    def test_what_exceeds_the_limit_drops_nothing(self) -> None:
        cache = DocumentCache(limit_bytes=24)
        cache.put(b"small", states(1))
        cache.put(b"large", states(4))
        assert cache.get(b"large") is None
        assert cache.get(b"small") is not None

    def test_putting_twice_counts_once(self) -> None:
        cache = DocumentCache(limit_bytes=24)
        cache.put(b"a", states(1))
        cache.put(b"a", states(1))
        assert cache.counters.bytes == 8

    def test_address_depends_on_model_and_tokens(self) -> None:
        keys = {
            DocumentCache.key("a", [1, 2]),
            DocumentCache.key("b", [1, 2]),
            DocumentCache.key("a", [2, 1]),
            DocumentCache.key("a", [1, 2, 0]),
            DocumentCache.key("a", [258]),
        }
        assert len(keys) == 5

    def test_negative_limit(self) -> None:
        with pytest.raises(ValueError, match="negative"):
            DocumentCache(-1)
