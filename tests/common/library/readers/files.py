"""Documents of many formats, made with the libraries that write them."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import openpyxl
from lxml import etree
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from PIL import Image
from pptx import Presentation
from pptx.chart.data import BubbleChartData, CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI
from pptx.util import Inches
from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    NameObject,
    NullObject,
    PdfObject,
    StreamObject,
    TextStringObject,
)

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
MATHS = "http://schemas.openxmlformats.org/officeDocument/2006/math"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
COMPATIBILITY = "http://schemas.openxmlformats.org/markup-compatibility/2006"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
NEW_DRAWING = "http://schemas.microsoft.com/office/drawing/2010/main"
DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def pdf(pages: Sequence[str], title: str = "", password: str | None = None, algorithm: str = "RC4-128") -> bytes:
    """One text for each page; `password` encrypts it, an empty one against changes only."""
    buffer = io.BytesIO()
    with PdfPages(buffer, metadata={"Title": title}) as file:
        for text in pages:
            figure = Figure(figsize=(6, 4))
            figure.text(0.1, 0.5, text)
            file.savefig(figure)
    if password is None:
        return buffer.getvalue()
    writer = PdfWriter(clone_from=PdfReader(buffer))
    writer.encrypt(password, owner_password="owner", algorithm=algorithm)
    encrypted = io.BytesIO()
    writer.write(encrypted)
    return encrypted.getvalue()


def filled_in_pdf(text: str, fields: Mapping[str, str], choice: tuple[str, str], typed: str) -> bytes:
    """A page with a form's texts by name, a choice of two (name, chosen one), words typed onto it, and what no
    annotation should be.
    """
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf([text]))))

    def made(**entries: PdfObject) -> PdfObject:
        named: dict[Any, Any] = {NameObject(f"/{key}"): value for key, value in entries.items()}
        return writer._add_object(DictionaryObject(named))

    widget = NameObject("/Widget")
    annotations = [
        made(Subtype=widget, FT=NameObject("/Tx"), T=TextStringObject(name), V=TextStringObject(value))
        for name, value in fields.items()
    ]
    group = made(FT=NameObject("/Btn"), T=TextStringObject(choice[0]), V=NameObject(f"/{choice[1]}"))
    annotations += [made(Subtype=widget, Parent=group) for _ in range(2)]
    annotations.append(made(Subtype=NameObject("/FreeText"), Contents=TextStringObject(typed)))
    writer.pages[0][NameObject("/Annots")] = ArrayObject([*annotations, NullObject(), made(Subtype=widget)])
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def inflated_pdf(size: int) -> bytes:
    """A page whose content is `size` blanks, encrypted against changes only."""
    writer = PdfWriter()
    page = writer.add_blank_page(100, 100)
    stream = StreamObject()
    stream[NameObject("/Filter")] = ArrayObject([NameObject("/FlateDecode")] * 2)
    packer, blanks = zlib.compressobj(), bytes(2**20).replace(b"\0", b" ")
    packed = b"".join(packer.compress(blanks) for _ in range(size // 2**20)) + packer.flush()
    stream._data = zlib.compress(packed)
    page[NameObject("/Contents")] = writer._add_object(stream)
    writer.encrypt("", owner_password="owner", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def scanned_pdf() -> bytes:
    """A page that is a picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (60, 40), "white").save(buffer, "PDF")
    return buffer.getvalue()


def archive(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return buffer.getvalue()


def docx(
    paragraphs: Sequence[tuple[str, str]], more: str = "", header: str = "", numbering: str = "", styles: str = ""
) -> bytes:
    """Paragraphs as (style, text); the style is empty or e.g. «Heading1». `more` is XML in the body behind them,
    `header` that of a paragraph above pages, `numbering` that of lists, `styles` that of more styles.
    """
    body = "".join(
        f'<w:p><w:pPr>{f"""<w:pStyle w:val="{style}"/>""" if style else ""}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    styles += "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/></w:style>'
        for level in (1, 2)
        if f'"Heading{level}"' not in styles
    )
    kinds = {"document": "document.main", "styles": "styles", "numbering": "numbering"}
    overrides = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType='
        f'"application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}+xml"/>'
        for name, kind in kinds.items()
    )
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="rels" ContentType='
            f'"application/vnd.openxmlformats-package.relationships+xml"/>{overrides}</Types>',
            "_rels/.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="a" Type="{OFFICE}/officeDocument"'
            ' Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="b"'
            f' Type="{OFFICE}/styles" Target="styles.xml"/><Relationship Id="c" Type="{OFFICE}/numbering"'
            ' Target="numbering.xml"/></Relationships>',
            "word/header2.xml": f'<w:hdr xmlns:w="{WORD}"><w:p>{header}</w:p></w:hdr>',
            "word/document.xml": f'<w:document xmlns:w="{WORD}" xmlns:m="{MATHS}" xmlns:mc="{COMPATIBILITY}">'
            f"<w:body>{body}{more}</w:body></w:document>",
            "word/numbering.xml": f'<w:numbering xmlns:w="{WORD}">{numbering}</w:numbering>',
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>',
        }
    )


