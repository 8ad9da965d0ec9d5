"""Documents that a test makes itself, because of their size or of what is wrong with them."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Sequence
from zipfile import ZIP_DEFLATED, ZipFile

from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject, StreamObject


def page_of(content: bytes) -> bytes:
    """A PDF of one page with this content, and a font named F1."""
    writer = PdfWriter()
    page = writer.add_blank_page(600, 800)
    stream = StreamObject()
    stream[NameObject("/Filter")] = NameObject("/FlateDecode")
    stream._data = zlib.compress(content)
    page[NameObject("/Contents")] = writer._add_object(stream)
    named = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(name): NameObject(value) for name, value in named.items()})
    fonts = DictionaryObject({NameObject("/F1"): font})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def page_with_picture(side: int) -> bytes:
    """A PDF of one page with a black picture of `side` by `side` pixels."""
    writer = PdfWriter()
    page = writer.add_blank_page(600, 800)
    picture = StreamObject()
    stated = {"/Subtype": "/Image", "/ColorSpace": "/DeviceGray", "/Filter": "/FlateDecode"}
    picture.update({NameObject(key): NameObject(value) for key, value in stated.items()})
    picture.update({NameObject(key): NumberObject(side) for key in ("/Width", "/Height")})
    picture[NameObject("/BitsPerComponent")] = NumberObject(8)
    packer, black = zlib.compressobj(1), bytes(2**20)
    picture._data = b"".join(packer.compress(black) for _ in range(side * side // 2**20 + 1)) + packer.flush()
    pictures = DictionaryObject({NameObject("/P"): writer._add_object(picture)})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/XObject"): pictures})
    stream = StreamObject()
    stream._data = b"q 600 0 0 800 0 0 cm /P Do Q"
    page[NameObject("/Contents")] = writer._add_object(stream)
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


def archive(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return buffer.getvalue()


def notebook(cells: Sequence[tuple[str, str]]) -> bytes:
    """Cells as (type, source)."""
    listed = [{"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": []} for kind, source in cells]
    return json.dumps({"cells": listed, "nbformat": 4}).encode()


def sheet(rows: str) -> bytes:
    """An OpenDocument workbook of one sheet with the XML of its rows."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table")
    )
    body = f"<office:body><office:spreadsheet><table:table>{rows}</table:table></office:spreadsheet></office:body>"
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": f"<office:document-content {spaces}>{body}</office:document-content>",
        }
    )
