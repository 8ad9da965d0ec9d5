"""Reader of Outlook's mails (.msg): a compound file with a stream for each property."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from common.library.readers.content import Content, Section, Unreadable
from common.library.readers.encodings import decoded, decoded_as
from common.library.readers.mail import page_of_mail, richest
from common.library.readers.plain import read_rtf
from common.library.readers.within import Inner, read_within

_PROPERTIES: Final = "__properties_version1.0"
_HEAD: Final = {"": 32, "embedded": 24, "part": 8}  # bytes before a storage's properties
_SUBJECT, _BODY, _HTML, _RTF = "0037", "1000", "1013", "1009"
_SENDER, _ADDRESSES, _TO, _CC = "0C1A", ("5D01", "0C1F"), "0E04", "0E03"
_SENT: Final = ("0039", "0E06")
_PAGE, _PAGE_OF_HTML = "3FFD", "3FDE"
_ISO: Final = 28590  # code page before ISO 8859-1
_ENCODINGS: Final = {65001: "utf-8", 20127: "ascii", 20866: "koi8-r", 50220: "iso-2022-jp", 51932: "euc-jp"}
_NAMES, _CONTENT, _SHOWN_AS = ("3707", "3704", "3001"), "3701", "3712"
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".bmp")  # of the text, if it names them
_EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)
_MOST_RTF: Final = 50_000_000  # bytes
_WINDOW: Final = 4096  # bytes of the dictionary of compressed rich text
_PRESET: Final = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor "
    rb"MS Sans SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)


def read_msg(content: bytes) -> Content:
    """A message with its main headers, then its attachments. Raises `Unreadable`."""
    import olefile

    with olefile.OleFileIO(content) as file:
        if not file.exists(_PROPERTIES):
            raise Unreadable("it is not a mail of Outlook")
        return _Message(file, [], "").read()


class _Message:
    def __init__(self, file: Any, path: list[str], kind: str) -> None:
        self._file = file
        self._path = path
        self._fixed = dict(_fixed(self._stream(_PROPERTIES)[_HEAD[kind] :]))
        pages = [_encoding(self._fixed.get(name, 0) & 0xFFFFFFFF) for name in (_PAGE, _PAGE_OF_HTML)]
        self._narrow, self._html = pages[0] or pages[1], pages[1] or pages[0]

    def read(self) -> Content:
        subject = self._text(_SUBJECT)
        address = next(filter(None, map(self._text, _ADDRESSES)), "")
        sender = self._text(_SENDER)
        stated = {
            "From": f"{sender} <{address}>" if sender and address and sender != address else sender or address,
            "To": self._text(_TO),
            "Cc": self._text(_CC),
            "Date": self._date(),
            "Subject": subject,
        }
        headers = [f"{name}: {said}" for name, said in stated.items() if said]
        body = self._body()
        attached = read_within(self._attachments())
        if not attached.sections and not body.strip():
            raise Unreadable("; ".join(["it has headers and no words", *attached.remarks]))
        text = Section("\n".join([*headers, "", body.strip("\r\n\0")]))
        return Content((text, *attached.sections), subject, attached.remarks)

    def _body(self) -> str:
        plain, page, rich = self._text(_BODY), self._stream(f"__substg1.0_{_HTML}0102"), ""
        packed = self._stream(f"__substg1.0_{_RTF}0102")
        if packed and not plain.strip() and not page:
            rich = read_rtf(unpacked_rtf(packed)).sections[0].text
        html = page_of_mail(page, self._html) if page else ""
        return next(iter(richest([[text] for text in (plain, rich, html) if text])), "")

    def _attachments(self) -> Iterator[tuple[str, Inner]]:
        for name in sorted({path[len(self._path)] for path in self._file.listdir() if self._is_attachment(path)}):
            part = _Message(self._file, [*self._path, name], "part")
            title = next(filter(None, map(part._text, _NAMES)), "without a name")
            within = [*part._path, f"__substg1.0_{_CONTENT}000D"]
            if self._file.exists([*within, _PROPERTIES]):
                yield title, _Message(self._file, within, "embedded").read
            elif not (part._text(_SHOWN_AS) and title.lower().endswith(_PICTURES)):
                yield title, part._stream(f"__substg1.0_{_CONTENT}0102")

    def _is_attachment(self, path: list[str]) -> bool:
        own = len(self._path)
        return len(path) > own and path[:own] == self._path and path[own].startswith("__attach_version1.0_")

    def _date(self) -> str:
        moment = next((self._fixed[name] for name in _SENT if name in self._fixed), 0)
        try:
            return f"{_EPOCH + timedelta(microseconds=moment // 10):%Y-%m-%d %H:%M} (UTC)" if moment else ""
        except OverflowError:
            return ""

    def _text(self, name: str) -> str:
        wide = self._stream(f"__substg1.0_{name}001F")
        if wide:
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        narrow = self._stream(f"__substg1.0_{name}001E").rstrip(b"\0")
        return decoded_as(narrow, self._narrow) if self._narrow else decoded(narrow)

    def _stream(self, name: str) -> bytes:
        path = [*self._path, name]
        return bytes(self._file.openstream(path).read()) if self._file.exists(path) else b""


def _fixed(entries: bytes) -> Iterator[tuple[str, int]]:
    for at in range(0, len(entries) - 15, 16):
        tag = int.from_bytes(entries[at : at + 4], "little")
        yield f"{tag >> 16:04X}", int.from_bytes(entries[at + 8 : at + 16], "little")


def _encoding(page: int) -> str:
    """Name of a Windows code page; empty if it says nothing."""
    if page in _ENCODINGS or not page:
        return _ENCODINGS.get(page, "")
    return f"iso8859-{page - _ISO}" if 0 < page - _ISO <= 16 else f"cp{page}"


def unpacked_rtf(packed: bytes) -> bytes:
    """Rich text as Outlook compresses it (MS-OXRTFCP). Raises `Unreadable`."""
    size, kind = int.from_bytes(packed[4:8], "little"), packed[8:12]
    if kind == b"MELA":
        return packed[16 : 16 + size]
    if kind != b"LZFu" or size > _MOST_RTF:
        raise Unreadable("its text can't be unpacked")
    window = bytearray(_PRESET.ljust(_WINDOW, b" "))
    at, found = 16, bytearray()

    def put(byte: int) -> None:
        window[(len(_PRESET) + len(found)) % _WINDOW] = byte
        found.append(byte)

    while at < len(packed) and len(found) < size:
        flags, at = packed[at], at + 1
        for bit in range(8):
            if at >= len(packed):
                break
            if not flags >> bit & 1:
                put(packed[at])
                at += 1
                continue
            pair, at = int.from_bytes(packed[at : at + 2], "big"), at + 2
            if pair >> 4 == (len(_PRESET) + len(found)) % _WINDOW:  # the end
                return bytes(found[:size])
            for step in range((pair & 15) + 2):
                put(window[((pair >> 4) + step) % _WINDOW])
    return bytes(found[:size])
