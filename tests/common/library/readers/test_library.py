"""A folder of many formats becomes a library whose hits say where they stand."""

from __future__ import annotations

from pathlib import Path

from common.library.chunks import Chunker
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from tests.common.library.conftest import Write
from tests.common.library.readers.test_golden import GOLDEN
from tests.common.library.toy_embedder import ToyEmbedder

PARAGRAPH = " ".join(f"word{number}" for number in range(30))
TRIP = f"""
Lisbon
======

Take tram 28. {PARAGRAPH}

Porto
=====

The car is parked. {PARAGRAPH}
"""


def test_a_folder_of_many_formats(tmp_path: Path, documents: Path, write: Write, toy: ToyEmbedder) -> None:
    write("manual.pdf", (GOLDEN / "pdf/words-that-end-in-the-next-line.pdf").read_bytes())
    write("locked.pdf", (GOLDEN / "pdf/needs-a-password-rc4.pdf").read_bytes())
    write("scan.pdf", (GOLDEN / "pdf/scanned.pdf").read_bytes())
    write("broken.docx", b"PK\x03\x04 and no more")
    write("prices.xlsx", (GOLDEN / "xlsx/headings-below-a-title.xlsx").read_bytes())
    write("trip.rst", TRIP)
    write("code.py", "def pour():\n    return 'tea'\n")
    write("old.doc", b"\xd0\xcf\x11\xe0")
    write("film.mp4", b"\0" * 99)
    write("film.MP4", b"\0" * 99)
    chunker = Chunker(SentenceTransformerEmbedder().tokenizer_file, 128)
    with Library(tmp_path / "library", toy, chunker=chunker) as library:
        report = library.add(documents)
        assert (report.added, report.ignored) == (4, {".mp4": 2})
        assert dict(report.skipped) == {
            "locked.pdf": "it needs a password: save it without one",
            "old.doc": "doc is not read: save it as docx",
            "scan.pdf": "it has no text: scanned pages are not read",
            "broken.docx": "it is damaged: it can't be unpacked",
        }
        hits = {hit.text.split("\n")[-1].split(" word")[0]: hit.source for hit in library.search("x", 99)}
        assert hits == {
            "The kettle is red.": "Tea, page 1",
            "Tea takes four minutes to draw.": "Tea, page 2",
            "car: Zoe; price: 31000": "prices",
            "Take tram 28.": "Lisbon",
            "The car is parked.": "Lisbon, Porto",
            "    return 'tea'": "code",
        }
        again = library.add(documents)
        assert (again.added, again.updated, again.unchanged) == (0, 0, 4)


def test_a_title_is_one_line(tmp_path: Path, documents: Path, write: Write, toy: ToyEmbedder) -> None:
    """Pages have it in several, with blanks before each; it is named by its words."""
    write("a.html", "<title>\n  Tea\n    &shy; and&nbsp; cups\n</title><p>words</p>")
    with Library(tmp_path / "library", toy) as library:
        library.add(documents)
        assert [hit.title for hit in library.passages("Tea and cups", "?")] == ["Tea and cups"]


def test_words_of_typesetters_are_found(tmp_path: Path, documents: Path, write: Write, toy: ToyEmbedder) -> None:
    write("a.html", "<p>The o\ufb03ce pays for trans&shy;port.</p>")
    write("b.txt", "A cafe\u0301 in\u200bside.")
    with Library(tmp_path / "library", toy, kind="keyword") as library:
        library.add(documents)
        for word in ("office", "transport", "café", "inside"):
            assert len(library.search(word, 9)) == 1, word
        assert sorted(library.texts()) == ["A café inside.", "The office pays for transport."]
