"""Nothing is read in part without saying so: what a person sees in a document and the library lacks is named."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import pytest

from cloud.settings import CloudSettings
from common.library.commands import IMPOSSIBLE, add_documents, print_status
from common.library.documents import File, UnusableDocument, read_content
from common.library.library import Library
from common.library.readers import scans
from common.library.readers.content import Content, Unreadable
from common.library.readers.isolated import IsolatedReader
from common.library.readers.within import read_within
from tests.common.library.conftest import Write
from tests.common.library.readers.test_golden import GOLDEN, read

MAIL = b"""From: ann@example.org
Subject: Prices
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/plain

As agreed.
--b
Content-Type: application/octet-stream
Content-Disposition: attachment; filename="firmware.bin"

xyz
--b--
"""
REMARK = "attachment firmware.bin: it is not read"


def test_what_is_not_read_is_kept_with_the_document(library: Library, write: Write, documents: Path) -> None:
    write("a.eml", MAIL)
    write("b.txt", "Nothing is left out.")
    report = library.add(documents)
    assert report.remarks == (("a.eml", REMARK),)
    assert [file.remarks for file in library.files()] == [(REMARK,), ()]
    assert library.add(documents).remarks == ()  # it was not read again
    (documents / "a.eml").rename(documents / "c.eml")
    assert library.add(documents).moved == 1
    assert [file.remarks for file in library.files()] == [(), (REMARK,)]
    write("c.eml", MAIL.replace(b"firmware.bin", b"notes.txt"))
    assert library.add(documents).updated == 1
    assert [file.remarks for file in library.files()] == [(), ()]


def test_status_names_it(
    library: Library, write: Write, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.eml", MAIL)
    library.add(documents)
    settings = CloudSettings(data=tmp_path / "data", model="embedded", library=tmp_path / "library")
    assert print_status(settings) == 0
    assert f"  about {path}: {REMARK}" in capsys.readouterr().out.splitlines()


def test_a_document_that_is_empty_apart_from_what_is_not_read() -> None:
    """The reason why it is skipped names that."""
    words = b"<w:p><w:r><w:t>Letterhead of the quay</w:t></w:r></w:p>"
    main = b"http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    parts = {
        "word/document.xml": b'<w:document xmlns:w="%s"><w:body><w:p/></w:body></w:document>' % main,
        "word/header1.xml": b'<w:hdr xmlns:w="%s">%s</w:hdr>' % (main, words),
        "_rels/.rels": _relations(("officeDocument", "word/document.xml")),
        "word/_rels/document.xml.rels": _relations(("oleObject", "embeddings/object1.bin")),
        "word/embeddings/object1.bin": b"\xd0\xcf\x11\xe0",
    }
    with closing(IsolatedReader()) as reader, pytest.raises(UnusableDocument) as refused:
        read_content(File(".docx", _archive(parts), "", 0, 0), reader)
    above = "it is empty except for its headers and footers"
    assert refused.value.reason == f"{above}; object object1.bin: it is not read"


def test_a_document_within_another_one_is_read(tmp_path: Path) -> None:
    table = (GOLDEN / "xlsx/sheets.xlsx").read_bytes()
    found = read_within([("prices.xlsx", table), ("old.doc", b""), ("empty.txt", b" "), ("bad.pdf", b"%PDF-1.7")])
    alone = read(".xlsx", table)
    assert [part.text for part in found.sections] == [part.text for part in alone.sections]
    assert found.sections[0].place == f"attachment prices.xlsx, {alone.sections[0].place}"
    assert found.remarks == (
        "attachment old.doc: doc is not read: save it as docx",
        "attachment empty.txt: it is empty",
        "attachment bad.pdf: it is damaged",
    )


def test_documents_within_each_other_end() -> None:
    """Each of many mails is attached to the next one; an archive could even hold itself."""
    mail = b"From: a@example.org\nSubject: innermost\n\nThe code is 4711.\n"
    for _ in range(50):
        head = b"From: a@example.org\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=%s\n\n"
        boundary = b"b%d" % len(mail)
        attached = b'Content-Type: x/y\nContent-Disposition: attachment; filename="a.eml"\n\n'
        mail = head % boundary + b"--" + boundary + b"\n" + attached + mail + b"\n--" + boundary + b"--\n"
    with pytest.raises(Unreadable, match="it is nested too deeply to be read"):
        read(".eml", mail)


def test_a_remark_is_short_and_there_are_not_many() -> None:
    many = b"".join(
        b"--b\nContent-Type: x/y\nContent-Disposition: attachment; filename=%s%d.bin\n\nx\n" % (b"n" * 500, number)
        for number in range(200)
    )
    mail = MAIL.replace(b"--b--\n", many + b"--b--\n")
    with closing(IsolatedReader()) as reader:
        remarks = reader.read(".eml", mail).remarks
    assert len(remarks) == 20 and max(map(len, remarks)) == 300


def test_pages_that_were_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one with words; how many it has says the remark."""
    monkeypatch.setattr(scans, "can_read_scans", lambda: False)
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter()
    for name in ("words-that-end-in-the-next-line", "scanned", "scanned"):
        writer.append(PdfReader(GOLDEN / f"pdf/{name}.pdf"))
    buffer = io.BytesIO()
    writer.write(buffer)
    found: Content = read(".pdf", buffer.getvalue())
    assert found.remarks == (f"pages 3, 4 (2 in all) were scanned, which is not read: {scans.NOT_INSTALLED}",)
    assert [section.place for section in found.sections] == ["page 1", "page 2"]


