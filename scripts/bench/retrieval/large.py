"""The suite `large-library`: ten million chunks, or `CHUNKS`, are added, indexed, searched, changed and published.

Vectors are of chunks of real text, and neighbours of these; texts are the beginnings of such chunks, with some of their
words replaced. Answers are compared with the exact ones, which are found while the vectors are made.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import faiss
import numpy as np
import psutil
from numpy.typing import NDArray

from common.configuration.settings import Settings
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.library.index import VectorIndex
from common.library.library import Library
from common.library.snapshots import publish
from common.library.store import DATABASE, INDEX, Store
from scripts.bench.measuring import NOTHING, Spread, Table
from scripts.bench.results import Results
from scripts.bench.retrieval.questions import questions
from scripts.bench.retrieval.searching import fill, grown
from scripts.bench.retrieval.suite import chunks_of, files_of

CHUNKS: Final = "CHUNKS"  # the environment variable that says how many
MOST: Final = 10_000_000
APPROXIMATE_FROM: Final[int] = Settings.model_fields["approximate_from"].default
WORDS: Final = 20  # of a text
REPLACED: Final = 3  # of them, drawn as often as texts have them
HITS: Final = (10, 64)
CHANGES: Final = 20


class Nearest:
    """The exact nearest neighbours of some questions among vectors that pass by."""

    def __init__(self, questions: NDArray[np.float32], k: int) -> None:
        self._questions = questions
        self._k = k
        self._ids = np.zeros((len(questions), 0), np.int64)
        self._similarities = np.zeros((len(questions), 0), np.float32)
        self._passed = 0

    def passing(self, blocks: Iterable[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
        """The blocks [n, dimension], looked at; the first vector is chunk 1, as in a new library."""
        for block in blocks:
            ids = np.arange(self._passed + 1, self._passed + len(block) + 1)
            self._passed += len(block)
            all_ids = np.concatenate([self._ids, np.broadcast_to(ids, (len(self._questions), len(ids)))], axis=1)
            similarities = np.concatenate([self._similarities, self._questions @ block.T], axis=1)
            best = np.argsort(-similarities, axis=1, kind="stable")[:, : self._k]
            self._ids = np.take_along_axis(all_ids, best, 1)
            self._similarities = np.take_along_axis(similarities, best, 1)
            yield block

    def recall(self, number: int, found: Sequence[int]) -> float:
        """Share of a question's neighbours, as many as were `found`, that are among these."""
        return len(set(found) & set(self._ids[number, : len(found)].tolist())) / len(found)


class Texts:
    """A text for each chunk, by its number."""

    def __init__(self, chunks: Sequence[str]) -> None:
        self._words = [chunk.split()[:WORDS] for chunk in chunks]
        self._all = [word for words in self._words for word in words]

    def of(self, number: int) -> str:
        """Always the same for a number."""
        drawn = random.Random(number)
        words = list(self._words[number % len(self._words)])
        for _ in range(REPLACED):
            words[drawn.randrange(len(words))] = drawn.choice(self._all)
        return " ".join(words)


def run(results: Results) -> None:
    """Make the library in a temporary folder, and take its times. Raises `NoText`."""
    files = files_of()
    count = int(os.environ.get(CHUNKS, MOST))
    real, asked = 9_000, 50
    if results.short:
        files, count, real, asked = files[:12], 600, 40, 2
    embedder = SentenceTransformerEmbedder()
    texts = chunks_of(files, embedder, real)
    results.say(f"embedding {len(texts)} chunks")
    vectors = unit_vectors(embedder, texts)
    named = [question.text for question in questions(files, asked)]
    queries = unit_vectors(embedder, named, queries=True)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        measured = _Measured(results, Path(folder, "library"), count)
        measured.folder.mkdir()
        nearest = Nearest(queries, max(HITS))
        blocks = nearest.passing(grown(vectors, count))
        measured.stage("filling", lambda: fill(measured.folder, embedder.identity, blocks, Texts(texts).of))
        _indexed(measured, queries, nearest)
        _by_words(measured, named)
        _changed(measured, embedder, Path(folder, "documents"), named)
        _published(measured, embedder, named)
        measured.tables()


