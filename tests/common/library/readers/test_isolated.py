"""Documents that are bad for their reader cost themselves and nothing else: a real process, real limits."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import psutil
import pytest

from common.library.readers import archive, isolated
from common.library.readers.content import Unreadable
from common.library.readers.formats import PARSED
from common.library.readers.isolated import IsolatedReader
from tests.common.library.readers import files
from tests.common.library.readers.test_golden import GOLDEN

GOOD = b"<h1>Tea</h1><p>The kettle is red.</p>"
STATEMENT = GOLDEN / "pdf/encrypted-against-changes-only-aes-256.pdf"
DEEP = b"<div>" * 20_000 + b"words"


@pytest.fixture(scope="module")
def reader() -> Iterator[IsolatedReader]:
    with closing(IsolatedReader()) as reader:
        yield reader


def goes_on(reader: IsolatedReader) -> None:
    assert "kettle is red" in reader.read(".html", GOOD).sections[0].text


def refusal(reader: IsolatedReader, suffix: str, content: bytes) -> str | None:
    """The reason why the document can't be read; None where it can."""
    try:
        reader.read(suffix, content)
    except Unreadable as error:
        return error.reason
    return None


NOT_DOCUMENTS = {"empty": b"", "noise": b"\0\xff" * 50, "pdf": b"%PDF-1.7\n", "zip": b"PK\x03\x04junk"}


@pytest.mark.parametrize("suffix", sorted(PARSED))
@pytest.mark.parametrize("content", NOT_DOCUMENTS.values(), ids=NOT_DOCUMENTS)
def test_damaged(reader: IsolatedReader, suffix: str, content: bytes) -> None:
    """Either there is some text in it all the same, or a reason is given."""
    reason = refusal(reader, suffix, content)
    assert reason is None or reason.startswith("it ")
    if suffix in (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".odt", ".odp", ".ods", ".rtf"):
        assert reason is not None
    goes_on(reader)


@pytest.mark.parametrize(
    "name",
    [
        "pdf/words-that-end-in-the-next-line.pdf",
        "pdf/encrypted-against-changes-only-aes-256.pdf",
        "odt/title.odt",
        "rtf/tables-of-rich-text.rtf",
        "docx/headings-are-places.docx",
        "xlsx/sheets.xlsx",
        "epub/title.epub",
    ],
)
def test_cut_short(reader: IsolatedReader, name: str) -> None:
    content = (GOLDEN / name).read_bytes()
    for share in (0.2, 0.5, 0.9):
        reason = refusal(reader, Path(name).suffix, content[: int(share * len(content))])
        assert reason is None or reason.startswith("it ")
    goes_on(reader)


