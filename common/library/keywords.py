"""Keyword search: an FTS5 index of chunks and titles, ranked by BM25."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from common.library.database import WORDS, Database
from common.library.terms import sought

_MOST_WORDS = 64  # the rarest words of a question that are searched
_MOST_COUNTED = 512  # counted terms of a question, about a page of text
_FEW = 256  # chunks up to which words are counted first
_COMMON = 8  # a word in more than 1 / 8 of the chunks says little and ranks slowly
_COMMON_AMONG_FEW = 4  # the same up to `_QUICK` chunks
_QUICK = 64  # chunks ranked instantly
_EQUALS = 64  # spare chunks fetched to find equal ranks
_ROWS = 1024  # fetched at a time
_CHECKED = 2**18  # largest index with a checksum, in chunks: half a second
_RANKED = 2**14  # chunks ranked, once for each of their words: 50 ms

# Constant of reciprocal rank fusion: 1 / (constant + rank). The usual 60 prefers the middle of both lists to the first
# of one. That is wrong for a number or a name that the embedding model does not know.
_FUSION = 5
_WORDS = 2  # weight of the best words relative to the nearest vector


class Keywords:
    """The index of one database, inside its transactions. Remove documents here before their chunks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, content: int) -> None:
        self._put_sum(None)
        self._database.run(
            "INSERT INTO keywords (rowid, title, text) SELECT id, title, text FROM passages WHERE content = ?",
            (content,),
        )

    def remove(self, content: int) -> None:
        """Removes the chunks of a content, which must be unchanged."""
        self._put_sum(None)
        self._database.run("DELETE FROM keywords WHERE rowid IN (SELECT id FROM chunks WHERE content = ?)", (content,))

    def forget(self) -> None:
        """Rewrites the index without the words of removed chunks.

        They remain until then. Takes a second per twenty million words.
        """
        self._put_sum(None)
        self._database.run("INSERT INTO keywords (keywords) VALUES ('optimize')")

    def sign(self) -> None:
        """Stores a changed index's checksum for `check`, unless it takes long."""
        ((chunks,),) = self._database.all("SELECT coalesce(sum(chunks), 0) FROM contents")
        if self._stated() is None and chunks <= _CHECKED:
            self._put_sum(self._sum())

    def check(self) -> None:
        """Raises `LibraryDamaged` if the index contradicts its checksum."""
        stated = self._stated()
        if stated is not None and stated != self._sum():
            raise self._database.damaged("the index of words differs from what was written")

    def _stated(self) -> int | None:
        """Returns the checksum after the last change; None while the index is changing."""
        rows = self._database.all("SELECT total FROM sums WHERE name = ?", (WORDS,))
        if len(rows) != 1:
            raise self._database.damaged("a row of sums is missing")
        stated: int | None = rows[0][0]
        return stated

    def _put_sum(self, total: int | None) -> None:
        self._database.run("UPDATE sums SET total = ? WHERE name = ?", (total, WORDS))

    def _sum(self) -> int:
        found = 0
        for identifier, block in self._database.all("SELECT id, block FROM keywords_data ORDER BY id"):
            if not isinstance(block, bytes):
                raise self._database.damaged("the index of words differs from what was written")
            found = crc32(block, crc32(b"%d " % identifier, found))
        for rows in (
            "id || ' ' || hex(sz)) FROM keywords_docsize",
            "segid || hex(term) || ' ' || pgno) FROM keywords_idx",
        ):
            ((joined,),) = self._database.all(f"SELECT group_concat({rows}")
            found = crc32((joined or "").encode(), found)
        return found

    def search(self, question: str, k: int, chunks: int, among: NDArray[np.int64] | None = None) -> Mapping[int, float]:
        """Up to `k` chunks with words most like the question's, best first.

        Likeness is relative to the best, from 0 to 1. `chunks` is the number of all. `among` are the permitted ids,
        ascending; None permits all. Common words count only without rare ones, and only among few enough chunks. A long
        question counts by its rarest words.
        """
        if k <= 0:
            return {}
        most = min(_RANKED, max(1, chunks // _COMMON, min(_QUICK, chunks // _COMMON_AMONG_FEW)))
        counts = self._counts_of(sought(question)[:_MOST_COUNTED], most, chunks)
        rare = sorted((term for term, count in counts.items() if count <= most), key=lambda term: counts[term])
        ranked = accumulate(counts[term] for term in rare)
        rare = [term for term, all_ranked in zip(rare, ranked, strict=True) if all_ranked <= _RANKED]
        large = chunks // _COMMON > _RANKED
        if rare:
            found = self._ranked(rare, k, among)
            if found or among is None or large:
                return found
            # The rare words may be outside `among`.
        return {} if large else self._ranked(list(counts), k, among)

    def _ranked(self, terms: Sequence[str], k: int, among: NDArray[np.int64] | None) -> Mapping[int, float]:
        wanted = " OR ".join(terms)
        if not wanted:
            return {}
        query = "SELECT rowid, rank FROM keywords WHERE keywords MATCH ?"
        if among is None:
            return self._best(query, wanted, k)
        with self._database.function("among", _membership(among)):
            return self._best(f"{query} AND among(rowid)", wanted, k)

    def _best(self, query: str, wanted: str, k: int) -> Mapping[int, float]:
        """The up to `k` best chunks, of lowest rank, with their likeness.

        Ties are decided by document digests, then by the order of chunks: never by the order of addition.
        """
        ranked = self._database.all(f"{query} ORDER BY rank, rowid LIMIT ?", (wanted, k + _EQUALS))
        if len(ranked) == k + _EQUALS and ranked[-1][1] == ranked[k - 1][1]:  # more may have this rank
            ranked = self._database.all(query, (wanted,))
        worst = max(nsmallest(k, (rank for _, rank in ranked)), default=0.0)
        reaching = [(rank, chunk) for chunk, rank in ranked if rank <= worst]
        alike = Counter(rank for rank, _ in reaching)
        digests = self._digests([chunk for rank, chunk in reaching if alike[rank] > 1])
        best = sorted((rank, digests.get(chunk, ""), chunk) for rank, chunk in reaching)[:k]
        return {chunk: rank / best[0][0] for rank, _, chunk in best}

    def _digests(self, chunks: Sequence[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for start in range(0, len(chunks), _ROWS):
            part = chunks[start : start + _ROWS]
            query = (
                "SELECT chunks.id, sha256 FROM chunks JOIN contents ON contents.id = content WHERE chunks.id IN ({})"
            )
            rows = self._database.all(query.format(", ".join("?" * len(part))), part)
            found |= {chunk: str(digest) for chunk, digest in rows}
        return found

    def _counts_of(self, terms: Sequence[str], most: int, chunks: int) -> dict[str, int]:
        """Counts the chunks with each of the rarest `terms`, see `_counts`.

        In a large library a phrase needs a rare word: it takes time for each chunk with its words.
        """
        counts = self._counts([term for term in terms if " " not in term], most)

        def is_rare(phrase: str) -> bool:
            words = (f'"{word}"' for word in phrase.strip('"').split())
            return any((counts.get(word) or self._count(word, most)) <= most for word in words)

        phrases = (term for term in terms if " " in term)
        return counts | self._counts([each for each in phrases if chunks <= _RANKED or is_rare(each)], most)

    def _counts(self, terms: Sequence[str], most: int) -> dict[str, int]:
        """Counts the chunks with each of the rarest `terms`, in order; omits absent terms."""
        few = min(most, _FEW if len(terms) > _MOST_WORDS else most)
        counts = {term: count for term in terms if (count := self._count(term, few))}
        common = [term for term, count in counts.items() if count > few]
        room = max(0, _MOST_WORDS - len(counts) + len(common))
        for term in common[:room]:
            counts[term] = self._count(term, most)
        for term in common[room:]:
            del counts[term]
        rarest = set(nsmallest(_MOST_WORDS, counts, key=lambda term: counts[term]))
        return {term: count for term, count in counts.items() if term in rarest}

    def _count(self, term: str, most: int) -> int:
        """Number of chunks with a term, at most `most` + 1."""
        query = "SELECT count(*) FROM (SELECT 1 FROM keywords WHERE keywords MATCH ? LIMIT ?)"
        ((count,),) = self._database.all(query, (term, most + 1))
        return int(count)


def _membership(ids: NDArray[np.int64]) -> Callable[[int], bool]:
    listed = array("q", ids.astype(np.int64).tobytes())  # compared in C, as Python's integers

    def among(identifier: int) -> bool:
        place = bisect_left(listed, identifier)
        return place < len(listed) and listed[place] == identifier

    return among


def fused(dense: Sequence[int], by_words: Mapping[int, float]) -> list[int]:
    """Fuses both searches, best first; among equals the better by words.

    Vectors count by reciprocal rank (Cormack et al. 2009), since similarities differ between models. Words count by
    likeness: of notes that differ in one number, only one has the best words.
    """
    scores = {chunk: _WORDS * likeness for chunk, likeness in by_words.items()}
    for rank, chunk in enumerate(dense, 1):
        scores[chunk] = scores.get(chunk, 0.0) + (_FUSION + 1) / (_FUSION + rank)
    return sorted(scores, key=lambda chunk: -scores[chunk])
