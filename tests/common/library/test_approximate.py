"""Approximate search: nothing that is there is lost, nothing that is gone appears, and the training disturbs nobody."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from common.library import approximate
from common.library.chunks import Chunk
from common.library.index import VectorIndex
from common.library.store import FileRecord, Store
from tests.common.library.test_index import Step, brute_force, histories, lived, nearest, put, remove
from tests.common.library.toy_embedder import DIMENSION, ToyEmbedder

FROM = 8  # chunks
MANY = 3000
EVERYTHING = 10_000
CLOSE_BY = 40  # kinds of texts among MANY


def trained(index: VectorIndex, store: Store) -> None:
    """Search as a daemon does, until the lists that are due are in use."""
    nearest(index, store, 1)
    index.finish_training()
    nearest(index, store, 1)
    assert index.approximate


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    normalised: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return normalised


def put_many(store: Store, count: int, name: str = "many", towards: float = 0.0) -> NDArray[np.float32]:
    """Vectors of a new document's `count` chunks: around a few directions, all `towards` the first axis."""
    random = np.random.default_rng(count)
    centres = random.normal(size=(CLOSE_BY, DIMENSION))
    centres[:, 0] += towards
    vectors = unit(centres[random.integers(CLOSE_BY, size=count)] + 0.7 * random.normal(size=(count, DIMENSION)))
    with store.writing():
        if store.state().embedder is None:
            store.set_embedder("toy", DIMENSION)
        record = FileRecord(0, f"/{name}", "/", name, name, 0, 0, "", count)
        store.put_file(record, [Chunk(0, 1, f"chunk {number}") for number in range(count)], vectors)
        store.advance()
    return vectors


def replace_all(folder: Path, dimension: int) -> None:
    """Give every chunk another vector [dimension], that of its axis."""
    store = Store(folder)
    with store.writing():
        ids = [int(identifier) for identifier in store.chunk_ids()]
        store.stage("other", ids, np.eye(len(ids), dimension, dtype=np.float32))
        store.adopt_staged("other")
        store.set_embedder("other", dimension)
    store.close()


def search(index: VectorIndex, store: Store, query: NDArray[np.float32], k: int) -> list[int]:
    with store.reading():
        index.refresh(store)
        return index.search(store, query, k)


def lists(index: VectorIndex) -> int:
    return int(index._index.nlist)


@contextmanager
def opened(folder: Path, approximate_from: int = FROM) -> Iterator[VectorIndex]:
    index = VectorIndex(folder, approximate_from)
    yield index
    index.close()


