from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from common.engine.kv.documents import DocumentCache
from common.engine.kv.memory import KvMemory
from common.engine.model.decoder import Decoder
from tests.common.engine.model.tiny_models import DEMO, FAMILIES, Pair, load_pair


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


@pytest.fixture(scope="session")
def coarse() -> Iterator[Decoder]:
    """The embedded model in bfloat16, which keeps eight bits of a number: what is summed in another order shows."""
    decoder = Decoder.load(str(DEMO / "target"), tokenizer=str(DEMO / "tokenizer"), dtype="bfloat16")
    yield decoder
    decoder.close()


@pytest.fixture(autouse=True)
def nothing_read_before(request: pytest.FixtureRequest) -> None:
    """Forgets documents, which a mutant may have read for an earlier test, and rows that one left open."""
    for name in {"pair", "llama"} & set(request.fixturenames):
        decoder = request.getfixturevalue(name).decoder
        decoder.memory = KvMemory(decoder.layout, decoder.max_context)
        decoder._documents = DocumentCache(decoder.document_cache.limit_bytes)
