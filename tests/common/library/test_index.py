from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.library import index as index_module
from common.library import store as store_module
from common.library.chunks import Chunk
from common.library.errors import LibraryDamaged
from common.library.index import VectorIndex
from common.library.store import DATABASE, FileRecord, Store
from tests.common.library.toy_embedder import DIMENSION, ToyEmbedder

Step: TypeAlias = tuple[str, str, int]  # kind, name of a document, number that its content is made of

QUERY = ToyEmbedder().encode(["query"])[0]


def put(store: Store, name: str, content: int) -> None:
    texts = [f"{name} {content} {part}" for part in range(content % 3 + 1)]
    record = FileRecord(0, f"/{name}", "/", name, f"{name} {content}", 0, 0, "", len(texts))
    with store.writing():
        if store.state().embedder is None:
            store.set_embedder("toy", DIMENSION)
        store.put_file(record, [Chunk(0, 1, text) for text in texts], ToyEmbedder().encode(texts))
        store.advance()


def remove(store: Store, name: str) -> None:
    with store.writing():
        store.remove_paths([file for file in store.files() if file.path == f"/{name}"])
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
                index.save(store)
            case "restart":
                index.close()
                index = VectorIndex(folder, approximate_from)
    assert nearest(index, store, 100) == brute_force(store, 100)
    return store, index


@settings(max_examples=40)
@given(
    steps=histories(["put", "remove", "search", "save", "restart"], "abcd"),
    remembered=st.sampled_from([2, 5, store_module._REMOVED]),
)
def test_whatever_happened_before_the_index_equals_a_search_of_everything(
    steps: list[Step], remembered: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However few of the removed chunks are remembered."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store_module, "_REMOVED", remembered)
        store, index = lived(tmp_path_factory.mktemp("library"), steps)
    ((count,),) = store._database.all("SELECT count(*) FROM removed")
    assert count <= remembered + 3  # those of the last document
    index.close()
    store.close()


def test_a_new_library_in_the_place_of_an_old_one_does_not_get_its_index(tmp_path: Path) -> None:
    for name in ("first", "second"):
        store, index = Store(tmp_path), VectorIndex(tmp_path)
        put(store, name, 2)
        assert nearest(index, store, 9) == brute_force(store, 9)
        index.save(store)
        store.close()
        (tmp_path / "library.sqlite").unlink()


def test_vectors_replaced_under_their_ids_are_seen(tmp_path: Path) -> None:
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    put(store, "a", 2)
    put(store, "b", 2)
    nearest(index, store, 9)
    index.save(store)
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


class TestChanges:
    """Another content costs as much as differs."""

    @pytest.fixture
    def changing(self, store: Store, tmp_path: Path) -> VectorIndex:
        """An index of eight documents, one of which is gone again."""
        index = VectorIndex(tmp_path)
        for name in "abcdefgh":
            put(store, name, 2)
        nearest(index, store, 1)
        remove(store, "c")
        nearest(index, store, 1)
        return index

    def test_are_all_that_is_read(self, changing: VectorIndex, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = [brute_force(store, 99)]
        put(store, "d", 5)
        remove(store, "e")
        put(store, "i", 0)
        remove(store, "i")
        put(store, "j", 0)
        expected.append(brute_force(store, 99))
        with monkeypatch.context() as patched:
            patched.delattr(Store, "chunk_ids")
            assert nearest(changing, store, 99) == expected[1] != expected[0]

    def test_of_which_too_many_were_removed_to_be_remembered(
        self, changing: VectorIndex, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "_REMOVED", 4)
        commit = changing._commit or ""
        for name in "abd":
            remove(store, name)
        with store.reading():
            assert not store.descends_from(commit)
        assert nearest(changing, store, 99) == brute_force(store, 99)

    def test_that_a_damaged_database_tells_wrong_are_noticed(self, changing: VectorIndex, store: Store) -> None:
        remove(store, "a")
        with store.writing():
            store._database.run("UPDATE removed SET chunk = (SELECT max(id) FROM chunks)")
        with pytest.raises(LibraryDamaged, match="was removed and is there"):
            nearest(changing, store, 99)

    def test_fewer_than_there_were_cost_a_comparison(self, changing: VectorIndex, store: Store) -> None:
        remove(store, "a")
        with store.writing():
            store._database.run("DELETE FROM removed")
        assert nearest(changing, store, 99) == brute_force(store, 99)


def test_a_large_library_is_never_held_as_it_is(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lists are chosen at once, those that it needs beside the searches."""
    monkeypatch.setattr(index_module, "EXHAUSTIVE", 20)
    monkeypatch.setattr(index_module, "_FEW", 2)
    index = VectorIndex(tmp_path, 4)
    for number in range(10):
        put(store, f"document {number}", 1)
    nearest(index, store, 1)
    assert not index.approximate
    index.close()
    put(store, "another", 1)
    index = VectorIndex(tmp_path, 4)
    assert nearest(index, store, 99) == brute_force(store, 99)
    assert index._index.nlist == 2
    index.finish_training()
    put(store, "a third", 1)
    assert nearest(index, store, 99) == brute_force(store, 99)
    assert index._index.nlist > 2
    index.close()


def test_a_restored_backup_does_not_get_the_index_of_the_future_it_took_back(tmp_path: Path) -> None:
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    for name in "abcd":
        put(store, name, 0)
    store._database.run("VACUUM INTO ?", [str(tmp_path / "backup")])
    for name in "efgh":
        put(store, name, 0)
    assert nearest(index, store, 9) == brute_force(store, 9)
    index.save(store)
    store.close()
    (tmp_path / "backup").replace(tmp_path / DATABASE)
    store, index = Store(tmp_path), VectorIndex(tmp_path)
    for name in "uvwxy":  # under the ids that the future used
        put(store, name, 0)
    assert nearest(index, store, 9) == brute_force(store, 9)
    store.close()