def pptx(slides: Sequence[tuple[str, str]]) -> bytes:
    """Slides as (text, notes)."""
    deck = Presentation()
    for text, notes in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        slide.shapes.add_textbox(Inches(1), Inches(1), Inches(5), Inches(1)).text_frame.text = text
        slide.notes_slide.notes_text_frame.text = notes
    buffer = io.BytesIO()
    deck.save(buffer)
    return buffer.getvalue()


def titled_pptx(heading: str | None, title: str | None) -> bytes:
    """Two slides, the first with or without a heading; None as `title` for a file that describes itself nowhere."""
    deck = Presentation()
    for text in (heading, "Another"):
        slide = deck.slides.add_slide(deck.slide_layouts[6 if text is None else 5])
        if text is not None:
            slide.shapes.title.text = text
    deck.core_properties.title = title or ""
    buffer = io.BytesIO()
    deck.save(buffer)
    if title is not None:
        return buffer.getvalue()
    undescribed = altered(buffer.getvalue(), "_rels/.rels", rb"<Relationship [^>]*core-properties[^>]*/>", b"")
    return without(undescribed, "docProps/core.xml")


def described_elsewhere(content: bytes, title: str) -> bytes:
    """An Office document that has a title where .NET puts it."""
    place, kind = "package/services/metadata/core-properties/1.psmdcp", "package.core-properties+xml"
    type_ = f'<Default Extension="psmdcp" ContentType="application/vnd.openxmlformats-{kind}"/></Types>'
    relation = f'<Relationship Id="core" Type="{RELATIONS}/metadata/core-properties" Target="{place}"/></Relationships>'
    content = altered(content, "[Content_Types].xml", b"</Types>", type_.encode())
    buffer = io.BytesIO(altered(content, "_rels/.rels", b"</Relationships>", relation.encode()))
    with ZipFile(buffer, "a") as file:
        file.writestr(place, f'<core xmlns:dc="urn:dc"><dc:title>{title}</dc:title></core>')
    return buffer.getvalue()


