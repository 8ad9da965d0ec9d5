"""Ingestion, index and queries of a library against its number of chunks, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.library import Library
from scripts.daemons import ROOT

CHUNKS_PER_FILE = 500
QUERIES = 200
SENTENCES = (
    "The {0} of {1} was built in {2} by {3}.",
    "In {1}, the {0} serves {3} every day until {2}.",
    "{3} keeps a {0} near the gate of {1}, number {2}.",
    "Nobody in {1} has seen the {0} since {3} left in {2}.",
)
THINGS = ("harbour", "library", "mill", "bakery", "tower", "orchard", "museum", "bridge", "school", "theatre")


@dataclass(frozen=True, slots=True)
class Measured:
    """One library. Times are seconds, sizes bytes."""

    chunks: int
    ingestion: float
    folder: int  # on disk: texts, vectors and index
    start: float  # opening it and reading the index
    query: list[float]
    resident: int  # of the process that searches, more than before it opened the library


def measure(chunks: int) -> Measured:
    """Make a library of about `chunks` chunks and search it, in a fresh process."""
    command = [sys.executable, "-m", "scripts.bench.growth.library", str(chunks)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the library of {chunks} chunks failed: {done.stderr.strip()[-500:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _measure(chunks: int) -> Measured:
    random = np.random.default_rng(5)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as name:
        folder = Path(name)
        texts = folder / "texts"
        texts.mkdir()
        for number, text in enumerate(_files(chunks, random)):
            (texts / f"{number:05}.md").write_text(text)
        embedder = SentenceTransformerEmbedder()
        library = Library.open(folder / "library", embedder)
        embedder.encode(["warm"])
        started = time.perf_counter()
        library.add(texts)
        ingestion = time.perf_counter() - started
        count = library.count
        library.close()
        size = sum(path.stat().st_size for path in (folder / "library").rglob("*") if path.is_file())
        before = psutil.Process().memory_info().rss
        started = time.perf_counter()
        library = Library.open(folder / "library", embedder)
        library.warm()
        start = time.perf_counter() - started
        query = []
        for _ in range(min(QUERIES, 2 * chunks)):
            question = f"Who keeps the {THINGS[random.integers(len(THINGS))]} of {_name(random)}?"
            started = time.perf_counter()
            library.search(question, 4)
            query.append(time.perf_counter() - started)
        resident = psutil.Process().memory_info().rss - before
        library.close()
    return Measured(count, ingestion, size, start, query, resident)


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


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(int(sys.argv[1])))))