def test_an_archive_that_unpacks_to_too_much(reader: IsolatedReader) -> None:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED, compresslevel=1) as file:
        for name in ("word/document.xml", "content.xml"):
            with file.open(name, "w") as part:
                for _ in range(archive.MOST_UNPACKED // 2**21 + 1):
                    part.write(bytes(2**20))
    assert len(buffer.getvalue()) < 2**21
    for suffix in (".docx", ".odt"):
        with pytest.raises(Unreadable, match="it unpacks to"):
            reader.read(suffix, buffer.getvalue())
        goes_on(reader)


@pytest.mark.parametrize("suffix", [".epub", ".odt"])
def test_entities_that_multiply(suffix: str) -> None:
    """Each of nine entities is ten of the one before. What is refused for that takes hardly any processor time."""
    names = "abcdefghij"
    entities = "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in pairwise(names))
    bomb = f'<!DOCTYPE package [<!ENTITY a "aaaaaaaaaa">{entities}]><package><title>&j;</title></package>'
    parts = {
        "META-INF/container.xml": '<container><rootfile full-path="content.xml"/></container>',
        "content.xml": bomb,
    }
    with closing(IsolatedReader(processor_seconds=5)) as reader:
        goes_on(reader)  # it has started
        said = refusal(reader, suffix, files.archive(parts))
        assert said is not None
        assert "processor time" not in said
        goes_on(reader)


def test_an_encrypted_pdf(reader: IsolatedReader) -> None:
    """It is deciphered within the limits of the process."""
    assert "31 euros" in reader.read(".pdf", STATEMENT.read_bytes()).sections[0].text
    with pytest.raises(Unreadable, match="it needs a password"):
        reader.read(".pdf", (GOLDEN / "pdf/needs-a-password-aes-256.pdf").read_bytes())
    goes_on(reader)


def test_an_encrypted_pdf_that_unpacks_to_too_much() -> None:
    """A page of a hundred megabytes of blanks, which is a few kilobytes when it is compressed twice."""
    with closing(IsolatedReader(memory=2**28, processor_seconds=10)) as reader:
        goes_on(reader)
        said = refusal(reader, ".pdf", files.inflated_pdf(2**27))
        assert said is not None
        goes_on(reader)


WORDS = b"BT /F1 12 Tf 72 700 Td (The kettle is red.) Tj ET "
FAR = b"BT /F1 6 Tf 1 0 0 1 1000000000 5 Tm (far) Tj 1 0 0 1 -900000000 99999 Tm (away) Tj ET "
GRID = b"".join(b"0 %d m 600 %d l S %d 0 m %d 720 l S " % (12 * at, 12 * at, 10 * at, 10 * at) for at in range(60))
CELLS = b"".join(b"1 0 0 1 %d %d Tm (%d) Tj " % (10 * x + 2, 12 * y + 3, x) for x in range(59) for y in range(59))
SCATTERED = b"".join(b"1 0 0 1 %d %d Tm (w%d) Tj " % (at * 7919 % 590, at * 104729 % 790, at) for at in range(5000))


@pytest.mark.parametrize(
    "content",
    [
        b"0 0 m 100 100 l S " * 200_000 + WORDS,
        b"".join(b"%d %d m %d %d l S " % (at % 500, at % 700, at % 500 + 50, at % 700) for at in range(20_000)) + WORDS,
        FAR + WORDS,
        GRID + b"BT /F1 4 Tf " + CELLS + b"ET " + b"1 0 0 1 0 60 cm " + WORDS,
        b"BT /F1 6 Tf " + SCATTERED + b"ET " + WORDS,
        b"BT /F1 0.0001 Tf " + b"(aaa bbb) Tj 1 0 Td " * 1000 + b"ET " + WORDS,
        b"q " * 100_000 + WORDS,
    ],
    ids=["one line", "many lines", "far away", "a large table", "scattered words", "no size", "nested"],
)
def test_a_page_that_is_a_lot_to_look_at(reader: IsolatedReader, content: bytes) -> None:
    """It is read within the limits, with the words that a person sees."""
    (section,) = reader.read(".pdf", files.page_of(content)).sections
    for word in ("The", "kettle", "is", "red."):
        assert word in section.text
    goes_on(reader)


def test_an_encrypted_pdf_whose_key_takes_for_ever() -> None:
    """A dictionary of encryption with numbers that nobody means."""
    good = STATEMENT.read_bytes()
    with closing(IsolatedReader(processor_seconds=15)) as reader:
        goes_on(reader)
        for name, value in (("/V 5", "/V 9"), ("/R 6", "/R 7"), ("/Length 256", "/Length 99"), ("/R 6", "/R 2")):
            assert name.encode() in good
            said = refusal(reader, ".pdf", good.replace(name.encode(), value.encode()))
            assert said is None or said.startswith("it ")
            goes_on(reader)


def test_rows_that_are_repeated(reader: IsolatedReader) -> None:
    """Each of a thousand rows says that it is a million. A sheet has no more than that in all."""
    cell = "<table:table-cell><text:p>x</text:p></table:table-cell>"
    row = f'<table:table-row table:number-rows-repeated="999999">{cell}</table:table-row>'
    (section,) = reader.read(".ods", files.sheet(row * 1000)).sections
    assert section.text.count("x") == 2**20
    goes_on(reader)


def test_too_much_memory() -> None:
    with closing(IsolatedReader()) as reader:
        goes_on(reader)
        assert reader._process is not None
        enough = psutil.Process(reader._process.pid).memory_info().vms
    with closing(IsolatedReader(memory=enough + 40 * 2**20)) as reader:
        goes_on(reader)
        with pytest.raises(Unreadable, match=r"memory|nested"):
            reader.read(".html", b"<p>a" * 1_000_000)
        goes_on(reader)


def test_what_takes_all_memory_leaves_it_to_the_next() -> None:
    with closing(IsolatedReader(memory=160 * 2**20)) as reader:
        assert refusal(reader, ".html", b"<p>a" * 200_000) is not None
        assert refusal(reader, ".csv", b"a;b\n" + (b"w" * 1000 + b";1\n") * 15_000) is None


def test_too_slow() -> None:
    with closing(IsolatedReader()) as reader:
        goes_on(reader)
    with closing(IsolatedReader(seconds=0.05)) as hasty, pytest.raises(Unreadable, match=r"took longer than 0\.05 s"):
        hasty.read(".html", GOOD)


def test_too_much_processor_time() -> None:
    """In one step of a regular expression, which nothing in its process interrupts."""
    with closing(IsolatedReader(processor_seconds=3)) as reader:  # a slow machine imports what it needs in these
        with pytest.raises(Unreadable, match="took more than 3 s of processor time"):
            reader.read(".rst", b":" * 100_000)
        goes_on(reader)


def test_processor_time_counts_for_each_document() -> None:
    with closing(IsolatedReader(processor_seconds=1)) as reader:
        reader.read(".csv", b"a,b")
        assert reader._process is not None
        process = psutil.Process(reader._process.pid)
        # One limit for all of them would end it at 2 s: the system counts whole seconds.
        while process.cpu_times().user < 2.5:
            reader.read(".csv", b"a,b\n" * 20_000)
        assert reader._process.pid == process.pid


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no JSON\n",
        b"{}\n",
        b"[1]\n",
        b'{"title": "", "sections": [1]}\n',
        b"[" * 100_000 + b"\n",
        b'{"scan": 0}\n{"scan": 0}\n',
        b'{"scan": 0, "found": "[]"}\n',
        b'{"scan": 1000000}\n',
        b'{"scan": -1}\n',
        b'{"page": "x", "pages": 1}\n',
    ],
)
def test_a_reader_that_a_document_has_taken_over(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import sys; sys.stdin.buffer.readline(); sys.stdout.buffer.write({answer!r}); sys.stdout.flush()"
    monkeypatch.setattr(isolated, "child_command", lambda *_: [sys.executable, "-c", code])
    with closing(IsolatedReader()) as reader, pytest.raises(Unreadable, match="the reader crashed"):
        reader.read(".html", GOOD)


def test_killed_from_outside(reader: IsolatedReader) -> None:
    goes_on(reader)
    assert reader._process is not None
    os.kill(reader._process.pid, signal.SIGKILL)
    reader._process.wait()
    goes_on(reader)


def test_nested_too_deeply(reader: IsolatedReader) -> None:
    assert refusal(reader, ".html", DEEP) in (None, "its parts are nested too deeply")
    goes_on(reader)


def test_nothing_is_written(reader: IsolatedReader) -> None:
    goes_on(reader)
    assert reader._process is not None
    listed = Path(f"/proc/{reader._process.pid}/limits")
    if not listed.exists():
        pytest.skip("this system does not show the limits of processes")
    for name in ("Max file size", "Max core file size"):
        (line,) = (line for line in listed.read_text().splitlines() if line.startswith(name))
        assert line.removeprefix(name).split()[:2] == ["0", "0"]
