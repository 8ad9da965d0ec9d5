"""The suite `retrieval`: chunks embedded per second by number type, right documents found by kind of search, and what
approximate search by vectors saves and misses.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import get_args

import faiss
import numpy as np

from common.library.chunks import Chunker
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.library.library import Library, SearchKind
from scripts.bench.measuring import Table
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.retrieval import embedding, searching
from scripts.bench.retrieval.questions import TEMPLATES, questions, ranks
from scripts.bench.rows import Cell, Row, grid, over, share, spread, table, values, where

DOCUMENTS = 4  # per side, as a daemon asks for
CHARACTERS = 2500  # of each document that go into the library
LONG = 300  # characters of a chunk that is embedded for its speed
HITS = (10, 64)  # those of the recall; what `hybrid` fuses


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a run; `files` of None are all."""

    files: int | None = None
    embedded: int = 96  # chunks, to time the embedding
    rounds: int = 2
    questions: int = 100  # of each kind
    asked: int = 50  # of each kind, by vectors alone
    real: int = 9_000  # vectors of chunks
    large: int = 100_000  # vectors with those made up from them


SHORT = Sizes(12, 8, 1, 3, 4, 40, 200)


def run(results: Results) -> None:
    """Fill a library with the beginnings of the documents, then ask it; and search all of the documents by vectors.

    Raises `NoText`.
    """
    sizes = SHORT if results.short else Sizes()
    files = files_of()[: sizes.files]
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as name:
        folder = Path(name)
        texts = folder / "texts"
        texts.mkdir()
        for path in files:
            (texts / path.name).write_text(path.read_text("utf-8", errors="replace")[:CHARACTERS])
        embedder = SentenceTransformerEmbedder()
        results.say(f"ingestion of {len(files)} documents")
        with Library(folder / "library", embedder) as library:
            library.add(texts)
            chunks = library.texts()

        def measure(case: Row) -> Iterator[Row]:
            results.say(", ".join(map(str, case.values())))
            if case["part"] == "embedding":
                yield from _embedding(chunks, sizes)
            elif case["part"] == "search":
                yield from _search(folder / "library", embedder, texts, case["search"], sizes)
            else:
                yield from _vectors(folder, embedder, files, sizes)

        kinds = grid(part=["search"], search=get_args(SearchKind))
        rows = results.measured([{"part": "embedding"}, *kinds, {"part": "vectors"}], measure)
    results.table("Embedding, one thread", embedding_table(where(rows, part="embedding")))
    searched = where(rows, part="search")
    asked = len({(row["kind"], row["number"]) for row in searched})
    title = f"Right document among the first 1 and {DOCUMENTS} of {len(chunks)} chunks, {asked} questions"
    results.table(title, search_table(searched))
    title = "Search by vectors, one thread; the first vectors are of chunks, the others are near these"
    results.table(title, vectors_table(where(rows, part="vectors")))


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


def _embedding(chunks: list[str], sizes: Sizes) -> Iterator[Row]:
    long = [chunk for chunk in chunks if len(chunk) >= LONG]
    chosen = np.random.default_rng(1).choice(len(long), min(sizes.embedded, len(long)), False)
    return embedding.measure([long[index] for index in chosen], sizes.rounds)


def embedding_table(rows: list[Row]) -> Table:
    """A line for each way of embedding."""
    plain = [row | {"rate": 1 / row["seconds"]} for row in where(rows, way=embedding.PLAIN)]
    columns: dict[str, Cell] = {
        "chunks/s": spread("rate", 1),
        "times as fast": over(plain, "rate", "turn"),
        "least cosine": lambda those: f"{min(row['least cosine'] for row in those):.6f}",
        "mean cosine": lambda those: f"{fmean(row['mean cosine'] for row in those):.6f}",
    }
    return table([row | {"rate": 1 / row["seconds"]} for row in rows], ["way"], columns)


def _search(
    folder: Path, embedder: SentenceTransformerEmbedder, texts: Path, kind: SearchKind, sizes: Sizes
) -> Iterator[Row]:
    asked = questions(texts.iterdir(), sizes.questions)
    with Library(folder, embedder, kind=kind) as library:
        library.warm()
        began = time.perf_counter()
        places = ranks(library, asked, DOCUMENTS)
        milliseconds = 1e3 * (time.perf_counter() - began) / len(asked)
    for number, (one, place) in enumerate(zip(asked, places, strict=True)):
        yield {"number": number, "kind": one.kind, "rank": place, "milliseconds": milliseconds}


def search_table(rows: list[Row]) -> Table:
    """A line for each kind of search: how often the right document is the first, and among those that are read."""
    placed = [row | {"first": row["rank"] == 1, "found": row["rank"] <= DOCUMENTS} for row in rows]

    def shown(**kind: object) -> Cell:
        return lambda those: ", ".join(share(field, **kind)(those) for field in ("first", "found"))

    columns = {kind: shown(kind=kind) for kind in TEMPLATES} | {"all": shown()}
    return table(placed, ["search"], columns)


def _vectors(folder: Path, embedder: SentenceTransformerEmbedder, files: list[Path], sizes: Sizes) -> Iterator[Row]:
    """Exhaustive against approximate search of vectors of chunks, and of more that are near these."""
    vectors = unit_vectors(embedder, chunks_of(files, embedder, sizes.real))
    queries = unit_vectors(embedder, [one.text for one in questions(files, sizes.asked)], queries=True)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for count in (len(vectors), sizes.large):
            place = folder / f"of {count}"
            place.mkdir()
            searching.fill(place, "measured", searching.grown(vectors, count))
            yield from ({"vectors": count} | row for row in searching.measure(place, queries, HITS))
    finally:
        faiss.omp_set_num_threads(threads)


def vectors_table(rows: list[Row]) -> Table:
    """A line for each number of vectors and hits."""
    columns: dict[str, Cell] = {
        "exhaustive, ms": spread("exhaustive", 1),
        "approximate, ms": spread("approximate", 1),
        "recall": lambda those: f"{fmean(values(those, 'recall')):.3f}",
        "least recall": lambda those: f"{min(values(those, 'recall')):.2f}",
    }
    searches = [row | {"of": f"{row['vectors']:,}"} for row in rows if row["hits"]]
    return table(searches, {"vectors": "of", "hits": "hits"}, columns)
