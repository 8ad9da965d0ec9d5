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


def compound(streams: dict[str, bytes]) -> bytes:
    """A compound file (OLE) with streams by path, such as `folder/name`."""
    size, free, end, of_fat = 512, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
    paths = sorted({"/".join(path.split("/")[:depth]) for path in streams for depth in range(1, path.count("/") + 2)})
    small = {path: data for path, data in streams.items() if 0 < len(data) < 4096}
    chains = list[list[int]]()  # of sectors, from 0
    body = bytearray()

    def put(data: bytes) -> int:
        if not data:
            return end
        start = len(body) // size
        body.extend(data + bytes(-len(data) % size))
        chains.append(list(range(start, len(body) // size)))
        return start

    mini, mini_fat, starts = bytearray(), list[int](), dict[str, int]()
    for path, data in small.items():
        starts[path] = len(mini) // 64
        mini += data + bytes(-len(data) % 64)
        mini_fat += [*range(starts[path] + 1, len(mini) // 64), end]
    for path, data in streams.items():
        if path not in small:
            starts[path] = put(data)
    start_of_mini = put(bytes(mini))
    start_of_mini_fat = put(b"".join(each.to_bytes(4, "little") for each in mini_fat))
    names = ["", *paths]
    entries = bytearray()
    for number, path in enumerate(names):
        children = [other for other in paths if other.rpartition("/")[0] == path and other != path]
        siblings = [other for other in paths if path and other.rpartition("/")[0] == path.rpartition("/")[0]]
        after = siblings[siblings.index(path) + 1 :] if path else []
        name = (path.rpartition("/")[2] or "Root Entry").encode("utf-16-le") + b"\0\0"
        kind = 5 if not number else 2 if path in streams else 1
        links = [free, names.index(after[0]) if after else free, names.index(children[0]) if children else free]
        start, length = (start_of_mini, len(mini)) if kind == 5 else (starts.get(path, 0), len(streams.get(path, b"")))
        entries += name.ljust(64, b"\0") + len(name).to_bytes(2, "little") + bytes([kind, 1])
        entries += b"".join(each.to_bytes(4, "little") for each in links) + bytes(36)
        entries += start.to_bytes(4, "little") + length.to_bytes(8, "little")
    start_of_entries = put(bytes(entries + bytes(-len(entries) % size)))
    sectors = len(body) // size
    tables = next(count for count in range(1, 109) if count * 128 >= sectors + count)
    fat = [free] * (tables * 128)
    for chain in chains:
        for sector, following in zip(chain, [*chain[1:], end], strict=True):
            fat[sector] = following
    fat[sectors : sectors + tables] = [of_fat] * tables
    body += b"".join(each.to_bytes(4, "little") for each in fat)
    head = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16) + bytes.fromhex("3e000300feff09000600") + bytes(6)
    count = -(-len(mini_fat) // 128)
    numbers = [0, tables, start_of_entries, 0, 4096, start_of_mini_fat if count else end, count, end, 0]
    numbers += [*range(sectors, sectors + tables), *[free] * (109 - tables)]
    return head + b"".join(each.to_bytes(4, "little") for each in numbers) + bytes(body)