def _relations(*parts: tuple[str, str]) -> bytes:
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    listed = (
        f'<Relationship Id="r{number}" Type="{office}/{kind}" Target="{part}"/>'
        for number, (kind, part) in enumerate(parts)
    )
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{package}">{"".join(listed)}</Relationships>'.encode()


def _archive(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return buffer.getvalue()


def test_an_encoding_that_was_guessed_and_then_named(library: Library, write: Write, documents: Path) -> None:
    """By default its name is told; one that is named for a folder holds for whoever reads that later."""
    sentence = "倉庫鑰匙在三號櫃。"
    write("note.txt", sentence.encode("big5"))
    write("sign.csv", "名,價\n燈,12\n".encode("utf-16"))
    (guessed,) = library.add(documents).remarks
    assert guessed[1].startswith("its encoding was guessed: ")
    named = library.add(documents, encoding="big5")
    assert (named.updated, named.remarks) == (2, ())
    assert sentence in library.texts() and any("價" in text for text in library.texts())
    write("more.txt", "櫃".encode("big5"))
    later = library.add(documents)
    assert (later.added, later.unchanged, later.remarks) == (1, 2, ())
    assert "櫃" in library.texts()
    assert library.add(documents, encoding="").updated == 3
    assert "櫃" not in library.texts()  # by itself it could be anything


def test_copies_are_read_in_the_encoding_of_their_document(
    library: Library, write: Write, documents: Path, tmp_path: Path
) -> None:
    """Whichever folder is read: else each reading would undo the other one's. Where the copy is left alone, its own
    encoding holds.
    """
    sentence = "倉庫鑰匙在三號櫃。"
    write("note.txt", sentence.encode("big5"))
    write("../other/copy.txt", sentence.encode("big5"))
    assert library.add(documents, encoding="big5").added == 1
    for _ in range(2):
        assert library.add(tmp_path / "other", encoding="koi8-r").chunks == 0
        assert library.add(documents).unchanged == 1
        assert library.texts() == [sentence]
    (documents / "note.txt").unlink()
    library.add(documents)
    assert library.add(tmp_path / "other").updated == 1
    assert library.texts() == [sentence.encode("big5").decode("koi8-r")]


def test_a_named_encoding_goes_where_its_folder_goes_and_is_forgotten_with_it(
    library: Library, write: Write, documents: Path, tmp_path: Path
) -> None:
    sentence = "倉庫鑰匙在三號櫃。"
    write("sub/note.txt", sentence.encode("big5"))
    library.add(documents / "sub", encoding="big5")
    big = documents.rename(tmp_path / "big")
    documents.symlink_to(big)
    assert (library.add(documents / "sub").unchanged, library.texts()) == (1, [sentence])
    library.remove([big / "sub"])
    assert len(library.add(big / "sub").remarks) == 1


def test_an_encoding_that_nobody_knows(documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = CloudSettings(data=tmp_path / "data", model="embedded", library=tmp_path / "library")
    for name in ("klingon", "rot13", "base64"):
        assert add_documents(settings, [documents], encoding=name) == IMPOSSIBLE
        assert capsys.readouterr().err.startswith(f"dragon: {name} is not a known text encoding")
