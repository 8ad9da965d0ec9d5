"""Every format's text, and the place that each piece of it has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from common.library.readers.content import Content, Section, Unreadable
from common.library.readers.formats import TEXT, parser_of
from tests.common.library.readers import files


def read(suffix: str, content: bytes) -> Content:
    return (TEXT.get(suffix) or parser_of(suffix))(content)


def place(content: Content, words: str) -> str:
    """The place where `words` stand, which stand once."""
    ((section, offset),) = [(each, each.text.find(words)) for each in content.sections if words in each.text]
    return section.places([offset])[0]


class TestPages:
    def test_pdf(self) -> None:
        content = read(".pdf", files.pdf(["The kettle is red.", "Tea takes four min-\nutes to draw."], "Tea"))
        assert content.title == "Tea"
        assert place(content, "kettle is red") == "page 1"
        assert place(content, "four minutes to draw") == "page 2"

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (files.pdf(["secret"], password="word"), "it is encrypted"),
            (files.scanned_pdf(), "it has no text: pages that were scanned are not read"),
        ],
        ids=["encrypted", "scanned"],
    )
    def test_pdf_without_readable_text(self, content: bytes, reason: str) -> None:
        with pytest.raises(Unreadable, match=reason):
            read(".pdf", content)

    def test_pptx(self) -> None:
        content = read(".pptx", files.pptx([("Plan", ""), ("Costs", "say that rent is due in May")]))
        assert place(content, "Plan") == "slide 1"
        assert place(content, "rent is due in May") == "slide 2"

    def test_xlsx(self) -> None:
        sheets: dict[str, Sequence[Sequence[object]]] = {
            "Prices": [["car", "price"], ["Zoe", 31_000.0], ["Twingo", None]],
            "Notes": [["call the garage"]],
        }
        content = read(".xlsx", files.xlsx(sheets))
        assert [section.place for section in content.sections] == ["sheet Prices", "sheet Notes"]
        assert content.sections[0].text.split("\n")[1:] == ["car: Zoe; price: 31000", "car: Twingo"]
        assert place(content, "Twingo") == "sheet Prices, row 3"
        assert place(content, "garage") == "sheet Notes, row 1"


HTML = b"""<title>Travel</title><script>alert(1)</script><h1>Travel</h1><h2>Lisbon</h2><p>Take <b>tram</b> 28.
<h2>Porto</h2><p>The <a href='x'>Zoe_2</a> is parked."""
RST = b"""
======
Travel
======

Lisbon
======

Take tram 28.

Porto
=====

The Zoe_2 is parked.

.. include:: /etc/passwd

.. unheard-of:: x
"""


class TestHeadings:
    @pytest.mark.parametrize(
        ("suffix", "content"),
        [
            (".md", b"# Travel\n\n## Lisbon\n\nTake tram 28.\n\n## Porto\n\nThe Zoe_2 is parked.\n"),
            (
                ".html",
                HTML,
            ),
            (
                ".docx",
                files.docx(
                    [
                        ("Heading1", "Travel"),
                        ("Heading2", "Lisbon"),
                        ("", "Take tram 28."),
                        ("Heading2", "Porto"),
                        ("", "The Zoe_2 is parked."),
                    ]
                ),
            ),
            (
                ".epub",
                files.epub(
                    ["<h1>Travel</h1><h2>Lisbon</h2><p>Take tram 28.</p>", "<h2>Porto</h2><p>The Zoe_2 is parked.</p>"],
                    "Travel",
                ),
            ),
            (
                ".rst",
                RST,
            ),
        ],
    )
    def test_are_places(self, suffix: str, content: bytes) -> None:
        found = read(suffix, content)
        assert place(found, "28.") == "Lisbon"
        assert place(found, "Zoe_2 is parked") == "Porto"
        text = "".join(section.text for section in found.sections)
        assert "alert" not in text and "root:" not in text and "href" not in text

    def test_titles(self) -> None:
        assert read(".html", b"<title>A page</title><p>words").title == "A page"
        assert read(".epub", files.epub(["<p>words</p>"], "A book")).title == "A book"
        assert read(".rst", RST).title == "Travel"
        assert (
            read(".rst", b"PEP: 6\nAuthor: Ann,\n  Bob\nTitle: A plan\n\nAbstract\n=====\n\nwords\n").title == "A plan"
        )

    def test_a_heading_that_a_piece_begins_with_is_its_place(self) -> None:
        section = Section("intro\n\n# One\nwords\n# Two\n", unit="heading")
        assert section.places([0, 7, 13, 19]) == ["", "One", "One", "Two"]


class TestLines:
    def test_source(self) -> None:
        assert place(read(".py", b"import os\n\n\ndef pour():\n    pass\n"), "def pour") == "line 4"

    def test_csv(self) -> None:
        content = read(".csv", "name;city\nZoë;Lisbon\n\nBob;Porto, north\n".encode())
        assert content.sections[0].text.split("\n") == [
            "name, city",
            "name: Zoë; city: Lisbon",
            "",
            "name: Bob; city: Porto, north",
        ]
        assert place(content, "Porto") == "row 4"

    def test_utf_16(self) -> None:
        assert read(".txt", "Zoë".encode("utf-16")).sections[0].text == "Zoë"

    @pytest.mark.parametrize(
        ("content", "reason"),
        [(b"a\0b", "it contains NUL bytes"), (b"caf\xe9", "not UTF-8 text: byte 3"), (b"\xff\xfeab\x00", "UTF-16")],
    )
    def test_what_is_not_text(self, content: bytes, reason: str) -> None:
        with pytest.raises(Unreadable, match=reason):
            read(".txt", content)


class TestParts:
    def test_notebook(self) -> None:
        content = read(".ipynb", files.notebook([("markdown", "# Load data\nfirst"), ("code", "read('x')")]))
        assert content.title == "Load data"
        assert place(content, "read('x')") == "cell 2"

    @pytest.mark.parametrize(
        "content",
        [
            b"From: ann@example.org\nSubject: The key\nContent-Type: text/plain\n\nIt is under the mat.\n",
            b"From: ann@example.org\nSubject: The key\nContent-Type: text/html\n\n<p>It is <i>under</i> the mat.</p>\n",
        ],
        ids=["plain", "html"],
    )
    def test_mail(self, content: bytes) -> None:
        found = read(".eml", content)
        assert found.title == "The key"
        assert "From: ann@example.org" in found.sections[0].text
        assert "under" in found.sections[0].text and "<p>" not in found.sections[0].text
