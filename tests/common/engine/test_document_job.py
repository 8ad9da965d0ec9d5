"""A document that is read ahead waits for memory at no cost."""

from __future__ import annotations

from common.engine.jobs import DocumentJob
from tests.common.engine.test_worker import load


def test_a_document_that_waits_for_memory_is_looked_up_once() -> None:
    decoder = load(kv_bytes=200_000)
    taken = decoder.memory.take(1, 64)
    document = list(range(3, 43))
    job = DocumentJob(document, None, lambda states: None, lambda error: None, lambda: False)
    assert [job.feeds(decoder, lambda: None) for _ in range(3)] == [()] * 3
    decoder.memory.give_back(taken)
    (feed,) = job.feeds(decoder, lambda: None)
    assert list(feed.tokens) == document
    assert decoder.document_cache.counters.misses == 1
    job.close()
    assert decoder.memory.used_bytes == 0
    decoder.close()