class _Measured:
    """Times of the library in `folder`, and memory."""

    def __init__(self, results: Results, folder: Path, count: int) -> None:
        self.results = results
        self.folder = folder
        self.count = count
        self.approximate_from = 20 if results.short else APPROXIMATE_FROM
        self._stages: list[list[str]] = []
        self._searches: list[list[str]] = []

    def stage(self, name: str, do: Callable[[], object]) -> None:
        """Do something once; its seconds, and the memory of this process then."""
        self.results.say(f"{self.count:,} chunks: {name}")
        began = time.perf_counter()
        do()
        seconds = time.perf_counter() - began
        now, most = psutil.Process().memory_info().rss, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.results.samples(f"seconds, {name}", seconds)
        self._stages.append([name, f"{seconds:,.1f}", f"{now / 2**30:.1f}", f"{most / 2**30:.1f}"])

    def searches(self, name: str, seconds: Sequence[float], recalls: Sequence[float] = ()) -> None:
        """Keep the times of a search, and the shares of the exact one's neighbours that it found."""
        milliseconds = [1e3 * each for each in seconds]
        self.results.samples(f"milliseconds, {name}", milliseconds)
        self.results.samples(f"recalls, {name}", list(recalls))
        found = [f"{np.mean(recalls):.3f}", f"{min(recalls):.2f}"] if recalls else [NOTHING, NOTHING]
        self._searches.append(
            [name, Spread.of(milliseconds).short(1), f"{np.percentile(milliseconds, 95):.1f}", *found]
        )

    def tables(self) -> None:
        """Print all of it."""
        sizes = [f"{name} {(self.folder / name).stat().st_size / 2**30:.1f} GiB" for name in (DATABASE, INDEX)]
        note = f"{self.count:,} chunks: {', '.join(sizes)}"
        heads = ["stage", "seconds", "GiB then", "GiB at most until then"]
        self.results.table("A large library, once", Table(heads, self._stages), note)
        heads = ["search", "median, ms", "95th percentile, ms", "recall", "least recall"]
        behind = "; of two rows of vectors the second, with the same questions, meets lists that were just read"
        self.results.table("A large library, searches and changes", Table(heads, self._searches), note + behind)


def _indexed(measured: _Measured, queries: NDArray[np.float32], nearest: Nearest) -> None:
    store, index = Store(measured.folder), VectorIndex(measured.folder, measured.approximate_from)

    def refresh() -> None:
        with store.reading():
            index.refresh(store)

    def search(name: str) -> None:
        for k in HITS:
            taken, recalls = [], []
            for number, query in enumerate(queries):
                began = time.perf_counter()
                with store.reading():
                    found = index.search(store, query, k)
                taken.append(time.perf_counter() - began)
                recalls.append(nearest.recall(number, found))
            measured.searches(f"vectors, {k} hits, {name}", taken, recalls)

    measured.stage("an index that is there at once", refresh)
    search("while the lists are trained")  # the first one begins that
    measured.stage("training the lists", index.finish_training)
    measured.stage("taking them", refresh)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    search("1 thread, the first time")
    for used in sorted({1, threads}):
        faiss.omp_set_num_threads(used)
        search(f"{used} threads" if used > 1 else "1 thread")
    measured.stage("writing the index file", index.save)
    index.close()
    index = VectorIndex(measured.folder, measured.approximate_from)
    measured.stage("reading the index file", refresh)
    index.close()
    store.close()


def _by_words(measured: _Measured, asked: Sequence[str]) -> None:
    store = Store(measured.folder)
    taken = []
    for question in asked:
        began = time.perf_counter()
        with store.reading():
            store.keywords.search(question, max(HITS), measured.count)
        taken.append(time.perf_counter() - began)
    measured.searches(f"words, {max(HITS)} hits", taken)
    store.close()


def _changed(measured: _Measured, embedder: SentenceTransformerEmbedder, documents: Path, asked: Sequence[str]) -> None:
    """Add a document and find it, over and over."""
    documents.mkdir()
    with Library(measured.folder, embedder, approximate_from=measured.approximate_from, kind="hybrid") as library:
        measured.stage("opening the library", library.warm)
        taken = [_seconds(partial(library.search, question, 4)) for question in asked]
        measured.searches("hybrid, 4 hits, with embedding the question", taken)
        added, found, removed = [], [], []
        for number in range(2 if measured.results.short else CHANGES):
            path = documents / f"{number}.txt"
            path.write_text(f"The password of the lighthouse number {number} is Zanzibar {number * number}.")
            added.append(_seconds(partial(library.add, path)))
            found.append(_seconds(partial(library.search, f"lighthouse number {number} Zanzibar", 1)))
            path.unlink()
        for number in range(len(added)):
            removed.append(_seconds(partial(library.remove, [documents / f"{number}.txt"])))
        measured.searches("adding a document", added)
        measured.searches("the search after that", found)
        measured.searches("removing a document", removed)


def _published(measured: _Measured, embedder: SentenceTransformerEmbedder, asked: Sequence[str]) -> None:
    """Copy the library and open the copy, while another thread searches it."""
    needed = sum(path.stat().st_size for path in measured.folder.iterdir() if path.is_file())
    if shutil.disk_usage(measured.folder).free < 1.1 * needed:
        measured.results.say("no snapshot: the disk has no place for a second one")
        return
    ended = threading.Event()
    taken: dict[str, list[float]] = {"copying": [], "opening": []}
    phase = "copying"

    def search(library: Library) -> None:
        while not ended.is_set():
            for question in asked:
                if not ended.is_set():
                    taken[phase].append(_seconds(partial(library.search, question, 4)))

    with Library(measured.folder, embedder, approximate_from=measured.approximate_from, kind="hybrid") as library:
        library.warm()
        thread = threading.Thread(target=search, args=(library,))
        thread.start()
        made: list[Path] = []
        measured.stage("publishing a snapshot", lambda: made.append(publish(measured.folder)))
        phase = "opening"
        with Library(made[0], embedder, approximate_from=measured.approximate_from, kind="hybrid") as snapshot:
            measured.stage("opening the snapshot", snapshot.warm)
            ended.set()
            thread.join()
    for name, seconds in taken.items():
        if seconds:
            measured.searches(f"hybrid, 4 hits, while {name} a snapshot", seconds)


def _seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began
