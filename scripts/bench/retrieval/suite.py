"""The suite `retrieval`: chunks embedded per second by number type, right documents found by kind of search."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import get_args

import numpy as np
from scipy.stats import binomtest

from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.library import Library, SearchKind
from scripts.bench.measuring import CONFIDENCE, Spread, Table
from scripts.bench.quality.corpus import TEXT_FOLDER, NoText
from scripts.bench.results import Results
from scripts.bench.retrieval import embedding
from scripts.bench.retrieval.questions import TEMPLATES, questions, ranks

DOCUMENTS = 4  # per side, as a daemon asks for
CHARACTERS = 2500  # of each document that go into the library
LONG = 300  # characters of a chunk that is embedded for its speed


def run(results: Results) -> None:
    """Fill a library with the heads and beginnings of the documents, then ask it. Raises `NoText`."""
    named = os.environ.get(TEXT_FOLDER)
    files = sorted(Path(named).glob("pep-*.rst")) if named else []
    if not files:
        raise NoText(f"set {TEXT_FOLDER} to a folder of Python's enhancement proposals (pep-*.rst)")
    if results.short:
        files = files[:12]
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        texts = Path(folder, "texts")
        texts.mkdir()
        for path in files:
            (texts / path.name).write_text(path.read_text("utf-8", errors="replace")[:CHARACTERS])
        embedder = SentenceTransformerEmbedder()
        results.say(f"ingestion of {len(files)} documents")
        with Library.open(Path(folder, "library"), embedder) as library:
            library.add(texts)
            chunks = library.texts()
        _embedding(results, chunks)
        _search(results, Path(folder, "library"), embedder, texts, len(chunks))


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
        rows.append([name, rate.text(1), ratio.text(2), f"{cosines.min():.6f}", f"{cosines.mean():.6f}"])
    heads = ["way", "chunks/s", "times as fast", "least cosine", "mean cosine"]
    results.table("Embedding, one thread", Table(heads, rows))


def _search(results: Results, folder: Path, embedder: SentenceTransformerEmbedder, texts: Path, chunks: int) -> None:
    asked = questions(texts.iterdir(), 3 if results.short else 100)
    rows = []
    for kind in get_args(SearchKind):
        results.say(f"{len(asked)} questions, {kind}")
        with Library.open(folder, embedder, kind=kind) as library:
            library.warm()
            began = time.perf_counter()
            places = ranks(library, asked, DOCUMENTS)
            milliseconds = 1e3 * (time.perf_counter() - began) / len(asked)
        results.samples(f"ranks, {kind}", places)
        cells = [kind]
        for wanted in (*TEMPLATES, "all"):
            own = [place for place, one in zip(places, asked, strict=True) if wanted in (one.kind, "all")]
            cells.append(", ".join(_share(own, most) for most in (1, DOCUMENTS)))
        rows.append([*cells, f"{milliseconds:.0f}"])
    title = f"Right document among the first 1 and {DOCUMENTS} of {chunks} chunks, {len(asked)} questions"
    results.table(title, Table(["search", *TEMPLATES, "all", "ms per question"], rows))


def _share(places: list[int], most: int) -> str:
    """Share of ranks up to `most`, with its 95 % interval (Wilson); a dash for none at all."""
    if not places:
        return "–"
    found = binomtest(sum(place <= most for place in places), len(places))
    interval = found.proportion_ci(CONFIDENCE, "wilson")
    return f"{found.statistic:.2f} [{interval.low:.2f}-{interval.high:.2f}]"
