"""The suite `retrieval`: how fast the library embeds, and whether it finds the right document.

Chunks embedded per second by number type, right documents and notes found by kind of search, and what approximate
search by vectors saves and misses.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from common.library import embedder as embedding
from common.library.chunks import Chunk, Chunker
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.library.index import VectorIndex
from common.library.library import Library, SearchKind
from common.library.store import INDEX, FileRecord, Store
from scripts.bench import alike
from scripts.bench.asking import own_folder
from scripts.bench.measuring import Table
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.rows import Cell, Row, grid, over, share, spread, table, values, where

DOCUMENTS: Final = 4  # per side, as a daemon asks for
CHARACTERS: Final = 2500  # of each document that go into the library
LONG: Final = 300  # characters of a chunk that is embedded for its speed
HITS: Final = (10, 64)  # those of the recall; what `hybrid` fuses
TURN: Final = 8  # texts that one way embeds before the next one does: the machine's pace changes over minutes
PLAIN: Final = "PyTorch's layers, float32"
HEAD: Final = re.compile(r"^([A-Z][\w-]+):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
TEMPLATES: Final = {
    "author, by title": ("Title", "Author", "Who wrote the PEP titled {Title}?"),
    "date, by title": ("Title", "Created", "When was the PEP about {Title} created?"),
    "status, by number": ("PEP", "Status", "What is the status of PEP {PEP}?"),
    "version, by number": ("PEP", "Python-Version", "Which Python version does PEP {PEP} target?"),
}
COSINE: Final = 0.9  # of a made-up vector with the real one that it is a neighbour of
FILE: Final = 64  # chunks of a document of such vectors
Vectors = NDArray[np.float32]  # [n, dimension]


class Sizes(NamedTuple):
    """Sizes of a run; `files` of None are all."""

    files: int | None = None
    embedded: int = 96  # chunks, to time the embedding
    rounds: int = 2
    questions: int = 100  # of each kind
    asked: int = 50  # of each kind, by vectors alone
    real: int = 9_000  # vectors of chunks
    large: int = 100_000  # vectors with those made up from them
    alike: int = 200  # notes of each kind


SHORT: Final = Sizes(12, 8, 1, 3, 4, 40, 200, 4)


def run(results: Results) -> None:
    """Fill a library with the beginnings of the documents, then ask it; and search all of the documents by vectors.

    Raises `NoText`.
    """
    sizes = SHORT if results.short else Sizes()
    files = files_of()[: sizes.files]
    with own_folder() as folder:
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
                return measure_embedding([chunk for chunk in chunks if len(chunk) >= LONG], sizes)
            if case["part"] == "search":
                with_kind = Library(folder / "library", embedder, kind=case["search"])
                return measure_search(with_kind, questions(texts.iterdir(), sizes.questions))
            if case["part"] == "alike":
                return measure_alike(folder, embedder, case["kind"], sizes.alike)
            return measure_vectors(folder, embedder, files, sizes)

        cases = grid(part=["search"], search=get_args(SearchKind)) + grid(part=["alike"], kind=alike.KINDS)
        rows = results.measured([{"part": "embedding"}, *cases, {"part": "vectors"}], measure)
    results.table("Embedding, one thread", embedding_table(where(rows, part="embedding")))
    searched = where(rows, part="search")
    asked = len({(row["kind"], row["number"]) for row in searched})
    title = f"Right document among the first 1 and {DOCUMENTS} of {len(chunks)} chunks, {asked} questions"
    results.table(title, search_table(searched, list(TEMPLATES)))
    title = f"Right note among the first 1 and {DOCUMENTS} of {sizes.alike} of one form"
    results.table(title, search_table(where(rows, part="alike"), list(alike.KINDS)))
    title = "Search by vectors, one thread; the first vectors are of chunks, the others are near these"
    results.table(title, vectors_table(where(rows, part="vectors")))


def files_of() -> list[Path]:
    """The documents to measure with. Raises `NoText` where there are none."""
    named = os.environ.get(TEXT_FOLDER)
    files = sorted(Path(named).rglob("pep-*.rst")) if named else []
    if not files:
        raise NoText(f"set {TEXT_FOLDER} to a folder with peps/pep-*.rst, Python's enhancement proposals")
    return files


# --- embedding


def measure_embedding(chunks: Sequence[str], sizes: Sizes) -> Iterator[Row]:
    """Embeds some chunks in every way, in turns and one thread: seconds per text, and cosines with the first way's."""
    chosen = np.random.default_rng(1).choice(len(chunks), min(sizes.embedded, len(chunks)), False)
    texts = [chunks[index] for index in chosen]
    plain = SentenceTransformerEmbedder()
    plain._loaded = embedding._load(plain.folder, "cpu")  # as it is loaded, before its layers are packed
    ways = {PLAIN: plain}
    ways |= {f"packed, {dtype}": SentenceTransformerEmbedder(dtype=dtype) for dtype in ("float32", "bfloat16")}
    for way in ways.values():
        way.encode(["warm"])
    for number in range(sizes.rounds):
        for start in range(0, len(texts), TURN):
            turn = texts[start : start + TURN]
            first = None
            for name, way in ways.items():
                began = time.perf_counter()
                vectors = way.encode(turn)
                seconds = (time.perf_counter() - began) / len(turn)
                first = vectors if first is None else first
                cosines = np.sum(vectors * first, axis=1)
                row = {"way": name, "turn": number * len(texts) + start, "seconds": seconds}
                yield row | {"least cosine": float(cosines.min()), "mean cosine": float(cosines.mean())}


