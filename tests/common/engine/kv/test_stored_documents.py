"""A decoder with a document store: nothing is computed twice, and nothing comes out differently."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from common.engine.kv.documents import DocumentStoreCounters, StoreOptions
from common.engine.model.decoder import Decoder
from tests.common.engine.kv.storing import QUERY, open_and_tell, open_rows, other_process
from tests.common.engine.model.tiny_models import make_model, some_tokens

LIMIT = 10**6


def document_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model("llama", tmp_path_factory.mktemp("model")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_another_process_computes_nothing_and_gets_the_same_bits(model: str, folder: Path) -> None:
    with other_process(open_and_tell, model, StoreOptions(folder, LIMIT), 1, 3) as (_, told):
        computed = torch.tensor(told.recv())
    decoder, logits = open_rows(model, StoreOptions(folder, LIMIT), 1, 3)
    assert decoder.document_cache.counters.disk == DocumentStoreCounters(hits=3)
    assert torch.equal(logits, computed)
    assert torch.equal(logits, open_rows(model, StoreOptions(folder, 0), 1, 3)[1])
    decoder.close()


def test_prefilled_documents_are_not_computed(model: str, folder: Path) -> None:
    options = StoreOptions(folder, LIMIT)
    decoder = Decoder.load(model, threads=1, document_store=options)
    documents = [some_tokens(decoder, count, count) for count in (6, 25)]
    assert [decoder.prefill(document) for document in documents] == [True, True]
    decoder.close()
    decoder = Decoder.load(model, threads=1, document_store=options)
    assert not decoder.prefill(documents[0])
    passes = []
    for layer in decoder._model.model.layers[:1]:
        layer.register_forward_pre_hook(lambda module, arguments: passes.append(arguments))
    rows, _ = decoder.open(documents, QUERY, 4)
    assert len(passes) == 1  # the query's
    counters = decoder.document_cache.counters
    assert (counters.hits, counters.misses, counters.disk.hits) == (1, 2, 2)
    decoder.step(rows, [9])
    decoder.close()


def test_damage_is_computed_again(model: str, folder: Path) -> None:
    options = StoreOptions(folder, LIMIT)
    expected = open_rows(model, options, 1, 2)[1]
    path = document_files(folder)[0]
    path.write_bytes(path.read_bytes()[:-4] + b"\x01\x02\x03\x04")
    decoder, logits = open_rows(model, options, 1, 2)
    assert torch.equal(logits, expected)
    assert decoder.document_cache.counters.disk == DocumentStoreCounters(hits=1, misses=1, written=1, damaged=1)


def test_writing_begins_with_the_first_step(model: str, folder: Path) -> None:
    decoder = Decoder.load(model, threads=1, document_store=StoreOptions(folder, LIMIT))
    rows, _ = decoder.open([[5, 6, 7]], QUERY, 4)
    assert not folder.exists()
    decoder.step(rows, [9])
    decoder.close()
    assert len(document_files(folder)) == 1


def test_other_weights_outside_the_identitys_sample_are_another_model(model: str, folder: Path) -> None:
    options = StoreOptions(folder, LIMIT)
    first = open_rows(model, options, 1, 1)[0]
    changed = Decoder.load(model, threads=1)
    weight = changed._model.model.layers[2].mlp.up_proj.weight
    other = folder.parent / "other"
    weight.view(-1)[1] += 0.5
    changed._model.save_pretrained(other)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(model) / name, other)
    decoder, _ = open_rows(str(other), options, 1, 1)
    assert decoder.identity == first.identity
    assert decoder.document_cache.counters.disk.hits == 0
