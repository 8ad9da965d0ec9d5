"""The suite `retrieval`: chunks embedded per second by number type, right documents found by kind of search, and what
approximate search by vectors saves and misses.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunker
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.library.library import Library, SearchKind
from scripts.bench.measuring import Spread, Table, share_interval
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.retrieval import embedding, searching
from scripts.bench.retrieval.questions import TEMPLATES, questions, ranks

DOCUMENTS = 4  # per side, as a daemon asks for
CHARACTERS = 2500  # of each document that go into the library
LONG = 300  # characters of a chunk that is embedded for its speed
REAL, LARGE = 9_000, 100_000  # chunks that are embedded, and vectors with those made up from them
HITS = (10, 64)  # those of the recall; what `hybrid` fuses


def run(results: Results) -> None:
    """Fill a library with the heads and beginnings of the documents, then ask it; and search all of the documents by
    vectors. Raises `NoText`.
    """
    files = files_of()
    if results.short:
        files = files[:12]
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        texts = Path(folder, "texts")
        texts.mkdir()
        for path in files:
            (texts / path.name).write_text(path.read_text("utf-8", errors="replace")[:CHARACTERS])
        embedder = SentenceTransformerEmbedder()
        results.say(f"ingestion of {len(files)} documents")
        with Library(Path(folder, "library"), embedder) as library:
            library.add(texts)
            chunks = library.texts()
        _embedding(results, chunks)
        _search(results, Path(folder, "library"), embedder, texts, len(chunks))
        _approximate(results, Path(folder), embedder, files)


def files_of() -> list[Path]:
    """The documents to measure with. Raises `NoText` where there are none."""
    named = os.environ.get(TEXT_FOLDER)
    files = sorted(Path(named).rglob("pep-*.rst")) if named else []
    if not files:
        raise NoText(f"set {TEXT_FOLDER} to a folder with peps/pep-*.rst, Python's enhancement proposals")
    return files


def chunks_of(files: list[Path], embedder: SentenceTransformerEmbedder, most: int) -> list[str]:
    """Up to `most` chunks of the documents, drawn with a fixed seed."""
    chunker = Chunker(embedder.tokenizer_file)
    texts = [chunk.text for path in files for chunk in chunker.split(path.read_text("utf-8", errors="replace"))]
    return [texts[index] for index in np.random.default_rng(2).permutation(len(texts))[:most]]


def _embedding(results: Results, chunks: list[str]) -> None:
    results.say("embedding")
    long = [chunk for chunk in chunks if len(chunk) >= LONG]
    count, rounds = (8, 1) if results.short else (96, 2)
    chosen = np.random.default_rng(1).choice(len(long), min(count, len(long)), False)
    ways = embedding.measure([long[index] for index in chosen], rounds)
    plain = ways[embedding.PLAIN]
    rows = []
    for name, way in ways.items():
        results.samples(f"seconds per chunk, {name}", way.seconds)
        rate = Spread.of([1 / seconds for seconds in way.seconds])
        ratio = Spread.of([one / two for one, two in zip(plain.seconds, way.seconds, strict=True)])
        cosines = way.cosines(plain)
        rows.append([name, rate.short(1), ratio.short(2), f"{cosines.min():.6f}", f"{cosines.mean():.6f}"])
    heads = ["way", "chunks/s", "times as fast", "least cosine", "mean cosine"]
    results.table("Embedding, one thread", Table(heads, rows))


def _search(results: Results, folder: Path, embedder: SentenceTransformerEmbedder, texts: Path, chunks: int) -> None:
    asked = questions(texts.iterdir(), 3 if results.short else 100)
    rows = []
    for kind in get_args(SearchKind):
        results.say(f"{len(asked)} questions, {kind}")
        with Library(folder, embedder, kind=kind) as library:
            library.warm()
            began = time.perf_counter()
            places = ranks(library, asked, DOCUMENTS)
            milliseconds = 1e3 * (time.perf_counter() - began) / len(asked)
        results.samples(f"ranks, {kind}", places)
        cells = [kind]
        for wanted in (*TEMPLATES, "all"):
            own = [place for place, one in zip(places, asked, strict=True) if wanted in (one.kind, "all")]
            cells.append(
                ", ".join(share_interval(sum(place <= most for place in own), len(own)) for most in (1, DOCUMENTS))
            )
        results.samples(f"milliseconds per question, {kind}", milliseconds)
        rows.append(cells)
    title = f"Right document among the first 1 and {DOCUMENTS} of {chunks} chunks, {len(asked)} questions"
    results.table(title, Table(["search", *TEMPLATES, "all"], rows))


def _approximate(results: Results, folder: Path, embedder: SentenceTransformerEmbedder, files: list[Path]) -> None:
    real, large, asked = (40, 200, 4) if results.short else (REAL, LARGE, 50)
    texts = chunks_of(files, embedder, real)
    results.say(f"embedding {len(texts)} chunks")
    vectors = unit_vectors(embedder, texts)
    queries = unit_vectors(embedder, [question.text for question in questions(files, asked)], queries=True)
    compare(results, folder, vectors, queries, large)


def compare(
    results: Results, folder: Path, vectors: NDArray[np.float32], queries: NDArray[np.float32], large: int
) -> None:
    """Exhaustive against approximate search of `vectors` [n, dimension] and of `large` that are made from them."""
    rows = []
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    for count in (len(vectors), large):
        results.say(f"{len(queries)} questions, {count} vectors")
        place = folder / f"of {count}"
        place.mkdir()
        searching.fill(place, "measured", searching.grown(vectors, count))
        for k, (exhaustive, approximate) in searching.measure(place, queries, HITS).items():
            cells = [f"{count:,}", str(k)]
            for name, way in (("exhaustive", exhaustive), ("approximate", approximate)):
                milliseconds = [1e3 * seconds for seconds in way.seconds]
                results.samples(f"milliseconds, {count} vectors, {k} hits, {name}", milliseconds)
                cells.append(Spread.of(milliseconds).short(1))
            recalls = approximate.recalls(exhaustive)
            results.samples(f"recall, {count} vectors, {k} hits", recalls)
            rows.append([*cells, f"{np.mean(recalls):.3f}", f"{min(recalls):.2f}"])
        sizes = " and ".join(
            f"{way.size / 2**20:.0f} MiB in {way.preparation:.0f} s" for way in (exhaustive, approximate)
        )
        results.say(f"{count} vectors: an exhaustive and an approximate index of {sizes}")
    faiss.omp_set_num_threads(threads)
    heads = ["vectors", "hits", "exhaustive, ms", "approximate, ms", "recall", "least recall"]
    title = f"Search by vectors, one thread; {len(vectors)} vectors are of chunks, the others are near these"
    results.table(title, Table(heads, rows))