def chart_pptx(title: str, categories: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> bytes:
    """One slide, with a chart of columns."""
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = categories
    for name, values in series.items():
        data.add_series(name, values)
    return _chart_pptx(title, XL_CHART_TYPE.COLUMN_CLUSTERED, data)


def points_pptx(title: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> bytes:
    """One slide, with a chart of points."""
    return _points_pptx(title, XL_CHART_TYPE.XY_SCATTER, XyChartData(), series)  # type: ignore[no-untyped-call]


def bubbles_pptx(title: str, series: Mapping[str, Sequence[tuple[float, float, float]]]) -> bytes:
    """One slide, with a chart of points that have sizes."""
    return _points_pptx(title, XL_CHART_TYPE.BUBBLE, BubbleChartData(), series)  # type: ignore[no-untyped-call]


def _points_pptx(title: str, kind: Any, data: Any, series: Mapping[str, Sequence[tuple[float, ...]]]) -> bytes:
    for name, points in series.items():
        added = data.add_series(name)
        for point in points:
            added.add_data_point(*point)
    return _chart_pptx(title, kind, data)


def _chart_pptx(title: str, kind: Any, data: Any) -> bytes:
    deck = Presentation()
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    chart = shapes.add_chart(kind, Inches(1), Inches(1), Inches(5), Inches(3), data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = title
    buffer = io.BytesIO()
    deck.save(buffer)
    return buffer.getvalue()


def diagram_pptx(text: str, above: str, below: str, steps: Sequence[str]) -> bytes:
    """One slide, with a text that ends in a fraction, as programs write what older ones can't show, and a diagram."""
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    box = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(5), Inches(1))
    box.text_frame.text = text
    fraction = "".join(
        f"<m:{part}><m:r><m:t>{each}</m:t></m:r></m:{part}>" for part, each in (("num", above), ("den", below))
    )
    formula = f'<a:m xmlns:a="{NEW_DRAWING}" xmlns:m="{MATHS}"><m:oMath><m:f>{fraction}</m:f></m:oMath></a:m>'
    box.text_frame.paragraphs[0]._p.append(etree.fromstring(formula))
    shape = box._element
    alternatives = etree.fromstring(
        f'<mc:AlternateContent xmlns:mc="{COMPATIBILITY}"><mc:Choice Requires="a14"/><mc:Fallback/>'
        "</mc:AlternateContent>"
    )
    shape.getparent().replace(shape, alternatives)
    alternatives[0].append(shape)
    points = "".join(f"<d:pt><d:t><a:p><a:r><a:t>{step}</a:t></a:r></a:p></d:t></d:pt>" for step in steps)
    outline = f'<d:dataModel xmlns:d="{DIAGRAM}" xmlns:a="{DRAWING}"><d:ptLst>{points}</d:ptLst></d:dataModel>'
    part = Part(PackURI("/ppt/diagrams/data1.xml"), "application/xml", deck.part.package, outline.encode())
    relation = slide.part.relate_to(part, f"{OFFICE}/diagramData")
    slide.shapes._spTree.append(
        etree.fromstring(
            f'<p:graphicFrame xmlns:p="{SLIDES}" xmlns:a="{DRAWING}"><p:nvGraphicFramePr><p:cNvPr id="9" name="steps"/>'
            "<p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr><p:xfrm/><a:graphic>"
            f'<a:graphicData uri="{DIAGRAM}"><d:relIds xmlns:d="{DIAGRAM}" xmlns:r="{OFFICE}" r:dm="{relation}"/>'
            "</a:graphicData></a:graphic></p:graphicFrame>"
        )
    )
    buffer = io.BytesIO()
    deck.save(buffer)
    return buffer.getvalue()


def xlsx(sheets: dict[str, Sequence[Sequence[object]]], formats: Mapping[str, str] | None = None) -> bytes:
    """Rows by sheet; `formats` are those of numbers, by cell of the last sheet."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    for place, form in (formats or {}).items():
        sheet[place].number_format = form
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def altered(archive: bytes, name: str, pattern: bytes, replacement: bytes) -> bytes:
    """A zip archive with what fits `pattern` replaced in one of its parts."""
    buffer = io.BytesIO()
    with ZipFile(io.BytesIO(archive)) as read, ZipFile(buffer, "w", ZIP_DEFLATED) as written:
        for part in read.namelist():
            content = read.read(part)
            written.writestr(part, re.sub(pattern, replacement, content) if part == name else content)
    return buffer.getvalue()


def without(archive: bytes, name: str) -> bytes:
    """A zip archive without one of its parts."""
    buffer = io.BytesIO()
    with ZipFile(io.BytesIO(archive)) as read, ZipFile(buffer, "w", ZIP_DEFLATED) as written:
        for part in read.namelist():
            if part != name:
                written.writestr(part, read.read(part))
    return buffer.getvalue()


def epub(chapters: Sequence[str], title: str, encrypted: str = "") -> bytes:
    """Chapters as HTML, in reading order, and the name of a part that is said to be encrypted."""
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfile full-path="book/content.opf"/></container>',
        "book/content.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"<dc:title>{title}</dc:title></metadata><manifest>{items}</manifest><spine>{spine}</spine></package>",
    }
    if encrypted:
        reference = f'<e:CipherReference URI="{encrypted}"/>'
        parts["META-INF/encryption.xml"] = f'<e:all xmlns:e="urn:e">{reference}</e:all>'
    # The order of the files is not that of the book.
    for number, chapter in reversed(list(enumerate(chapters))):
        parts[f"book/text/c {number}.xhtml"] = f"<html><body>{chapter}</body></html>"
    return archive(parts)


def opendocument(
    kind: str, body: str, title: str = "", encrypted: bool = False, parts: Mapping[str, str] | None = None
) -> bytes:
    """A file of kind `text`, `presentation` or `spreadsheet` with the XML `body`, and more `parts` by their names."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{what}:1.0"'
        for name, what in {"office": "office", "text": "text", "table": "table", "draw": "drawing"}.items()
    )
    entry = "<m:encryption-data/>" if encrypted else ""
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="urn:m"><m:file-entry>{entry}</m:file-entry></m:manifest>',
            "content.xml": "\0\1" * 20
            if encrypted
            else f"<office:document-content {spaces}><office:body><office:{kind}>{body}</office:{kind}></office:body>"
            "</office:document-content>",
            "meta.xml": f'<meta xmlns:dc="urn:dc"><dc:title>{title}</dc:title></meta>',
            **(parts or {}),
        }
    )


def rich(paragraphs: str, title: str = "") -> bytes:
    """Rich text of a Western program; `paragraphs` is RTF."""
    return (rf"{{\rtf1\ansi\ansicpg1252{{\fonttbl{{\f0 Arial;}}}}{{\info{{\title {title}}}}}\f0 {paragraphs}}}").encode(
        "ascii"
    )


def notebook(cells: Sequence[tuple[str, str]]) -> bytes:
    """Cells as (type, source)."""
    listed = [{"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": []} for kind, source in cells]
    return json.dumps({"cells": listed, "nbformat": 4}).encode()
