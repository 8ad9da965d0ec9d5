from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from common.engine.kv.documents import DocumentCache
from common.engine.kv.memory import KvMemory
from tests.common.engine.model.tiny_models import FAMILIES, Pair, load_pair


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Every family of models in turn."""
    return load_pair(request.param, tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One small model (grouped-query attention), for what does not depend on the family."""
    return load_pair("llama", tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def nothing_read_before(request: pytest.FixtureRequest) -> None:
    """Forgets documents, which a mutant may have read for an earlier test, and rows that one left open."""
    for name in {"pair", "llama"} & set(request.fixturenames):
        decoder = request.getfixturevalue(name).decoder
        decoder.memory = KvMemory(decoder.layout, decoder.max_context)
        decoder._documents = DocumentCache(decoder.document_cache.limit_bytes)