def embedding_table(rows: list[Row]) -> Table:
    """A line for each way of embedding."""
    rows = [row | {"rate": 1 / row["seconds"]} for row in rows]
    columns: dict[str, Cell] = {
        "chunks/s": spread("rate", 1),
        "times as fast": over(where(rows, way=PLAIN), "rate", "turn"),
        "least cosine": lambda those: f"{min(row['least cosine'] for row in those):.6f}",
        "mean cosine": lambda those: f"{fmean(row['mean cosine'] for row in those):.6f}",
    }
    return table(rows, ["way"], columns)


# --- finding the right document


class Question(NamedTuple):
    """A question, its kind, and the name of the file that has the answer."""

    kind: str
    text: str
    file: str


def questions(files: Iterable[Path], most: int) -> list[Question]:
    """Up to `most` questions of each kind, of what heads of proposals say, about files drawn with a fixed seed."""
    paths = sorted(files)
    found: dict[str, list[Question]] = {kind: [] for kind in TEMPLATES}
    for index in np.random.default_rng(5).permutation(len(paths)):
        head = dict(HEAD.findall(paths[index].read_text("utf-8", errors="replace").partition("\n\n")[0]))
        for kind, (named, asked, template) in TEMPLATES.items():
            if named in head and asked in head and len(found[kind]) < most:
                found[kind].append(Question(kind, template.format_map(head), paths[index].name))
    return [question for kind in found.values() for question in kind]


def measure_search(opened: Library, asked: Sequence[Question]) -> Iterator[Row]:
    """Rank of the first chunk of each question's file, from 1; one more than are searched for where there is none."""
    with opened as library:
        library.warm()
        began = time.perf_counter()
        found = [[Path(hit.path).name for hit in library.search(each.text, DOCUMENTS)] for each in asked]
        milliseconds = 1e3 * (time.perf_counter() - began) / len(asked)
    for number, (one, names) in enumerate(zip(asked, found, strict=True)):
        rank = names.index(one.file) + 1 if one.file in names else DOCUMENTS + 1
        yield {"number": number, "kind": one.kind, "rank": rank, "milliseconds": milliseconds}


def measure_alike(folder: Path, embedder: SentenceTransformerEmbedder, kind: str, count: int) -> Iterator[Row]:
    """Ranks of notes of a kind, by each kind of search, as `measure_search`."""
    texts = folder / kind
    texts.mkdir()
    asked = []
    for number, each in enumerate(alike.notes(kind, count)):
        path = texts / f"{number:03}.txt"
        path.write_text(each.note)
        asked.append(Question(kind, each.question, path.name))
    with Library(folder / f"of {kind}", embedder) as library:
        library.add(texts)
    for search in get_args(SearchKind):
        opened = Library(folder / f"of {kind}", embedder, kind=search)
        yield from ({"search": search} | row for row in measure_search(opened, asked))


