"""Search by words: the library's chunks and their titles in an FTS5 index of its database, ranked by BM25."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import nsmallest
from itertools import accumulate
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from common.answer.wording import is_mark
from common.library.database import WORDS, Database
from common.library.readers.content import as_typed

_MOST_WORDS = 64  # of a question that are searched for, the rarest of it
_MOST_COUNTED = 256  # of a question of which it is told how rare they are: a page of text has as many
_FEW = 256  # chunks up to which words are counted before others are
_COMMON = 8  # a word in more than one of so many chunks tells next to nothing, and takes the longest to rank
_EQUALS = 64  # chunks of one rank that are looked for at once
_ROWS = 1024  # fetched at a time
_CHECKED = 2**18  # chunks of an index that has a checksum: half a second
_RANKED = 2**14  # chunks that are ranked in a library of which those of a single word may be more: 50 ms

# Constant of reciprocal rank fusion: 1 / (constant + rank). The usual 60 prefers what is in the middle of both lists to
# the first of one, which is wrong where a question holds a number or a name that means nothing to the embedding model.
_FUSION = 5


class Keywords:
    """The index of one database, inside its transactions. Documents leave it before their chunks are removed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, content: int) -> None:
        """Take in the chunks of a content."""
        self._put_sum(None)
        self._database.run(
            "INSERT INTO keywords (rowid, title, text) SELECT id, title, text FROM passages WHERE content = ?",
            (content,),
        )

    def remove(self, content: int) -> None:
        """Forget the chunks of a content, which are still there as they were added."""
        self._put_sum(None)
        self._database.run("DELETE FROM keywords WHERE rowid IN (SELECT id FROM chunks WHERE content = ?)", (content,))

    def forget(self) -> None:
        """Write the index anew without the words of chunks that were removed, which stay in it until then. It takes a
        second per twenty million words.
        """
        self._put_sum(None)
        self._database.run("INSERT INTO keywords (keywords) VALUES ('optimize')")

    def sign(self) -> None:
        """Keep the checksum of an index that was changed, for `check`, unless that would take long."""
        ((chunks,),) = self._database.all("SELECT coalesce(sum(chunks), 0) FROM contents")
        if self._stated() is None and chunks <= _CHECKED:
            self._put_sum(self._sum())

    def check(self) -> None:
        """Raise `LibraryDamaged` where the index has a checksum, and is another one."""
        stated = self._stated()
        if stated is not None and stated != self._sum():
            raise self._database.damaged("the index of words is not what was written")

    def _stated(self) -> int | None:
        """The checksum that the index had after the last change; None since it is being changed."""
        rows = self._database.all("SELECT total FROM sums WHERE name = ?", (WORDS,))
        if len(rows) != 1:
            raise self._database.damaged("a row of sums is missing")
        stated: int | None = rows[0][0]
        return stated

    def _put_sum(self, total: int | None) -> None:
        self._database.run("UPDATE sums SET total = ? WHERE name = ?", (total, WORDS))

    def _sum(self) -> int:
        """CRC-32 of all tables of the index."""
        found = 0
        for identifier, block in self._database.all("SELECT id, block FROM keywords_data ORDER BY id"):
            if not isinstance(block, bytes):
                raise self._database.damaged("the index of words is not what was written")
            found = crc32(block, crc32(b"%d " % identifier, found))
        for rows in (
            "id || ' ' || hex(sz)) FROM keywords_docsize",
            "segid || hex(term) || ' ' || pgno) FROM keywords_idx",
        ):
            ((joined,),) = self._database.all(f"SELECT group_concat({rows}")
            found = crc32((joined or "").encode(), found)
        return found

    def search(self, question: str, k: int, chunks: int, among: NDArray[np.int64] | None = None) -> list[int]:
        """Ids of the up to `k` of all the `chunks` whose words are most like those of the question, best first; `among`
        are the ids that may be found, ascending, None: all. Common words count where there are no others, unless there
        are too many chunks to rank. Of a long question its rarest words count.
        """
        if k <= 0:
            return []
        large = chunks // _COMMON > _RANKED
        most = _RANKED if large else max(1, chunks // _COMMON)
        counts = self._counts(_words(question)[:_MOST_COUNTED], most)
        words = list(counts)
        rare = [word for word in words if counts[word] <= most]
        if large:
            rare.sort(key=lambda word: counts[word])
            ranked = accumulate(counts[word] for word in rare)
            rare = [word for word, all_ranked in zip(rare, ranked, strict=True) if all_ranked <= _RANKED]
        if rare:
            found = self._ranked(rare, k, among)
            if found or among is None or large:
                return found
            # What is rare may be elsewhere than `among`.
        return [] if large else self._ranked(words, k, among)

    def _ranked(self, words: Sequence[str], k: int, among: NDArray[np.int64] | None) -> list[int]:
        wanted = " OR ".join(f'"{word}"' for word in words)
        if not wanted:
            return []
        query = "SELECT rowid, rank FROM keywords WHERE keywords MATCH ?"
        if among is None:
            return self._best(query, wanted, k)
        with self._database.function("among", _membership(among)):
            return self._best(f"{query} AND among(rowid)", wanted, k)

    def _best(self, query: str, wanted: str, k: int) -> list[int]:
        """The up to `k` chunks of the lowest rank, of which the best have the lowest. Of equals, as notes of one form
        are, the digests of their documents decide and then the order in these: not who was added first.
        """
        ranked = self._database.all(f"{query} ORDER BY rank, rowid LIMIT ?", (wanted, k + _EQUALS))
        if len(ranked) == k + _EQUALS and ranked[-1][1] == ranked[k - 1][1]:  # there may be more of these
            ranked = self._database.all(query, (wanted,))
        worst = max(nsmallest(k, (rank for _, rank in ranked)), default=0.0)
        reaching = [(rank, chunk) for chunk, rank in ranked if rank <= worst]
        alike = Counter(rank for rank, _ in reaching)
        digests = self._digests([chunk for rank, chunk in reaching if alike[rank] > 1])
        return [chunk for _, _, chunk in sorted((rank, digests.get(chunk, ""), chunk) for rank, chunk in reaching)][:k]

    def _digests(self, chunks: Sequence[int]) -> dict[int, str]:
        """Digests of the documents of `chunks`."""
        found: dict[int, str] = {}
        for start in range(0, len(chunks), _ROWS):
            part = chunks[start : start + _ROWS]
            query = (
                "SELECT chunks.id, sha256 FROM chunks JOIN contents ON contents.id = content WHERE chunks.id IN ({})"
            )
            rows = self._database.all(query.format(", ".join("?" * len(part))), part)
            found |= {chunk: str(digest) for chunk, digest in rows}
        return found

    def _counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        """Numbers of chunks that hold each of the rarest `words`, see `_count`, in their order. A word that is nowhere
        is left out.
        """
        few = min(most, _FEW)
        counts = {word: count for word in words if (count := self._count(word, few))}
        common = [word for word, count in counts.items() if count > few]
        room = max(0, _MOST_WORDS - len(counts) + len(common))
        for word in common[:room]:
            counts[word] = self._count(word, most)
        for word in common[room:]:
            del counts[word]
        rarest = set(nsmallest(_MOST_WORDS, counts, key=lambda word: counts[word]))
        return {word: count for word, count in counts.items() if word in rarest}

    def _count(self, word: str, most: int) -> int:
        """Number of chunks that hold a word, as far as it is no more than `most`; else one more."""
        query = "SELECT count(*) FROM (SELECT 1 FROM keywords WHERE keywords MATCH ? LIMIT ?)"
        ((count,),) = self._database.all(query, (f'"{word}"', most + 1))
        return int(count)


def _membership(ids: NDArray[np.int64]) -> Callable[[int], bool]:
    """A test of ids for being among `ids`, which ascend."""
    listed = array("q", ids.astype(np.int64).tobytes())  # compared in C, as Python's integers

    def among(identifier: int) -> bool:
        place = bisect_left(listed, identifier)
        return place < len(listed) and listed[place] == identifier

    return among


def fused(dense: Sequence[int], keyword: Sequence[int]) -> list[int]:
    """Chunks of two rankings by reciprocal rank (Cormack et al. 2009), best first; of equals the better by words."""
    scores: dict[int, float] = {}
    for ranking in (keyword, dense):
        for rank, chunk in enumerate(ranking, 1):
            scores[chunk] = scores.get(chunk, 0.0) + 1 / (_FUSION + rank)
    return sorted(scores, key=lambda chunk: -scores[chunk])


def _words(question: str) -> list[str]:
    """The words of a question, each once, written as those of documents are. Cases, and the accents that the index
    leaves out, are left to the index, which has rules of its own for each. A mark belongs to the letter before it.
    """
    spaced = "".join(character if _is_of_a_word(character) else " " for character in as_typed(question))
    return list({word.casefold(): word for word in spaced.split()}.values())


def _is_of_a_word(character: str) -> bool:
    return character.isalnum() or character == "_" or is_mark(character)
