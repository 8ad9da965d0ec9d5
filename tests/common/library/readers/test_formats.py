"""Every format's text, and the place that each piece of it has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from openpyxl.worksheet.formula import ArrayFormula, DataTableFormula

from common.library.readers.content import Content, Unreadable
from common.library.readers.formats import TEXT, parser_of
from common.library.readers.office import _flowing
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
        ("lines", "text"),
        [
            ("vér-\nité", "vérité"),
            ("Wei\u2010\nß", "Weiß"),
            ("trans\u00ad\nport", "transport"),
            ("Anne-\nMarie", "Anne-Marie"),
            ("2025-\n26", "2025-26"),
            ("line -\nline", "line - line"),
            ("-\na", "- a"),
        ],
    )
    def test_words_that_end_in_the_next_line(self, lines: str, text: str) -> None:
        assert _flowing(lines) == text

    def test_pdf_that_was_filled_in(self) -> None:
        fields = {"Surname": "Lovelace", "Middle name": ""}
        content = read(".pdf", files.filled_in_pdf("Application", fields, ("Member", "Yes"), "paid on 3 May"))
        lines = ["Application", "Surname: Lovelace", "Member: Yes", "paid on 3 May"]
        assert content.sections[0].text.split("\n") == lines

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

    def test_a_page_that_is_damaged_costs_no_other(self) -> None:
        """Its text is packed in a way that nobody knows."""
        pages = files.pdf(["The kettle is red.", "Tea is green."])
        damaged = pages.replace(b"/FlateDecode", b"/NobodyKnows", 1)
        assert [(each.text, each.place) for each in read(".pdf", damaged).sections] == [("Tea is green.", "page 2")]
        with pytest.raises(NotImplementedError):
            read(".pdf", pages.replace(b"/FlateDecode", b"/NobodyKnows"))

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

    def test_the_row_of_a_sheet_with_a_long_name(self) -> None:
        """A citation has room for so much."""
        row = f"<table:table-row>{_cell('Zoe')}</table:table-row>"
        sheet = f'<table:table table:name="{"Expenses " * 9}">{row}</table:table>'
        found = place(read(".ods", files.opendocument("spreadsheet", sheet)), "Zoe")
        assert found == "sheet Expenses Expenses Expenses Expe, row 1"

    @pytest.mark.parametrize("suffix", [".odt", ".odp", ".ods"])
    def test_opendocument_with_a_password(self, suffix: str) -> None:
        with pytest.raises(Unreadable, match="it needs a password"):
            read(suffix, files.opendocument("text", "", encrypted=True))

    def test_books_that_are_encrypted(self) -> None:
        with pytest.raises(Unreadable, match="protected against copying"):
            read(".epub", files.epub(["<p>words</p>", "<p>more</p>"], "A book", "book/text/c%201.xhtml"))
        assert read(".epub", files.epub(["<p>words</p>"], "A book", "fonts/a.otf")).sections[0].text == "words"

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

    def test_headings_below_a_title(self) -> None:
        rows: list[list[object]] = [["Cars of 2026"], [], ["car", "price"], ["Zoe", 31_000]]
        lines = ["Cars of 2026", "", "car, price", "car: Zoe; price: 31000"]
        assert read(".xlsx", files.xlsx({"a": rows})).sections[0].text.split("\n") == lines

    def test_numbers_of_a_sheet_keep_their_digits(self) -> None:
        values = [12_345_678.91, 0.1 + 0.2, 123_456_789_012_345, 0.075, 7.5, datetime(2026, 5, 1), -1e20]
        formats = {"D1": "0.0%", "E1": '0.0"%"'}
        content = read(".xlsx", files.xlsx({"a": [values]}, formats))
        assert content.sections[0].text == "12345678.91, 0.3, 123456789012345, 7.5%, 7.5, 2026-05-01, -1e+20"

    def test_times_beyond_a_day(self) -> None:
        """The sum of a sheet of times is no day with a time of day."""
        times = [timedelta(hours=26, minutes=30), timedelta(hours=40), timedelta(minutes=7.5)]
        content = read(".xlsx", files.xlsx({"a": [times]}, dict.fromkeys(("A1", "B1", "C1"), "[h]:mm:ss")))
        assert content.sections[0].text == "26:30:00, 40:00:00, 0:07:30"

    def test_formulas_of_several_cells_without_values(self) -> None:
        rows = [[1, 2], [3, ArrayFormula("B2", "=SUM(A1:B1*2)")], [4, DataTableFormula("B3", dt2D="1", r1="A1")]]
        assert read(".xlsx", files.xlsx({"a": rows})).sections[0].text == "1, 2\n3, =SUM(A1:B1*2)\n4"

    def test_formulas_without_values(self) -> None:
        """Programs that compute nothing, such as scripts that make reports, leave them out."""
        written = files.xlsx({"a": [["price", "twice"], [2, "=A2*2"], [3, "=A3*2"]]})
        assert read(".xlsx", written).sections[0].text == "price, twice\nprice: 2; twice: =A2*2\nprice: 3; twice: =A3*2"
        computed = files.altered(written, "xl/worksheets/sheet1.xml", rb"(A2\*2</f>)<v ?/?>(</v>)?", rb"\1<v>4</v>")
        assert read(".xlsx", computed).sections[0].text == "price, twice\nprice: 2; twice: 4\nprice: 3; twice: =A3*2"
        empty = files.altered(computed, "xl/worksheets/sheet1.xml", rb'<c r="B3"', rb'<c r="B3" t="str"')
        assert read(".xlsx", empty).sections[0].text == "price, twice\nprice: 2; twice: 4\nprice: 3"


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

    @pytest.mark.parametrize("suffix", [".docx", ".pptx"])
    def test_titles_that_stand_elsewhere(self, suffix: str) -> None:
        """A document says itself in which of its parts."""
        content = {".docx": files.docx([("", "words")]), ".pptx": files.titled_pptx("Costs", None)}[suffix]
        assert read(suffix, files.described_elsewhere(content, "Costs of tea")).title == "Costs of tea"


class TestLines:
    def test_source(self) -> None:
        assert place(read(".py", b"import os\n\n\ndef pour():\n    pass\n"), "def pour") == "line 4"

    def test_quotes_that_a_sample_of_a_csv_lacks(self) -> None:
        rows = ["name,city", *["Zoe,Lisbon"] * 10_000, '"the ""old"" Bob, here",Porto']
        text = read(".csv", "\n".join(rows).encode()).sections[0].text
        assert text.endswith('\nname: the "old" Bob, here; city: Porto')

    @pytest.mark.parametrize("content", [b"sep=;\r\nname;price\r\ntea;1,5\r\n", b"name;price\rtea;1,5\r"])
    def test_csv_of_other_programs(self, content: bytes) -> None:
        assert read(".csv", content).sections[0].text == "name, price\nname: tea; price: 1,5"

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

    @pytest.mark.parametrize(
        ("written", "text"),
        [
            (rb"{\rtf1\ansi\ansicpg1252 so \u-10179?\u-8704?}", "so \U0001f600"),
            (rb"{\rtf1\ansi\ansicpg1252 so \u-10179?.}", "so \ufffd."),
            (rb"{\rtf1\mac\ansicpg10000{\fonttbl\f0\fcharset77 Times;} Gr\'9f\'a7e}", "Grüße"),
            (rb"{\rtf1\mac caf\'8e}", "café"),
        ],
        ids=["pair", "half", "Mac", "Mac without a page"],
    )
    def test_characters_of_rtf(self, written: bytes, text: str) -> None:
        assert read(".rtf", written).sections[0].text == text

    def test_notebook(self) -> None:
        content = read(".ipynb", files.notebook([("markdown", "# Load data\nfirst"), ("code", "read('x')")]))
        assert content.title == "Load data"
        assert place(content, "read('x')") == "cell 2"

    @pytest.mark.parametrize("kind", ["image/png", "image/svg+xml;charset=utf-8"])
    def test_pictures_within_markdown(self, kind: str) -> None:
        """Programs put all of a picture's bytes there; what is quoted of one stays."""
        picture = f"data:{kind};base64," + "iVBORw0KGgo/+A0=" * 1000
        text = f"# Tea\n![a]({picture})\n\n[image1]: <{picture}>\n\nIt begins with data:image/png;base64,iVBO."
        left = "# Tea\n![a]()\n\n[image1]: <>\n\nIt begins with data:image/png;base64,iVBO."
        assert read(".md", text.encode()).sections[0].text == left
        assert read(".ipynb", files.notebook([("markdown", text)])).sections[0].text == left
