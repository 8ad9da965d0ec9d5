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
            (files.pdf(["secret"], password="word"), "it needs a password: save it without one"),
            (files.pdf(["secret"], password="word", algorithm="AES-256"), "it needs a password: save it without one"),
            (files.scanned_pdf(), "it has no text: pages that were scanned are not read"),
        ],
        ids=["RC4", "AES", "scanned"],
    )
    def test_pdf_without_readable_text(self, content: bytes, reason: str) -> None:
        with pytest.raises(Unreadable, match=reason):
            read(".pdf", content)

    @pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256-R5", "AES-256"])
    def test_a_pdf_that_is_encrypted_against_changes_only(self, algorithm: str) -> None:
        content = files.pdf(["Balance: 31 euros.", "Thank you."], "Statement", password="", algorithm=algorithm)
        assert b"/Encrypt" in content
        found = read(".pdf", content)
        assert found.title == "Statement"
        assert place(found, "31 euros") == "page 1" and place(found, "Thank you") == "page 2"

    def test_odp(self) -> None:
        slides = "".join(
            f"<draw:page><draw:frame><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame></draw:page>"
            for text in ("Plan", "Costs: rent is due in May")
        )
        assert place(read(".odp", files.opendocument("presentation", slides)), "rent is due in May") == "slide 2"

    def test_ods(self) -> None:
        """Programs write the rest of a sheet as one row that is repeated a million times."""
        rows = "".join(
            f"<table:table-row{more}>{cells}</table:table-row>"
            for more, cells in (
                ("", "<table:table-cell><text:p>car</text:p></table:table-cell>" * 1 + _cell("price")),
                (' table:number-rows-repeated="2"', '<table:table-cell table:number-columns-repeated="16384"/>'),
                ("", _cell("Zoe") + _cell("31,000") + '<table:table-cell table:number-columns-repeated="16382"/>'),
                (' table:number-rows-repeated="1048572"', '<table:table-cell table:number-columns-repeated="16384"/>'),
            )
        )
        sheet = f'<table:table table:name="Prices">{rows}</table:table>'
        content = read(".ods", files.opendocument("spreadsheet", sheet, "Cars"))
        assert content.title == "Cars"
        assert content.sections[0].text == "car, price\n\n\ncar: Zoe; price: 31,000"
        assert place(content, "Zoe") == "sheet Prices, row 4"

    @pytest.mark.parametrize("suffix", [".odt", ".odp", ".ods"])
    def test_opendocument_with_a_password(self, suffix: str) -> None:
        with pytest.raises(Unreadable, match="it needs a password"):
            read(suffix, files.opendocument("text", "", encrypted=True))

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


def _cell(text: str) -> str:
    return f"<table:table-cell><text:p>{text}</text:p></table:table-cell>"


ODT = """<text:tracked-changes><text:changed-region><text:p>alert: deleted</text:p></text:changed-region>
</text:tracked-changes><text:h text:outline-level="1">Travel</text:h><text:h text:outline-level="2">Lisbon</text:h>
<text:p>Take <text:span>tram<text:s text:c="1"/></text:span>28.</text:p><text:list><text:list-item><text:p>bag</text:p>
<text:list><text:list-item><text:p>socks</text:p></text:list-item></text:list></text:list-item></text:list>
<text:h text:outline-level="2">Porto</text:h><text:p>The
 Zoe_2 is parked<office:annotation><text:p>alert</text:p></office:annotation><text:note><text:note-body>
<text:p>in the yard</text:p></text:note-body></text:note>.</text:p><text:p><draw:frame><draw:text-box>
<text:p>A box.</text:p></draw:text-box></draw:frame></text:p>"""
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
            (
                ".odt",
                files.opendocument("text", ODT),
            ),
        ],
        ids=[".md", ".html", ".docx", ".epub", ".rst", ".odt"],
    )
    def test_are_places(self, suffix: str, content: bytes) -> None:
        found = read(suffix, content)
        assert place(found, "28.") == "Lisbon"
        assert place(found, "Zoe_2 is parked") == "Porto"
        text = "".join(section.text for section in found.sections)
        assert "alert" not in text and "root:" not in text and "href" not in text

    def test_lists_notes_and_frames(self) -> None:
        assert read(".odt", files.opendocument("text", ODT)).sections[0].text.split("\n\n") == [
            "# Travel",
            "## Lisbon",
            "Take tram 28.",
            "- bag\n  - socks",
            "## Porto",
            "The Zoe_2 is parked (in the yard).",
            "A box.",
        ]

    def test_titles(self) -> None:
        assert read(".odt", files.opendocument("text", ODT, "A text")).title == "A text"
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


class TestParts:
    def test_rtf(self) -> None:
        content = read(".rtf", files.rich(r"Gr\'fc\'dfe, {\b Anna}\par \u1083?\u1102?\u1095? \'80 5\par "))
        assert content.sections[0].text == "Grüße, Anna\nлюч € 5"

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