def search_table(rows: list[Row], kinds: Sequence[str]) -> Table:
    """A line for each kind of search: how often the right document is the first, and among those that are read."""
    placed = [row | {"first": row["rank"] == 1, "found": row["rank"] <= DOCUMENTS} for row in rows]

    def shown(**kind: object) -> Cell:
        return lambda those: ", ".join(share(field, **kind)(those) for field in ("first", "found"))

    columns = {kind: shown(kind=kind) for kind in kinds} | {"all": shown()}
    return table(placed, ["search"], columns)


# --- exhaustive against approximate search


def measure_vectors(
    folder: Path, embedder: SentenceTransformerEmbedder, files: list[Path], sizes: Sizes
) -> Iterator[Row]:
    """Searches vectors of chunks both ways, and of more that are near these."""
    chunker = Chunker(embedder.tokenizer_file)
    texts = [chunk.text for path in files for chunk in chunker.split(path.read_text("utf-8", errors="replace"))]
    chosen = [texts[index] for index in np.random.default_rng(2).permutation(len(texts))[: sizes.real]]
    vectors = unit_vectors(embedder, chosen)
    queries = unit_vectors(embedder, [one.text for one in questions(files, sizes.asked)], queries=True)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for count in (len(vectors), sizes.large):
            place = folder / f"of {count}"
            place.mkdir()
            fill(place, grown(vectors, count))
            yield from ({"vectors": count} | row for row in measure_index(place, queries))
    finally:
        faiss.omp_set_num_threads(threads)


def grown(vectors: Vectors, count: int) -> Iterator[Vectors]:
    """The first `count` of `vectors`, in blocks; beyond those there are, neighbours of them in random directions."""
    random = np.random.default_rng(7)
    yield vectors[:count]
    missing = count - len(vectors)
    while missing > 0:
        near = vectors[:missing]
        noise = random.normal(size=near.shape)
        noise -= np.sum(noise * near, axis=1, keepdims=True) * near
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        yield (COSINE * near + np.sqrt(1 - COSINE**2) * noise).astype(np.float32)
        missing -= len(near)


def fill(folder: Path, blocks: Iterable[Vectors]) -> None:
    """Make a library's database of blocks of vectors."""
    store = Store(folder)
    put = 0
    for block in blocks:
        with store.writing():
            if put == 0:
                store.set_embedder("measured", block.shape[1])
            for start in range(0, len(block), FILE):
                part = block[start : start + FILE]
                record = FileRecord(0, f"/{put}", "/", f"{put}", f"{put}", 0, 0, "", len(part))
                store.put_file(record, [Chunk(0, 1, f"chunk {put + number}") for number in range(len(part))], part)
                put += len(part)
            store.advance()
    store.close()


def measure_index(folder: Path, questions: Vectors) -> Iterator[Row]:
    """Searches a library both ways for the nearest chunks to each question, in turns.

    Rows have milliseconds, and the share of the exhaustive search's chunks that the approximate one found.
    """
    store = Store(folder)
    indexes: list[VectorIndex] = []
    for name, least in (("exhaustive", 0), ("approximate", 1)):
        began = time.perf_counter()
        indexes.append(_index(store, folder, least))
        seconds = time.perf_counter() - began
        indexes[-1].save(store)
        size = (folder / INDEX).stat().st_size if indexes[-1].approximate else 0
        yield {"hits": 0, "index": name, "seconds": seconds, "MiB": size / 2**20}
    with store.reading():
        for hits in HITS:
            for number, question in enumerate(questions):
                found, times = [], []
                for index in indexes:
                    began = time.perf_counter()
                    found.append(set(index.search(store, question, hits)))
                    times.append(1e3 * (time.perf_counter() - began))
                recall = len(found[0] & found[1]) / len(found[0]) if found[0] else None
                row = {"hits": hits, "question": number, "exhaustive": times[0], "approximate": times[1]}
                yield row | {"recall": recall}
    for index in indexes:
        index.close()
    store.close()


def _index(store: Store, folder: Path, approximate_from: int) -> VectorIndex:
    """An index that is ready."""
    index = VectorIndex(folder, approximate_from)
    with store.reading():
        index.refresh(store)
        if approximate_from:
            index.search(store, np.zeros(store.state().dimension or 0, np.float32), 1)  # begins the training
    if approximate_from:
        index.finish_training()
        with store.reading():
            index.refresh(store)
        if not index.approximate:
            raise RuntimeError("no approximate index was made; the log says why")
    return index


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
