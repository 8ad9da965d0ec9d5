"""Rows after a conversation's earlier turns: what they compute, what is kept of them, and for whom."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
import torch
from torch import Tensor

from common.answer.values import Work
from common.engine.jobs import AnswerRows, Blocks, Prompt
from common.engine.kv.documents import DocumentCache
from common.engine.kv.memory import DocumentStates, states_bytes
from common.engine.model.decoder import Decoder
from tests.common.engine.kv.storing import LAYOUT, synthetic
from tests.common.engine.model.test_rotation import BEGIN, LEARNED, TURNED, reference
from tests.common.engine.model.tiny_models import TOLERANCE, Pair, load_pair, some_tokens


@pytest.fixture(scope="module", params=TURNED)
def turned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load_pair(request.param, tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module", params=LEARNED)
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load_pair(request.param, tmp_path_factory.getbasetemp())


def made(decoder: Decoder, seed: int, turns: int = 17) -> Prompt:
    """Two documents, and a row without any, after `turns` tokens; every seed has its own tokens."""
    begin = tuple(some_tokens(decoder, BEGIN, seed))
    documents = tuple((*begin, *some_tokens(decoder, length, seed + length)) for length in (9, 6))
    query, earlier = tuple(some_tokens(decoder, 4, seed + 1)), tuple(some_tokens(decoder, turns, seed + 2))
    return Prompt(documents, query, (0.5, 0.5), empty_row=begin, earlier=earlier, begin=BEGIN)


def read(decoder: Decoder, prompt: Prompt, tenant: Hashable = None, piece: int | None = None) -> tuple[int, Tensor]:
    """Tokens that were fed, at most `piece` of a feed at a time, and the logits after the query."""
    rows = AnswerRows(decoder, prompt, decoder.take_rows(prompt.parts, prompt.query, 4), tenant)
    fed = 0
    while True:
        feeds = rows.feeds(Work(0, ()))
        if piece is not None and feeds[0].rows is not rows.rows:
            for feed in feeds:
                feed.tokens = feed.tokens[:piece]
        logits = decoder.forward(feeds)
        for feed in feeds:
            fed += len(feed.tokens) * len(feed.rows)
            rows.fed(feed)
        if feeds[0].rows is rows.rows:
            assert rows.progress == (fed - (len(rows.rows) - 1) * len(prompt.query),) * 2
            decoder.memory.give_back(rows.rows)
            return fed, logits


def alike(one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs().amax(1) <= TOLERANCE * other.abs().amax(1)).all())


def test_rows_are_what_a_pass_with_their_mask_gives(turned: Pair) -> None:
    prompt = made(turned.decoder, 1)
    fed, logits = read(turned.decoder, prompt)
    pieces = [(prompt.earlier, each) for each in prompt.documents] + [(prompt.earlier,)]
    expected = torch.stack([reference(turned, Blocks(each, BEGIN), prompt.query) for each in pieces])
    assert alike(logits, expected[:, : turned.decoder.vocabulary])
    assert fed == len(prompt.earlier) + sum(map(len, prompt.documents)) + 3 * len(prompt.query)


def test_documents_that_can_not_be_moved_are_read_there(learned: Pair) -> None:
    prompt = made(learned.decoder, 2)
    expected = learned.plain.after([[*part, *prompt.query] for part in prompt.parts])[:, : learned.decoder.vocabulary]
    for again in (False, True):
        fed, logits = read(learned.decoder, prompt)
        assert alike(logits, expected)
        documents = sum(len(document) - BEGIN for document in prompt.documents)
        assert fed == (0 if again else len(prompt.earlier)) + documents + 3 * len(prompt.query)


def test_a_later_turn_reads_what_is_new(turned: Pair) -> None:
    decoder, prompt = turned.decoder, made(turned.decoder, 3)
    read(decoder, prompt)
    longer = (*prompt.earlier, *some_tokens(decoder, 7, 8))
    other = (*prompt.earlier[:10], *some_tokens(decoder, 7, 9))
    for earlier, new in ((prompt.earlier, 0), (longer, 7), (prompt.earlier, 0), (other, 7), (longer, 0)):
        fed, _ = read(decoder, Prompt(prompt.documents, prompt.query, (0.5, 0.5), earlier=earlier, begin=BEGIN))
        assert fed == new + 2 * len(prompt.query)


@pytest.mark.parametrize("piece", [1, 5, None])
def test_what_was_kept_gives_the_same_bits(coarse: Decoder, piece: int | None) -> None:
    decoder = coarse
    prompt = made(decoder, 100 + (piece or 0), turns=23)
    begun = Prompt(((),), prompt.query, (0.0,), absent=True, earlier=prompt.earlier[:11], begin=BEGIN)
    _, cold = read(decoder, prompt, "cold")
    read(decoder, begun, "warm", piece)
    fed, warm = read(decoder, prompt, "warm", piece)
    assert fed == 23 - 11 + 3 * len(prompt.query)
    assert torch.equal(cold, warm)


def test_only_its_tenant_finds_a_conversation(turned: Pair) -> None:
    """The work, and so the time to the first token, tells nobody what others have said."""
    decoder, prompt = turned.decoder, made(turned.decoder, 4)
    counts = [read(decoder, prompt, tenant)[0] for tenant in ("a", "b", "a", None)]
    assert counts[1] == counts[3] == counts[2] + len(prompt.earlier)
    decoder.document_cache.forget_earlier("a")
    assert [read(decoder, prompt, tenant)[0] for tenant in ("a", "b")] == [counts[1], counts[2]]


class TestMemory:
    TOKENS = (5, 6, 7, 8)

    def kept(self, cache: DocumentCache, tenant: Hashable, tokens: tuple[int, ...]) -> int:
        found = cache.earlier(tenant, tokens)
        return 0 if found is None else found[0][0].shape[1]

    def test_the_longest_common_beginning_is_found(self) -> None:
        cache = DocumentCache(2**20)
        cache.put_earlier("a", self.TOKENS, states_of(4))
        cache.put_earlier("a", (5, 9), states_of(2))
        assert self.kept(cache, "a", (5, 6, 7, 1, 2)) == 3
        assert self.kept(cache, "a", (5, 9, 9)) == 2
        assert self.kept(cache, "a", (1, 5)) == self.kept(cache, "b", self.TOKENS) == 0

    def test_a_longer_conversation_replaces_its_beginning(self) -> None:
        cache = DocumentCache(2**20)
        cache.put_earlier("a", self.TOKENS[:2], states_of(2))
        cache.put_earlier("b", self.TOKENS[:2], states_of(2))
        alone = cache.counters.conversation_bytes // 2
        cache.put_earlier("a", self.TOKENS, states_of(4))
        counters = cache.counters
        assert (counters.conversations, counters.conversation_bytes, counters.entries) == (2, 3 * alone, 0)

    def test_conversations_and_documents_share_the_memory(self) -> None:
        cache = DocumentCache(states_bytes(states_of(6)))
        cache.put(b"document", states_of(2))
        cache.put_earlier("a", self.TOKENS, states_of(4))
        assert cache.get(b"document") is not None
        cache.put_earlier("a", (1,), states_of(1))
        assert (self.kept(cache, "a", self.TOKENS), self.kept(cache, "a", (1,))) == (0, 1)
        assert cache.get(b"document") is not None
        cache.forget_earlier("a")
        assert (cache.counters.conversations, cache.counters.conversation_bytes, cache.counters.entries) == (0, 0, 1)


def states_of(tokens: int) -> DocumentStates:
    return synthetic(tokens, LAYOUT, tokens)
