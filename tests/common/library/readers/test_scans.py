"""Scanned pages are read by the real engine, within limits, and once."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from common.library.ingest import Interrupted
from common.library.library import Library
from common.library.readers import isolated
from common.library.readers.content import Content, Unreadable
from common.library.readers.isolated import IsolatedReader, Reading
from common.library.readers.scans import NOT_INSTALLED, Scanned, can_read_scans
from tests.common.library.conftest import Write
from tests.common.library.readers import files
from tests.support.missing import skip_without

LINES = (
    "The harbour of Elmsund has seventeen berths.",
    "Die Größe müßte schön sein, Bestellung KX-88123.",
    "The crane lifts at most forty tonnes.",
)
ROWS = (("Article", "Number", "Price"), ("Lamp", "KX-881", "12.40"), ("Chair", "B-1122", "99.00"))


@pytest.fixture
def engine() -> None:
    if not can_read_scans():
        skip_without("rapidocr", "`make ocr` installs it, and scanned pages are read")


@pytest.fixture(scope="module")
def reader() -> Iterator[IsolatedReader]:
    with closing(IsolatedReader()) as reader:
        yield reader


def sheet(dots: int = 150) -> tuple[Image.Image, ImageDraw.ImageDraw, ImageFont.FreeTypeFont]:
    picture = Image.new("L", (8 * dots, 5 * dots), 255)
    font = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    return picture, ImageDraw.Draw(picture), ImageFont.truetype(font, dots // 6)


def page(*lines: str, dots: int = 150) -> Image.Image:
    picture, pen, font = sheet(dots)
    for number, line in enumerate(lines):
        pen.text((0.7 * dots, (0.6 + 0.4 * number) * dots), line, font=font, fill=0)
    return picture


def table(dots: int = 150) -> Image.Image:
    picture, pen, font = sheet(dots)
    for number, row in enumerate(ROWS):
        for column, cell in enumerate(row):
            left, top = (0.8 + 1.6 * column) * dots, (0.6 + 0.5 * number) * dots
            pen.rectangle((left, top, left + 1.6 * dots, top + 0.5 * dots), outline=0, width=2)
            pen.text((left + 0.2 * dots, top + 0.15 * dots), cell, font=font, fill=0)
    return picture


def scanned(*pages: Image.Image, dots: int = 150) -> bytes:
    buffer = io.BytesIO()
    pages[0].save(buffer, "PDF", resolution=dots, save_all=True, append_images=pages[1:])
    return buffer.getvalue()


def text_of(content: Content) -> str:
    return "\n".join(section.text for section in content.sections)


@pytest.mark.usefixtures("engine")
class TestWords:
    @pytest.mark.parametrize("dots", [150, 300])
    def test_of_a_page(self, reader: IsolatedReader, dots: int) -> None:
        found = reader.read(".pdf", scanned(page(*LINES, dots=dots), dots=dots))
        assert found.remarks == ("page 1 was scanned, read by rapidocr",)
        assert [section.place for section in found.sections] == ["page 1"]
        words = text_of(found).split()
        assert [word for line in LINES for word in line.split() if word not in words] == []

    @pytest.mark.parametrize("turn", [90, 180, 270])
    def test_of_a_turned_page(self, reader: IsolatedReader, turn: int) -> None:
        found = text_of(reader.read(".pdf", scanned(page(*LINES).rotate(turn, expand=True))))
        assert found.index("Elmsund") < found.index("KX-88123") < found.index("forty")

    @pytest.mark.parametrize("askew", [0.0, 1.5, -1.5])
    def test_of_a_table_behind_their_headings(self, reader: IsolatedReader, askew: float) -> None:
        found = text_of(reader.read(".pdf", scanned(table().rotate(askew, fillcolor=255))))
        assert "Article: Lamp; Number: KX-881; Price: 12.40" in found
        assert "Article: Chair; Number: B-1122; Price: 99.00" in found

    def test_of_a_noisy_page(self, reader: IsolatedReader) -> None:
        grey = np.asarray(page(*LINES)) + np.random.default_rng(1).normal(0, 30, (750, 1200))
        found = text_of(reader.read(".pdf", scanned(Image.fromarray(grey.clip(0, 255).astype(np.uint8)))))
        assert "seventeen berths" in found and "KX-88123" in found

    def test_beside_what_a_scanner_writes(self, reader: IsolatedReader) -> None:
        """A page with a few words above its picture."""
        from pypdf import PdfReader, PdfWriter

        writer = PdfWriter(PdfReader(io.BytesIO(scanned(page(*LINES)))))
        stamp = PdfReader(io.BytesIO(files.page_of(b"BT /F1 12 Tf 30 20 Td (Scanned with Lens) Tj ET")))
        writer.pages[0].merge_page(stamp.pages[0])
        buffer = io.BytesIO()
        writer.write(buffer)
        found = reader.read(".pdf", buffer.getvalue())
        assert "Scanned with Lens" in text_of(found) and "Elmsund" in text_of(found)
        assert found.remarks == ("page 1 was scanned, read by rapidocr",)

    def test_that_the_models_lack(self, reader: IsolatedReader) -> None:
        """Letters of another script are not taken for others."""
        picture = page(LINES[0], LINES[2])
        pen = ImageDraw.Draw(picture)
        for line in range(2):
            for at in range(28):
                left, top = 110 + 30 * at, 300 + 60 * line
                pen.arc((left, top, left + 14, top + 26), 30 * at % 360, 30 * at % 360 + 200, fill=0, width=3)
        found = reader.read(".pdf", scanned(picture))
        assert "Elmsund" in text_of(found)
        assert any("can't be recognised" in remark for remark in found.remarks)

    def test_none(self, reader: IsolatedReader) -> None:
        with pytest.raises(Unreadable, match="it has no text; page 1 was scanned, read by rapidocr"):
            reader.read(".pdf", scanned(page()))


@pytest.mark.usefixtures("engine")
class TestLimits:
    def test_pages_that_take_too_long_cost_themselves(self) -> None:
        """The third one that ends the process is the last one that is tried."""
        content = scanned(*(page(f"{LINES[0]} {number}") for number in range(5)))
        with closing(IsolatedReader(processor_seconds=1)) as hasty, pytest.raises(Unreadable) as refused:
            hasty.read(".pdf", content)
        reason = "which is not read: reading it took more than 1 s of processor time"
        assert refused.value.reason == (
            f"it has no text; pages 1, 2, 3 (3 in all) were scanned, {reason};"
            " pages 4, 5 (2 in all) were scanned, which is not read: 3 others failed"
        )

    def test_too_little_memory(self) -> None:
        content = scanned(page(LINES[0]))
        with closing(IsolatedReader(memory=450 * 2**20)) as small:
            with pytest.raises(Unreadable, match="it has no text; page 1 was scanned, which is not read: "):
                small.read(".pdf", content)
            assert "kettle" in text_of(small.read(".html", b"<p>The kettle is red.</p>"))

    def test_a_picture_of_900_million_pixels(self, reader: IsolatedReader) -> None:
        """Its neighbour is read."""
        from pypdf import PdfReader, PdfWriter

        writer = PdfWriter()
        writer.append(PdfReader(io.BytesIO(files.page_with_picture(30_000))))
        writer.append(PdfReader(io.BytesIO(scanned(page(*LINES)))))
        buffer = io.BytesIO()
        writer.write(buffer)
        found = reader.read(".pdf", buffer.getvalue())
        assert "Elmsund" in text_of(found)
        assert [section.place for section in found.sections] == ["page 2"]


class Followed(Reading):
    def __init__(self, scans: dict[int, Scanned] | None = None, later: bool = False) -> None:
        super().__init__(scans, later)
        self.kept = list[int]()

    def keep(self, number: int, scan: Scanned) -> None:
        super().keep(number, scan)
        self.kept.append(number)


@pytest.mark.usefixtures("engine")
class TestOnce:
    def test_known_scans_are_not_read_again(self, reader: IsolatedReader) -> None:
        content = scanned(*(page(f"{LINES[0]} {number}") for number in (1, 2, 3)))
        whole = Followed()
        first = reader.read(".pdf", content, whole)
        assert whole.kept == [0, 1, 2]
        known = Followed({number: whole.scans[number] for number in (0, 2)})
        assert reader.read(".pdf", content, known) == first
        assert known.kept == [1]

    def test_an_interrupted_reading_goes_on(self, library: Library, documents: Path, write: Write) -> None:
        """Text comes first; each page is read once."""
        write("a.pdf", scanned(*(page(f"Berth number {number} has a green lamp.") for number in (1, 2, 3))))
        write("b.txt", "The kettle is red.")
        seen = list[str]()

        noted = list[str]()

        def until(place: str, done: int, path: str) -> None:
            seen.append(place)
            noted.extend(reading.place for reading in library.readings())
            if place == "page 3 of 3":
                assert [file.relative_path for file in library.files()] == ["b.txt"]
                raise Interrupted

        with pytest.raises(Interrupted):
            library.add(documents, lambda done, total, path, place: until(place, done, path))
        assert "page 2 of 3" in seen
        assert "page 1 of 3" in noted  # other processes see it
        with library._reading():
            staged = [row[0] for row in library._store._database.all("SELECT item FROM staged ORDER BY item")]
        assert staged == [0, 1]
        report = library.add(documents)
        assert (report.added, report.skipped) == (1, ())
        (remark,) = report.remarks
        assert remark == ("a.pdf", "pages 1, 2, 3 (3 in all) were scanned, read by rapidocr")
        assert {"page 1", "page 2", "page 3"} == {hit.place for hit in library.search("berth lamp", 9) if hit.place}
        with library._reading():
            assert library._store._database.all("SELECT count(*) FROM staged") == [(0,)]

    def test_a_skipped_document_is_not_recognised_again(
        self, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write("blank.pdf", scanned(page(), page()))
        assert len(library.add(documents).skipped) == 1
        kept = list[int]()
        monkeypatch.setattr(Reading, "keep", lambda self, number, scan: kept.append(number))
        assert len(library.add(documents).skipped) == 1
        assert kept == []
        (documents / "blank.pdf").unlink()
        library.add(documents)
        with library._reading():
            assert library._store._database.all("SELECT count(*) FROM staged") == [(0,)]


def test_without_the_engine_they_are_named_and_read_when_it_comes(
    library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child has no engine here, or lacks its package; afterwards the document counts as changed."""
    monkeypatch.setattr(isolated, "child_command", _child_without_engine())
    monkeypatch.setattr("common.library.ingest.can_read_scans", lambda: False)
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter()
    writer.append(PdfReader(io.BytesIO(files.page_of(b"BT /F1 12 Tf 72 700 Td (The kettle is red.) Tj ET"))))
    writer.append(PdfReader(io.BytesIO(scanned(page(*LINES)))))
    buffer = io.BytesIO()
    writer.write(buffer)
    write("a.pdf", buffer.getvalue())
    report = library.add(documents)
    assert report.remarks == (("a.pdf", f"page 2 was scanned, which is not read: {NOT_INSTALLED}"),)
    assert library.add(documents).unchanged == 1
    monkeypatch.setattr("common.library.ingest.can_read_scans", lambda: True)
    monkeypatch.undo()
    if can_read_scans():
        assert library.add(documents).updated == 1
        assert [file.remarks for file in library.files()] == [("page 2 was scanned, read by rapidocr",)]
        assert library.add(documents).unchanged == 1


def _child_without_engine() -> Callable[..., list[str]]:
    def command(module: str, *arguments: str) -> list[str]:
        code = (
            "import importlib.util, runpy, sys; find = importlib.util.find_spec;"
            " importlib.util.find_spec = lambda name, *rest: None if name == 'rapidocr' else find(name, *rest);"
            f" sys.argv[1:] = {list(arguments)!r}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        )
        return [sys.executable, "-P", "-B", "-c", code]

    return command
