"""Mails of Outlook are read as other mails are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from common.library.readers.content import Content, Unreadable
from common.library.readers.outlook import _PRESET, unpacked_rtf
from tests.common.library.readers.files import compound
from tests.common.library.readers.test_golden import read

HTML = (
    "<p>Order <b>KX-88123</b></p><table><tr><th>Item</th><th>Price</th></tr><tr><td>Kettle</td><td>31</td></tr></table>"
)


def properties(head: int, **values: int) -> bytes:
    entries = (
        bytes.fromhex("0300") + bytes.fromhex(tag[1:])[::-1] + bytes(4) + number.to_bytes(8, "little")
        for tag, number in values.items()
    )
    return bytes(head) + b"".join(entries)


def message(folder: str = "", head: int = 32, page: int = 0, date: int = 0, **texts: str | bytes) -> dict[str, bytes]:
    """The streams of a message; a text is of 8 bits where it is bytes."""
    fixed = {"p3FFD": page} | ({"p0039": date} if date else {})
    found = {f"{folder}__properties_version1.0": properties(head, **fixed)}
    for name, text in texts.items():
        kind = "0102" if name in ("p1013", "p1009", "p3701") else "001E" if isinstance(text, bytes) else "001F"
        found[f"{folder}__substg1.0_{name[1:]}{kind}"] = text if isinstance(text, bytes) else text.encode("utf-16-le")
    return found


def attached(number: int, name: str, content: bytes, **more: str | bytes) -> dict[str, bytes]:
    return message(f"__attach_version1.0_#{number:08X}/", 8, 0, 0, p3707=name, p3701=content, **more)


def text_of(streams: dict[str, bytes]) -> Content:
    return read(".msg", compound(streams))


SENT = int((datetime(2026, 3, 14, 9, 26, tzinfo=UTC) - datetime(1601, 1, 1, tzinfo=UTC)).total_seconds()) * 10**7


def test_headers_and_text() -> None:
    found = text_of(
        message(
            p0037="The quay",
            p1000="Berth seven is free.\r\n",
            p0C1A="Ann",
            p5D01="ann@example.org",
            p0E04="Bert; Cleo",
            date=SENT,
        )
    )
    assert found.title == "The quay"
    assert found.sections[0].text == (
        "From: Ann <ann@example.org>\nTo: Bert; Cleo\nDate: 2026-03-14 09:26 (UTC)\nSubject: The quay\n\n"
        "Berth seven is free."
    )


def test_the_richest_text_is_read() -> None:
    found = text_of(message(p0037="Receipt", p1000="See the page.", p1013=HTML.encode()))
    assert "KX-88123" in found.sections[0].text and "Item: Kettle; Price: 31" in found.sections[0].text


@pytest.mark.parametrize(("page", "encoding"), [(1251, "cp1251"), (28592, "iso8859-2"), (65001, "utf-8")])
def test_texts_of_8_bits(page: int, encoding: str) -> None:
    said = "Причал" if page == 1251 else "Přístav"
    found = text_of(message(p0037=said.encode(encoding), p1000=f"{said} 7".encode(encoding), page=page))
    assert (found.title, found.sections[0].text.split("\n")[-1]) == (said, f"{said} 7")


def test_a_text_that_is_rich_alone() -> None:
    """As the specification's example is compressed: literals, references into the preset, the end."""
    packed = bytes.fromhex(
        "2d0000002b0000004c5a467 5f1c5c7a703000a00726370673132354232 0af32068656c090020627705b06c647d0a800fa0".replace(
            " ", ""
        )
    )
    assert unpacked_rtf(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
    found = text_of(message(p0037="Greeting", p1009=packed))
    assert found.sections[0].text.endswith("hello world")


def test_rich_text_that_is_not_compressed_or_damaged() -> None:
    plain = b"{\\rtf1 The kettle is red.}"
    assert unpacked_rtf(bytes(4) + len(plain).to_bytes(4, "little") + b"MELA" + bytes(4) + plain) == plain
    with pytest.raises(Unreadable):
        unpacked_rtf(bytes(4) + (2**31).to_bytes(4, "little") + b"LZFu" + bytes(4))
    assert len(unpacked_rtf(bytes(4) + (1000).to_bytes(4, "little") + b"LZFu" + bytes(4) + b"\x01\x00")) <= 1000
    assert len(_PRESET) == 207


def test_attachments_are_read_or_named() -> None:
    found = text_of(
        message(p0037="Papers", p1000="As agreed.")
        | attached(0, "prices.csv", b"article;price\nlamp;12\nchair;99\n")
        | attached(1, "firmware.bin", b"\0" * 9000)
        | attached(2, "logo.png", b"\x89PNG", p3712="image001")
    )
    assert [section.place for section in found.sections] == ["", "attachment prices.csv"]
    assert "article: lamp; price: 12" in found.sections[1].text
    assert found.remarks == ("attachment firmware.bin: it is not read",)


def test_a_message_within_another_one() -> None:
    inner = "__attach_version1.0_#00000000/__substg1.0_3701000D/"
    found = text_of(
        message(p0037="Forwarded", p1000="See below.")
        | message("__attach_version1.0_#00000000/", head=8, p3001="The quay")
        | message(inner, head=24, p0037="The quay", p1000="Berth seven is free.")
    )
    assert [section.place for section in found.sections] == ["", "attachment The quay"]
    assert found.sections[1].text.endswith("Berth seven is free.")


def test_messages_within_each_other_end() -> None:
    streams, folder = message(p0037="0", p1000="outermost"), ""
    for number in range(8):
        folder += "__attach_version1.0_#00000000/"
        streams |= message(folder, head=8, p3001="inner")
        folder += "__substg1.0_3701000D/"
        streams |= message(folder, head=24, p0037=f"{number + 1}", p1000="inner")
    assert "it is nested too deeply to be read" in text_of(streams).remarks[0]


@pytest.mark.parametrize("streams", [{"Workbook": b"x"}, message(p0037="only a subject")])
def test_what_is_no_mail(streams: dict[str, bytes]) -> None:
    with pytest.raises(Unreadable, match=r"it is not a mail of Outlook|it has headers and no words"):
        text_of(streams)
