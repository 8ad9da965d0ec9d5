"""Ingestion, index and queries of a library against its number of chunks."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import torch

from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.library import Library

T = TypeVar("T")

CHUNKS_PER_FILE = 500
QUERIES = 200
WARM = 20  # questions embedded before the first one that counts
LIBRARY = "library"
SENTENCES = (
    "The {0} of {1} was built in {2} by {3}.",
    "In {1}, the {0} serves {3} every day until {2}.",
    "{3} keeps a {0} near the gate of {1}, number {2}.",
    "Nobody in {1} has seen the {0} since {3} left in {2}.",
)
THINGS = ("harbour", "library", "mill", "bakery", "tower", "orchard", "museum", "bridge", "school", "theatre")


@dataclass(frozen=True, slots=True)
class Filled:
    """A new library. Times are seconds."""

    chunks: int
    ingestion: float
    processor: float  # of one core, during the ingestion
    folder: int  # bytes on disk: texts, vectors and index


@dataclass(frozen=True, slots=True)
class Searched:
    """A library opened by a process that did not fill it. Times are seconds."""

    start: float  # opening it and reading the index
    query: list[float]
    resident: int  # bytes that the process grew by


def measure(chunks: int) -> tuple[Filled, Searched]:
    """Make a library of about `chunks` chunks and search it, either in a fresh process with one thread."""
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        return _alone(_fill, Path(folder), chunks), _alone(_search, Path(folder), min(QUERIES, 2 * chunks))


def _alone(work: Callable[[Path, int], T], folder: Path, count: int) -> T:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as process:
        return process.submit(work, folder, count).result()


def _fill(folder: Path, chunks: int) -> Filled:
    texts = folder / "texts"
    texts.mkdir()
    for number, text in enumerate(_files(chunks, np.random.default_rng(5))):
        (texts / f"{number:05}.md").write_text(text)
    embedder = SentenceTransformerEmbedder()
    embedder.encode(["warm"])
    with Library(folder / LIBRARY, embedder) as library:
        started, work = time.perf_counter(), time.process_time()
        library.add(texts)
        ingestion, processor = time.perf_counter() - started, time.process_time() - work
        count = library.count
    size = sum(path.stat().st_size for path in (folder / LIBRARY).rglob("*") if path.is_file())
    return Filled(count, ingestion, processor, size)


def _search(folder: Path, count: int) -> Searched:
    random = np.random.default_rng(6)
    embedder = SentenceTransformerEmbedder()
    for _ in range(WARM):
        embedder.encode([_question(random)])
    before = psutil.Process().memory_info().rss
    started = time.perf_counter()
    with Library(folder / LIBRARY, embedder) as library:
        library.warm()
        start = time.perf_counter() - started
        query = []
        for _ in range(count):
            question = _question(random)
            started = time.perf_counter()
            library.search(question, 4)
            query.append(time.perf_counter() - started)
        resident = psutil.Process().memory_info().rss - before
    return Searched(start, query, resident)


def _question(random: np.random.Generator) -> str:
    return f"Who keeps the {THINGS[random.integers(len(THINGS))]} of {_name(random)}?"


def _files(chunks: int, random: np.random.Generator) -> Iterator[str]:
    """Markdown files whose sections are a chunk each."""
    for start in range(0, chunks, CHUNKS_PER_FILE):
        sections = []
        for _ in range(min(CHUNKS_PER_FILE, chunks - start)):
            facts = [
                sentence.format(
                    THINGS[random.integers(len(THINGS))], _name(random), random.integers(1500, 2000), _name(random)
                )
                for sentence in SENTENCES
            ]
            sections.append(f"# {_name(random)}\n\n{' '.join(facts)}\n")
        yield "\n".join(sections)


def _name(random: np.random.Generator) -> str:
    letters = ["bdfgklmnprstvz"[random.integers(14)] + "aeiou"[random.integers(5)] for _ in range(3)]
    return "".join(letters).capitalize()
