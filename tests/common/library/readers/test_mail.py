"""Mails as programs and people send them: every text that a mail program shows is read, in its encoding."""

from __future__ import annotations

from contextlib import closing

import pytest

from common.library.documents import File, UnusableDocument, content_of
from common.library.readers.content import Unreadable
from common.library.readers.isolated import IsolatedReader
from common.library.readers.plain import read_mail

HEAD = b"From: ann@example.org\nSubject: The key\n"
PAGE = '<html><head><meta charset="{}"></head><body><p>Grüße, die <i>Tür</i> ist offen.</p></body></html>'
GREETING = "Grüße, die Tür ist offen."


def text_of(content: bytes) -> str:
    """The text of a mail below its headers."""
    found = read_mail(content)
    assert found.title == "The key"
    head, _, text = found.sections[0].text.partition("\n\n")
    assert head == "From: ann@example.org\nSubject: The key"
    return text


def several(kind: str, *parts: bytes) -> bytes:
    """A mail of parts with their own headers."""
    return part(f"multipart/{kind}; boundary=B", b"".join(b"--B\n" + each + b"\n" for each in parts) + b"--B--\n")


def part(kind: str, content: bytes, more: str = "") -> bytes:
    return f"Content-Type: {kind}\n{more}Content-Transfer-Encoding: 8bit\n\n".encode() + content


PICTURE = part("image/png; name=a.png", b"words", "Content-Disposition: inline; filename=a.png\n")
ATTACHED = part("text/plain", b"attached", "Content-Disposition: attachment\n")
NAMED = part("text/plain; name=a.txt", b"a file")


@pytest.mark.parametrize(
    ("kind", "said", "encoding"),
    [
        ("text/html; charset=iso-8859-1", "iso-8859-1", "latin-1"),
        ("text/html; charset=utf-8", "us-ascii", "utf-8"),
        ("text/html; charset=utf-8", "iso-8859-1", "utf-8"),
        ("text/html", "utf-8", "utf-8"),
        ("text/html", "iso-8859-1", "latin-1"),
    ],
)
def test_pages_that_say_their_encoding(kind: str, said: str, encoding: str) -> None:
    """Programs that send mail change the encoding and leave what the page says of it."""
    assert text_of(HEAD + part(kind, PAGE.format(said).encode(encoding))) == GREETING.replace("Tür", "*Tür*")


@pytest.mark.parametrize(
    ("kind", "text", "encoding"),
    [
        ("text/plain; charset=utf-8", GREETING, "utf-8"),
        ("text/plain; charset=iso-8859-1", "“Tür” – 20 €", "cp1252"),
        ("text/plain; charset=us-ascii", GREETING, "utf-8"),
        ("text/plain; charset=unknown-8bit", GREETING, "latin-1"),
        ("text/plain; charset=iso-2022-jp", "鍵は玄関マットの下にあります。", "iso-2022-jp"),
        ("text/plain; charset=hex", GREETING, "utf-8"),
        ("text/plain", GREETING, "utf-8"),
        ("text/plain", GREETING, "latin-1"),
    ],
)
def test_texts_that_say_another_encoding_or_none(kind: str, text: str, encoding: str) -> None:
    assert text_of(HEAD + part(kind, text.encode(encoding))) == text


def test_behind_a_mark() -> None:
    assert text_of(b"\xef\xbb\xbf" + HEAD + b"\n" + GREETING.encode()) == GREETING


def test_without_headers_for_its_kind() -> None:
    assert text_of(HEAD + b"\n" + GREETING.encode()) == GREETING


@pytest.mark.parametrize("blank", [b"", b"\n\n", b" \n\xc2\xa0\n"])
def test_alternatives_of_which_one_has_no_words(blank: bytes) -> None:
    plain, page = part("text/plain; charset=utf-8", blank), part("text/html", b"<p>On Friday.</p>")
    assert text_of(HEAD + several("alternative", plain, page)) == "On Friday."


def test_of_alternatives_the_plain_one_is_read() -> None:
    plain, page = part("text/plain", b"On Friday."), part("text/html", b"<p>On <b>Friday</b>.</p>")
    assert text_of(HEAD + several("alternative", plain, page)) == "On Friday."


def test_texts_around_a_picture() -> None:
    texts = part("text/plain", b"The picture:"), PICTURE, part("text/html", b"<p>The code is 4711.</p>")
    assert text_of(HEAD + several("mixed", *texts, ATTACHED, NAMED)) == "The picture:\n\nThe code is 4711."


def test_a_page_with_what_belongs_to_it() -> None:
    related = part("text/html", b"<p>The code is 4711.</p>"), part("text/html", b"<p>frame</p>"), PICTURE
    assert text_of(HEAD + several("related", *related)) == "The code is 4711."


def test_a_message_within_another_one_says_whose_it_is() -> None:
    inner = b"Content-Type: message/rfc822\n\nFrom: Bob <bob@example.org>\nDate: 3 May\nSubject: Keys\n\nThey are here."
    within = "From: Bob <bob@example.org>\nDate: 3 May\nSubject: Keys\n\nThey are here."
    assert text_of(HEAD + several("mixed", part("text/plain", b"See below."), inner)) == f"See below.\n\n{within}"
    assert text_of(HEAD + inner) == within
    bare = b"Content-Type: message/rfc822\n\n\nThey are here."
    assert text_of(HEAD + several("mixed", bare)) == "They are here."


def test_a_part_that_is_no_text_takes_no_other_along() -> None:
    noise = part("text/plain; charset=utf-8", bytes(range(1, 256)) * 3)
    assert text_of(HEAD + several("mixed", part("text/plain", b"The code is 4711."), noise)) == "The code is 4711."


def test_a_table_that_is_too_much_text_is_said_of_the_mail() -> None:
    """As of a page; without it the mail would be another one."""
    rows = "<tr><td>1</td><td>2</td><td>3</td></tr>" * 400
    headings = "".join(f"<th>{letter * 20_000}</th>" for letter in "abc")
    page = f"<p>The code is 4711.</p><table><tr>{headings}</tr>{rows}</table>".encode()
    alone = part("text/html", page)
    beside = several("mixed", part("text/plain", b"See below."), alone)
    within = several("alternative", part("text/plain", b""), several("related", alone, PICTURE))
    files = [(".html", page), *((".eml", HEAD + content) for content in (alone, beside, within))]
    with closing(IsolatedReader()) as reader:
        for suffix, content in files:
            with pytest.raises(UnusableDocument, match="it has too much text: at most 20,000,000 characters are read"):
                content_of(File(suffix, content, "", 0, 0), reader)


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


def test_parts_that_nothing_separates() -> None:
    """They are said to be parts, and what would stand between them does not occur."""
    for kind in ("multipart/mixed; boundary=B", "multipart/mixed"):
        assert text_of(HEAD + part(kind, b"On Friday.\n")) == "On Friday."


def test_without_a_text() -> None:
    assert read_mail(HEAD + several("mixed", PICTURE)).sections[0].text == "From: ann@example.org\nSubject: The key"


def test_what_is_no_mail() -> None:
    with pytest.raises(Unreadable, match="it is not a mail"):
        read_mail(b"words\n")