@settings(max_examples=40)
@given(steps=histories(["put", "put", "remove", "search", "train", "save", "restart"], "abcdefgh"))
def test_whatever_happened_before_a_small_library_is_searched_as_a_whole(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All lists of so few vectors are looked into, so that what is missing would be missing from the index."""
    store, index = lived(tmp_path_factory.mktemp("library"), steps, FROM)
    index.finish_training()
    assert nearest(index, store, 100) == brute_force(store, 100)
    assert index.approximate == (len(index) >= FROM)
    index.close()
    store.close()


class TestSearch:
    @pytest.mark.parametrize("k", [10, 400])
    def test_finds_nearly_all_neighbours_in_a_part_of_the_lists(self, store: Store, tmp_path: Path, k: int) -> None:
        vectors = put_many(store, MANY)
        with opened(tmp_path) as index, opened(tmp_path, 0) as exhaustive:
            trained(index, store)
            assert lists(index) == approximate.list_count(MANY) > 4 * approximate.PROBES
            queries = vectors[::100]
            shared = [
                len(set(search(index, store, query, k)) & set(search(exhaustive, store, query, k))) / k
                for query in queries
            ]
            assert np.mean(shared) > 0.9
            assert [search(index, store, query, 1) for query in queries] == [
                search(exhaustive, store, query, 1) for query in queries
            ]

    def test_ranks_by_the_exact_vectors(self, store: Store, tmp_path: Path) -> None:
        vectors = put_many(store, MANY)
        with opened(tmp_path) as index:
            trained(index, store)
            similarities = vectors.astype(np.float64) @ vectors[7].astype(np.float64)
            found = [similarities[identifier - 1] for identifier in search(index, store, vectors[7], 200)]
            assert len(found) == 200
            assert found == sorted(found, reverse=True)

    def test_whoever_asks_for_everything_gets_it(self, store: Store, tmp_path: Path) -> None:
        put_many(store, 500)
        with opened(tmp_path) as index:
            trained(index, store)
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)

    @pytest.mark.parametrize("approximate_from", [0, 31])
    def test_is_exhaustive_below_its_size(self, store: Store, tmp_path: Path, approximate_from: int) -> None:
        put_many(store, 30)
        with opened(tmp_path, approximate_from) as index:
            nearest(index, store, 1)
            index.finish_training()
            assert nearest(index, store, 30) == brute_force(store, 30)
            assert not index.approximate


class TestChanges:
    def test_what_was_just_added_is_found(self, store: Store, tmp_path: Path) -> None:
        put_many(store, MANY)
        with opened(tmp_path) as index:
            trained(index, store)
            put(store, "new", 0)
            (new,) = ToyEmbedder().encode(["new 0 0"])
            assert search(index, store, new, 1) == [MANY + 1]
            assert index.approximate

    def test_what_was_removed_does_not_appear(self, store: Store, tmp_path: Path) -> None:
        vectors = put_many(store, 1000, "old")
        put_many(store, 1500, "kept")
        with opened(tmp_path) as index:
            trained(index, store)
            remove(store, "old")
            for query in vectors[::50]:
                assert min(search(index, store, query, 100)) > 1000
            assert len(search(index, store, vectors[0], EVERYTHING)) == 1500
            assert index.approximate

    def test_as_many_as_asked_for_are_found_where_the_lists_nearby_are_empty(
        self, store: Store, tmp_path: Path
    ) -> None:
        vectors = put_many(store, 1500, "here", towards=9.0)
        put_many(store, 1501, "there", towards=-9.0)
        with opened(tmp_path) as index:
            trained(index, store)
            remove(store, "here")
            assert len(search(index, store, vectors[0], 40)) == 40
            assert index.approximate

    def test_a_library_that_doubled_is_trained_again(self, store: Store, tmp_path: Path) -> None:
        put_many(store, 400)
        with opened(tmp_path) as index:
            trained(index, store)
            put_many(store, 350, "more")
            trained(index, store)
            assert lists(index) == approximate.list_count(400)
            put_many(store, 50, "yet more")
            trained(index, store)
            assert lists(index) == approximate.list_count(800)
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)

    def test_a_library_that_shrank_is_searched_exhaustively(self, store: Store, tmp_path: Path) -> None:
        put(store, "a", 2)
        put_many(store, 100)
        with opened(tmp_path, 50) as index:
            trained(index, store)
            index.save(store)
            remove(store, "many")
            assert nearest(index, store, 9) == brute_force(store, 9)
            assert not index.approximate
            assert not index.saved


class TestTraining:
    def test_searches_go_on_and_see_what_changes_meanwhile(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_many(store, 200)
        begun, go_on = threading.Event(), threading.Event()
        original = approximate.train

        def slow(sample: NDArray[np.float32], count: int, stopped: Callable[[], bool]) -> Any:
            begun.set()
            assert go_on.wait(60)
            return original(sample, count, stopped)

        monkeypatch.setattr(approximate, "train", slow)
        with opened(tmp_path) as index:
            nearest(index, store, 1)
            assert begun.wait(60)
            put(store, "during", 2)
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)
            remove(store, "many")
            put_many(store, 300, "other")
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)
            assert not index.approximate
            go_on.set()
            index.finish_training()
            remove(store, "during")
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)
            assert index.approximate

    def test_vectors_that_are_all_replaced_meanwhile_are_trained_anew(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_many(store, 60)
        original, calls = approximate.train, list[int]()

        def replacing(sample: NDArray[np.float32], count: int, stopped: Callable[[], bool]) -> Any:
            calls.append(sample.shape[1])
            if len(calls) == 1:
                replace_all(tmp_path, 2 * DIMENSION)
            return original(sample, count, stopped)

        monkeypatch.setattr(approximate, "train", replacing)
        query = np.eye(60, 2 * DIMENSION, dtype=np.float32)[7]
        with opened(tmp_path) as index:
            nearest(index, store, 1)
            index.finish_training()
            assert search(index, store, query, 1) == [8]
            assert index.approximate
        assert calls == [DIMENSION, 2 * DIMENSION]

    def test_its_result_is_dropped_when_all_vectors_were_replaced_since(self, store: Store, tmp_path: Path) -> None:
        put_many(store, 60)
        query = np.eye(60, DIMENSION, dtype=np.float32)[7]
        with opened(tmp_path) as index:
            nearest(index, store, 1)
            index.finish_training()
            replace_all(tmp_path, DIMENSION)
            assert search(index, store, query, 1) == [8]
            assert not index.approximate
            index.finish_training()
            assert search(index, store, query, 1) == [8]
            assert index.approximate

    def test_closing_ends_it(self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put_many(store, 200)
        results, began = list[Any](), threading.Event()
        original = approximate.train

        def until_closed(sample: NDArray[np.float32], count: int, stopped: Callable[[], bool]) -> Any:
            began.set()
            while (result := original(sample, count, stopped)) is not None:
                pass
            results.append(result)
            return result

        monkeypatch.setattr(approximate, "train", until_closed)
        with opened(tmp_path) as index:
            nearest(index, store, 1)
            assert began.wait(60)
        assert results == [None]

    def test_a_failure_leaves_search_as_it_is(
        self, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        put_many(store, 200)
        with opened(tmp_path) as index:
            expected = brute_force(store, 9)
            with store.reading():
                index.refresh(store)  # what is damaged from now on is read by the training alone
            with store.writing():
                store._database.run("UPDATE vectors SET vector = zeroblob(256)")
            assert nearest(index, store, 9) == expected
            index.finish_training()
            assert nearest(index, store, 9) == expected
        assert re.search(r"no approximate index of .* was made, search stays as it is: .*is damaged", caplog.text)
        assert caplog.text.count("no approximate index") == 1
