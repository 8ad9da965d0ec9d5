"""Properties of single formats; the text of each that programs and people write is in `golden`."""

from __future__ import annotations

from contextlib import closing

import pytest

from common.library.documents import File, UnusableDocument, read_content
from common.library.readers.content import Unreadable, is_chosen
from common.library.readers.isolated import IsolatedReader
from common.library.readers.layout import _flowing
from common.library.readers.mail import read_mail
from common.library.readers.numbering import CountedList, Level, in_form
from tests.common.library.readers import files
from tests.common.library.readers.test_golden import GOLDEN, read


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
def test_words_that_end_in_the_next_line(lines: str, text: str) -> None:
    assert _flowing(lines) == text


def test_a_pdf_of_which_all_pages_are_damaged() -> None:
    one_page = (GOLDEN / "pdf/a-damaged-page-costs-no-other.pdf").read_bytes()
    damaged = one_page.replace(b"/FlateDecode", b"/NobodyKnows")
    with (
        closing(IsolatedReader()) as reader,
        pytest.raises(UnusableDocument, match=r"it is empty; pages 1, 2 \(2 in all\) were damaged"),
    ):
        read_content(File(".pdf", damaged, "", 0, 0), reader)


@pytest.mark.parametrize(
    "title",
    [
        *("untitled", "Untitled document", "(anonymous)", "Microsoft Word - lease 2.docx", "Binder1.pdf", "Document3"),
        *("C:\\temp\\lease.doc", "file:///home/a/lease.html", "Unbenannt 2", "lease_final.indd"),
    ],
)
def test_titles_that_nobody_chose(title: str) -> None:
    """In all formats the first heading stands for them, or the file's name."""
    assert not is_chosen(title)
    page = f"<title>{title}</title><h1>The lease</h1>".encode()
    with closing(IsolatedReader()) as reader:
        assert read_content(File(".html", page, "", 0, 0), reader).title == ""


@pytest.mark.parametrize("title", ["The lease", "Untitled poems", "Documents of 1911", "Title IX"])
def test_titles_that_somebody_chose(title: str) -> None:
    assert is_chosen(title)


@pytest.mark.parametrize("kind", ["image/png", "image/svg+xml;charset=utf-8"])
def test_pictures_within_markdown(kind: str) -> None:
    """Programs put all of a picture's bytes there; what is quoted of one stays."""
    picture = f"data:{kind};base64," + "iVBORw0KGgo/+A0=" * 1000
    text = f"# Tea\n![a]({picture})\n\n[image1]: <{picture}>\n\nIt begins with data:image/png;base64,iVBO."
    left = "# Tea\n![a]()\n\n[image1]: <>\n\nIt begins with data:image/png;base64,iVBO."
    assert read(".md", text.encode()).sections[0].text == left
    assert read(".ipynb", files.notebook([("markdown", text)])).sections[0].text == left


def test_one_process_reads_a_text_with_unknown_options_again() -> None:
    """Each directive that docutils lacks is registered while the text is read."""
    content = (GOLDEN / "rst/options-that-docutils-does-not-know.rst").read_bytes()
    assert read(".rst", content) == read(".rst", content)


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("From: [JIRA] Ada <jira@example.org>", ""),
        ("From: Ada [Sales] <ada@example.org>", ""),
        ("From: Info@Example.org <info@example.org>", ""),
        ("Cc: a@example.org; b@example.org; c@example.org", ""),
        ("To: (no address)", ""),
        ("From: Ada@", ""),
        ("To: a@[1.2.3.4", ""),
        ("From: =?utf-8?q?J=C3=B6rg_M?= <joerg@example.org>", "From: Jörg M <joerg@example.org>"),
        ("From: Jörg <joerg@example.org>", ""),
        ("To: a@example.org,\n b@example.org", "To: a@example.org, b@example.org"),
        ("Date: the third of May", ""),
    ],
)
def test_addresses_that_programs_write_in_their_own_way(header: str, shown: str) -> None:
    content = read_mail(f"{header}\nSubject: The key\n\nIt is here.".encode())
    assert content.sections[0].text == f"{shown or header}\nSubject: The key\n\nIt is here."


def test_what_is_no_mail() -> None:
    with pytest.raises(Unreadable, match="it is not a mail"):
        read_mail(b"words\n")


HEAD = b"From: ann@example.org\nSubject: The key\n"


def several(kind: str, *parts: bytes) -> bytes:
    """A mail of parts with their own headers."""
    return part(f"multipart/{kind}; boundary=B", b"".join(b"--B\n" + each + b"\n" for each in parts) + b"--B--\n")


def part(kind: str, content: bytes, more: str = "") -> bytes:
    return f"Content-Type: {kind}\n{more}Content-Transfer-Encoding: 8bit\n\n".encode() + content


def test_a_table_that_is_too_much_text_is_said_of_the_mail() -> None:
    """As of a page; without it the mail would be another one."""
    rows = "<tr><td>1</td><td>2</td><td>3</td></tr>" * 400
    headings = "".join(f"<th>{letter * 20_000}</th>" for letter in "abc")
    page = f"<p>The code is 4711.</p><table><tr>{headings}</tr>{rows}</table>".encode()
    alone = part("text/html", page)
    picture = part("image/png; name=a.png", b"words", "Content-Disposition: inline; filename=a.png\n")
    beside = several("mixed", part("text/plain", b"See below."), alone)
    within = several("alternative", part("text/plain", b""), several("related", alone, picture))
    mails = [(".html", page), *((".eml", HEAD + content) for content in (alone, beside, within))]
    with closing(IsolatedReader()) as reader:
        for suffix, content in mails:
            with pytest.raises(UnusableDocument, match="it has too much text: at most 20,000,000 characters are read"):
                read_content(File(suffix, content, "", 0, 0), reader)


@pytest.mark.parametrize(
    ("count", "form", "text"),
    [
        (1994, "upperRoman", "MCMXCIV"),
        (4, "lowerRoman", "iv"),
        (4000, "upperRoman", "4000"),
        (27, "lowerLetter", "aa"),
        (26, "upperLetter", "Z"),
        (0, "upperLetter", "0"),
        (10**9, "upperLetter", "1000000000"),
        (7, "decimalZero", "07"),
        (7, "none", ""),
        (7, "hebrew1", "7"),
    ],
)
def test_forms_of_numbers(count: int, form: str, text: str) -> None:
    assert in_form(count, form) == text


def test_a_level_of_two_digits() -> None:
    assert CountedList({9: Level(text="%9.%10")}, {8: 2}).next_text(9) == "2.1"
