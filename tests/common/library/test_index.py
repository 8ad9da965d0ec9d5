from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.library.chunks import Chunk
from common.library.index import VectorIndex
from common.library.store import DATABASE, FileRecord, Store
from tests.common.library.toy_embedder import DIMENSION, ToyEmbedder

Step: TypeAlias = tuple[str, str, int]  # kind, name of a document, number that its content is made of

QUERY = ToyEmbedder().encode(["query"])[0]


def put(store: Store, name: str, content: int) -> None:
    texts = [f"{name} {content} {part}" for part in range(content % 3 + 1)]
    record = FileRecord(0, f"/{name}", "/", name, "", 0, 0, "", len(texts))
    with store.writing():
        if store.state().embedder is None:
            store.set_embedder("toy", DIMENSION)
        store.put_file(record, [Chunk(0, 1, text) for text in texts], ToyEmbedder().encode(texts))
        store.advance()


def remove(store: Store, name: str) -> None:
    with store.writing():
        store.remove_files([file.id for file in store.files() if file.path == f"/{name}"])
        store.advance()


def nearest(index: VectorIndex, store: Store, k: int) -> list[int]:
    with store.reading():
        index.refresh(store)
        return index.search(store, QUERY, k)


def brute_force(store: Store, k: int) -> list[int]:
    with store.reading():
        chunks = store.chunks(int(identifier) for identifier in store.chunk_ids())
    return [chunk.id for chunk in sorted(chunks, key=lambda chunk: -float(chunk.vector @ QUERY))][:k]


def histories(kinds: Sequence[str], names: str) -> st.SearchStrategy[list[Step]]:
    """Histories of a library and its index, step by step."""
    return st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from(names), st.integers(0, 9)), max_size=25)


def lived(folder: Path, steps: Sequence[Step], approximate_from: int = 0) -> tuple[Store, VectorIndex]:
    """A library and its index after `steps`, each search of which was compared with one of everything."""
    store, index = Store(folder), VectorIndex(folder, approximate_from)
    for step, name, number in steps:
        match step:
            case "put":
                put(store, name, number)
            case "remove":
                remove(store, name)
            case "search":
                assert nearest(index, store, 5) == brute_force(store, 5)
            case "train":
                nearest(index, store, 1)
                index.finish_training()
            case "save":
                index.save()
            case "restart":
                index.close()
                index = VectorIndex(folder, approximate_from)
    assert nearest(index, store, 100) == brute_force(store, 100)
    return store, index


@settings(max_examples=40)
@given(steps=histories(["put", "remove", "search", "save", "restart"], "abcd"))
def test_whatever_happened_before_the_index_equals_a_search_of_everything(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, index = lived(tmp_path_factory.mktemp("library"), steps)
    index.close()
    store.close()


def test_a_new_library_in_the_place_of_an_old_one_does_not_get_its_index(tmp_path: Path) -> None:
    for name in ("first", "second"):
        store, index = Store(tmp_path), VectorIndex(tmp_path)
        put(store, name, 2)
        assert nearest(index, store, 9) == brute_force(store, 9)
        index.save()
        store.close()
        (tmp_path / "library.sqlite").unlink()


def test_vectors_replaced_under_their_ids_are_seen(tmp_path: Path) -> None:
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    put(store, "a", 2)
    put(store, "b", 2)
    nearest(index, store, 9)
    index.save()
    with store.writing():
        ids = [int(identifier) for identifier in store.chunk_ids()]
        store.stage("other", ids, ToyEmbedder("other").encode([str(identifier) for identifier in ids]))
        store.adopt_staged("other")
        store.set_embedder("other", DIMENSION)
        store.advance()
    expected = brute_force(store, 9)
    assert nearest(index, store, 9) == expected
    assert nearest(VectorIndex(tmp_path), store, 9) == expected
    assert np.linalg.norm(QUERY) == pytest.approx(1.0)
    store.close()


def test_an_index_does_not_take_a_new_chunk_for_a_removed_one(tmp_path: Path) -> None:
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    for name in "abcdefgh":
        put(store, name, 0)
    assert nearest(index, store, 9) == brute_force(store, 9)
    for name in "hgfe":
        remove(store, name)
    for name in "uvwx":
        put(store, name, 0)
    assert nearest(index, store, 9) == brute_force(store, 9)
    store.close()


def test_a_restored_backup_does_not_get_the_index_of_the_future_it_took_back(tmp_path: Path) -> None:
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    for name in "abcd":
        put(store, name, 0)
    store._database.run("VACUUM INTO ?", [str(tmp_path / "backup")])
    for name in "efgh":
        put(store, name, 0)
    assert nearest(index, store, 9) == brute_force(store, 9)
    index.save()
    store.close()
    (tmp_path / "backup").replace(tmp_path / DATABASE)
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    for name in "uvwxy":  # under the ids that the future used
        put(store, name, 0)
    assert nearest(index, store, 9) == brute_force(store, 9)
    store.close()
