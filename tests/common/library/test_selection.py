"""Search among chosen documents: nothing else is found, and all that is wanted where there is as much."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.library import approximate
from common.library.chunks import Chunker
from common.library.errors import NoDocumentFits, UnknownDocument
from common.library.index import VectorIndex
from common.library.library import Library, SearchKind
from common.library.store import Store
from common.library.tags import tags_of
from tests.common.library.conftest import Write
from tests.common.library.test_approximate import put_many, search, trained, unit
from tests.common.library.test_patterns import fits_by_parts
from tests.common.library.toy_embedder import ToyEmbedder

PATIENCE = 60.0  # seconds
KINDS: tuple[SearchKind, ...] = get_args(SearchKind)
WORDS = ("kettle", "rabbit", "balcony", "invoice", "train", "monday")

FOLDERS = st.sampled_from(["", "journal/", "journal/2026/", "work/", "work/old/"])
NAMES = st.builds(
    lambda folder, name, end: f"{folder}{name}.{end}", FOLDERS, st.sampled_from("abc"), st.sampled_from(["md", "txt"])
)
PATHS = st.dictionaries(NAMES, st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), min_size=1, max_size=12)
PATTERNS = st.sampled_from(
    ["journal/**", "journal", "work/", "*.md", "**/a.*", "work/*/?.txt", "tag:one", "2026", "c.md", "**"]
)


def chosen_by_hand(library: Library, only: Sequence[str]) -> dict[str, set[str]]:
    """For each pattern the paths of its documents, by the rules themselves."""
    tags = library.tags()
    return {
        pattern: {
            file.relative_path
            for file in library.files()
            if (
                pattern.removeprefix("tag:") in tags_of(file.path, tags)
                if pattern.startswith("tag:")
                else fits_by_parts(pattern, file.relative_path)
            )
        }
        for pattern in only
    }


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    paths=PATHS,
    only=st.lists(PATTERNS, min_size=1, max_size=4),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
    k=st.integers(1, 20),
    tagged=st.sampled_from(["journal", "work", "work/old"]),
    approximate_from=st.sampled_from([0, 3]),
)
def test_it_finds_what_a_search_of_all_finds_without_the_others(
    paths: dict[str, list[str]],
    only: list[str],
    query: str,
    k: int,
    kind: SearchKind,
    tagged: str,
    approximate_from: int,
    chunker: Chunker,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("random")
    documents = folder / "documents"
    for number, (name, words) in enumerate(paths.items()):
        path = documents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{' '.join(words)} n{number}")
    with Library(
        folder / "library", ToyEmbedder(), chunker=chunker, kind=kind, approximate_from=approximate_from
    ) as library:
        library.add(documents)
        if (documents / tagged).is_dir():
            library.add(documents / tagged, tags=["one"])
        library.search(query, 1)
        library._index.finish_training()
        expected = chosen_by_hand(library, only)
        lacking = [number for number, pattern in enumerate(only, 1) if not expected[pattern]]
        if lacking:
            with pytest.raises(NoDocumentFits) as failure:
                library.search(query, k, only=only)
            assert failure.value.pattern == lacking[0]
            return
        among = set.union(*expected.values())
        found = [hit.path for hit in library.search(query, k, only=only)]
        everything = [hit.path for hit in library.search(query, 1000)]
        if kind == "hybrid":  # ranks depend on how many there are: only who is among them is told
            assert set(found) <= among
            assert len(found) == min(k, len(among))
        elif kind == "dense":
            assert found == [path for path in everything if path in among][:k]
        else:
            assert set(found) <= among
            ranked = [path for path in everything if path in among]
            assert not ranked or found == ranked[:k]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, VectorIndex, NDArray[np.float32]]]:
    """A trained index of 6,000 chunks, and their vectors."""
    folder = tmp_path_factory.mktemp("many")
    store, index = Store(folder), VectorIndex(folder, 8)
    vectors = put_many(store, 6000, towards=3.0)
    trained(index, store)
    yield store, index, vectors
    index.close()
    store.close()


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_an_approximate_search_finds_as_many_as_there_are(
    many: tuple[Store, VectorIndex, NDArray[np.float32]], share: float, k: int
) -> None:
    """Chosen chunks lie in few lists, and not in those that the query is near to."""
    store, index, vectors = many
    store_ids = np.sort(store.chunk_ids())
    query = unit(-vectors[:1].astype(np.float64))[0]
    similarity = vectors.astype(np.float64) @ query
    nearest = set(store_ids[np.argsort(-similarity, kind="stable")[:k]].tolist())
    usual = len(nearest & set(search(index, store, query, k))) / k  # of a search of all
    random = np.random.default_rng(7)
    wanted = max(1, int(share * len(vectors)))
    scattered = np.sort(random.choice(len(vectors), wanted, replace=False))
    far = np.sort(np.argsort(similarity)[:wanted])  # the farthest from the query: other lists than it is near to
    for places in (scattered, far):
        among = store_ids[places]
        with store.reading():
            found = index.search(store, query, k, among)
        assert len(found) == len(set(found)) == min(k, wanted)
        assert set(found) <= set(among.tolist())
        best = set(store_ids[places[np.argsort(-similarity[places], kind="stable")[:k]]].tolist())
        assert len(best & set(found)) >= min(0.9, usual) * len(best)


def test_over_fetching_would_not_find_them(many: tuple[Store, VectorIndex, NDArray[np.float32]]) -> None:
    """Control: those far from the query are not among the candidates of a search of all."""
    store, index, vectors = many
    query = vectors[0]
    far = np.sort(np.sort(store.chunk_ids())[np.argsort(vectors @ query)[:2000]])
    everywhere = approximate.candidates(index._index, query, 10)
    assert not set(everywhere.tolist()) & set(far.tolist())
    with store.reading():
        assert len(index.search(store, query, 10, far)) == 10


class TestTags:
    @pytest.fixture
    def tagged(self, library: Library, write: Write, documents: Path) -> Library:
        for name in ("work/plan.txt", "work/old/notes.txt", "home/kettle.txt"):
            write(name, f"about {name}")
        library.add(documents)
        library.add(documents / "work", tags=["work", "urgent"])
        return library

    @staticmethod
    def found(library: Library, *only: str) -> set[str]:
        return {hit.path for hit in library.search("about", 9, only=only)}

    def test_are_of_all_that_lies_there_now_and_later(self, tagged: Library, write: Write, documents: Path) -> None:
        assert self.found(tagged, "tag:work") == {"work/plan.txt", "work/old/notes.txt"}
        write("work/new.txt", "about something new")
        tagged.add(documents)  # as a watcher does, that knows of no tags
        assert self.found(tagged, "tag:work") == {"work/plan.txt", "work/old/notes.txt", "work/new.txt"}
        assert self.found(tagged, "tag:work", "home") == {
            "work/plan.txt",
            "work/old/notes.txt",
            "work/new.txt",
            "home/kettle.txt",
        }

    def test_go_with_a_folder_whose_documents_stay(self, library: Library, write: Write, documents: Path) -> None:
        """Since the folder around it is watched; at once, also for who has searched by them."""
        write("sub/a.txt", "kettle")
        library.add(documents, watch=True)
        library.add(documents / "sub", tags=["work"])
        assert self.found(library, "tag:work") == {"sub/a.txt"}
        library.remove([documents / "sub"])
        with pytest.raises(NoDocumentFits):
            self.found(library, "tag:work")

    def test_are_replaced_and_removed_by_adding_again(self, tagged: Library, documents: Path) -> None:
        identity = tagged.identity
        tagged.add(documents / "work")
        assert tagged.identity == identity
        tagged.add(documents / "work", tags=["late"])
        assert tagged.identity != identity
        assert self.found(tagged, "tag:late") == {"work/plan.txt", "work/old/notes.txt"}
        with pytest.raises(NoDocumentFits):
            self.found(tagged, "tag:work")
        tagged.add(documents / "work", tags=[])
        assert tagged.tags() == {}

    def test_of_one_document_and_of_folders_in_one_another(self, tagged: Library, documents: Path) -> None:
        tagged.add(documents / "work" / "old", tags=["old"])
        tagged.add(documents / "home" / "kettle.txt", tags=["old"])
        assert self.found(tagged, "tag:old") == {"work/old/notes.txt", "home/kettle.txt"}
        assert tags_of(str(documents.resolve() / "work/old/notes.txt"), tagged.tags()) == ("old", "urgent", "work")

    def test_go_with_their_folder(self, tagged: Library, documents: Path) -> None:
        tagged.remove([documents / "work"])
        assert tagged.tags() == {}

    def test_leave_a_named_document_out_that_was_not_chosen(self, tagged: Library) -> None:
        assert tagged.passages("kettle", "about", ["home"])
        with pytest.raises(UnknownDocument):
            tagged.passages("kettle", "about", ["tag:work"])


class TestWhileACatalogueIsMade:
    """A large library's takes a while; here until the test lets it go on."""

    @pytest.fixture
    def filled(self, library: Library, write: Write, documents: Path) -> Library:
        for name in ("work/plan.txt", "home/kettle.txt"):
            write(name, f"about {name}")
        library.add(documents)
        return library

    def test_other_searches_go_on(self, filled: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        begun, let_on = threading.Event(), threading.Event()
        places = Store.places

        def slowly(store: Store) -> list[tuple[int, str, str]]:
            begun.set()
            assert let_on.wait(PATIENCE)
            return places(store)

        monkeypatch.setattr(Store, "places", slowly)
        with ThreadPoolExecutor(2) as threads:
            try:
                chosen = threads.submit(filled.search, "about", 9, only=["work"])
                assert begun.wait(PATIENCE)
                assert len(threads.submit(filled.search, "about", 9).result(PATIENCE / 2)) == 2
                assert not chosen.done()
            finally:
                let_on.set()
            assert [hit.path for hit in chosen.result(PATIENCE)] == ["work/plan.txt"]

    def test_the_library_may_change_every_time(
        self, filled: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places = Store.places
        made = list[str]()

        def change(store: Store) -> list[tuple[int, str, str]]:
            found = places(store)
            if not filled._lock.locked():
                made.append(f"work/{len(made)}.txt")
                write(made[-1], f"about {len(made)}")
                filled.add(documents)
            return found

        monkeypatch.setattr(Store, "places", change)
        assert {hit.path for hit in filled.search("about", 9, only=["work"])} == {"work/plan.txt", *made}
        assert len(made) >= 2  # again and again, until nobody could
