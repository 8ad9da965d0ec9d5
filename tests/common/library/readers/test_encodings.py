"""Files of text in the encodings that people have: read as they were meant, or refused, and UTF-8 never touched."""

from __future__ import annotations

import random
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.library.documents import File, read_content
from common.library.readers.content import Unreadable
from common.library.readers.encodings import decoded, decoded_as, text_and_remarks
from common.library.readers.isolated import IsolatedReader
from common.library.readers.markup import read_html
from tests.common.library.readers import files

GERMAN = "Müller läßt grüßen: Der Schlüssel liegt unter der Fußmatte, die Tür klemmt.\n"
FRENCH = "Le café est fermé à Noël, déjà réservé pour l'été.\n"
RUSSIAN = "Ключ лежит под ковриком. Молоко в холодильнике, хлеб на столе.\n"
JAPANESE = "鍵は玄関マットの下にあります。\n牛乳は冷蔵庫に入っています。\n"
SIGN = "25 °C\n"
NOTE = "Grüße vom Zahnarzt, Termin am 3. März.\n"  # of 39 bytes
POLISH = "Wczoraj byliśmy na spacerze w lesie, żeby zjeść świeże jagody. Później poszedłem po bułki i mleko.\n"
CZECH = "Příští týden přijede babička, ať má čistý ručník. Klíč leží pod květináčem a šálky jsou v myčce.\n"
HUNGARIAN = "A kulcs a virágcserép alatt van. Jövő kedden jön a szerelő, a hűtőt előtte ürítsd ki, légy szíves.\n"
SPANISH = "¿Dónde está la niña? Mañana por la mañana llega el señor Núñez, ¡qué alegría! El avión sale a las ocho.\n"
MAIL = "From: ann@example.org\n\nDear all,\nthe boat leaves.\nAnn\n"
NOTEBOOK = files.notebook([("markdown", "# Load\r\nfirst\r\nthen")])
TEXTS = {"german": GERMAN, "french": FRENCH, "russian": RUSSIAN, "japanese": JAPANESE, "note": NOTE, "sign": SIGN}

GUESSED_AS = "its encoding was guessed: {}; --encoding sets another one"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_unicode(text: str, encoding: str) -> None:
    assert decoded(text.encode(encoding)) == text
    assert decoded(("\ufeff" * (encoding == "utf-16-be") + text).encode(encoding)) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "latin-1"),
        (FRENCH, "latin-1"),
        (NOTE, "latin-1"),
        ("Käse\n", "latin-1"),
        ("25 °C\n", "latin-1"),
        ("price £20 ± 5\n", "latin-1"),
        ("Não há pão, só maçãs.\n", "latin-1"),
        ("“smart” quotes – and a € sign\n", "cp1252"),
        (RUSSIAN, "cp1251"),
        ("Позвонить врачу завтра утром\n", "cp1251"),
        (RUSSIAN, "koi8-r"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (POLISH, "cp1250"),
        (POLISH, "iso8859-2"),
        ("Kup mąkę i masło.\n", "cp1250"),
        (CZECH, "cp1250"),
        (CZECH, "iso8859-2"),
        ("Zítra přijít dřív.\n", "cp1250"),
        ("Schůzka s „Petrem“ – příští čtvrtek\n", "cp1250"),
        (HUNGARIAN, "cp1250"),
        (HUNGARIAN, "iso8859-2"),
        ("Jövő héten fűtésszerelő jön.\n", "cp1250"),
        (SPANISH, "cp1252"),
        ("¿Mañana? ¿El señor Núñez?\n", "latin-1"),
        ("Il caffè è già più freddo, perché la città è lì.\n", "latin-1"),
        ("Smørrebrød på søndag, og rødgrød med fløde.\n", "latin-1"),
        ("Åke köper två kilo äpplen på lördag.\n", "latin-1"),
        ("The tank holds 100 m³, the shed 20 m², £30 for 1½ hours, £15 for the 2ª.\n", "latin-1"),
        (GERMAN + FRENCH + SPANISH, "cp1252"),
        ("„Müller“ – Straße 5, 3½ Zimmer, 800 €\n", "cp1252"),
        ("À bientôt… c\u2019était déjà l\u2019été, où êtes-vous ? Le cœur, la sœur.\n", "cp1252"),
    ],
    ids=lambda value: f"{len(value)}-{value.split()[0]}".encode("ascii", "ignore").decode(),
)
@pytest.mark.parametrize("before", [0, 100_000], ids=["alone", "after ASCII"])
def test_older_encodings(text: str, encoding: str, before: int) -> None:
    plain = "Nothing special here.\n" * (before // 22)
    assert decoded((plain + text).encode(encoding)) == plain + text


@pytest.mark.parametrize(
    "text",
    [
        *("圖書館的書架在三樓西側。\n", "今天下午三點開會。\n", "請在星期五以前把報告交給王先生。", "台北市信義區\n"),
        "Meeting: 明天上午九點\n",
    ],
)
def test_a_line_of_big5_is_none_of_half_width_kana(text: str) -> None:
    assert text_and_remarks(text.encode("big5")) == (text, (GUESSED_AS.format("big5"),))


@pytest.mark.parametrize("text", ["ｱｲｳｴｵ ｶｷｸ\n", "ﾆﾎﾝｺﾞ ﾉ ﾃｷｽﾄ", "部品番号は棚にあります。"])
def test_a_line_of_kana_stays_one(text: str) -> None:
    assert text_and_remarks(text.encode("cp932")) == (text, (GUESSED_AS.format("cp932"),))


def test_a_character_across_the_end_of_what_is_guessed_from() -> None:
    """In one line, at each of its bytes."""
    for shift in range(3):
        text = "a" * shift + " 会議は月曜日です" * 6000
        assert decoded(text.encode("shift_jis")) == text


def test_a_long_line_of_ascii_in_an_old_encoding() -> None:
    """As scripts are that programs write, which the daemon itself reads. A pattern that goes back took minutes."""
    began = time.process_time()
    assert decoded(b"/*! \xa9 2014 */\n" + b"var a=1;" * 12_500).startswith("/*! © 2014")
    assert time.process_time() - began < 5


@given(st.text())
def test_utf_8_is_never_taken_for_anything_else(text: str) -> None:
    content = text.encode()
    if not content.startswith((b"\xff", b"\xfe")) and "\0" not in text:
        assert decoded(content) == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a\0b", "it contains NUL bytes"),
        (b"\0\xff" * 50, "it contains NUL bytes"),
        (b"GIF\0\1\2", "it contains NUL bytes"),
        (b"\1\0" * 100, "it contains NUL bytes"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1" + bytes(range(256)), "it contains NUL bytes"),
        (b"\x89\x1f\x02words", "it contains control characters"),
        (b"\xff\xfeab\x00", "UTF-16"),
        (b"\xff\xfe\0\0abcd", "UTF-32"),
        (b"\xef\xbb\xbfa\0b", "it contains NUL bytes"),
    ],
    ids=[
        *("NUL", "pairs", "few bytes", "numbers", "picture", "controls", "half a character", "no character"),
        "NUL behind a mark",
    ],
)
def test_what_is_not_text(content: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        decoded(content)


def test_noise_is_not_text() -> None:
    draw = random.Random(7)
    for size in (200, 999, 5_000):
        for _ in range(20):
            with pytest.raises(Unreadable, match="it is not text"):
                decoded(draw.randbytes(size))


@pytest.mark.parametrize("text", [GERMAN, NOTE, RUSSIAN, JAPANESE], ids=["german", "note", "russian", "japanese"])
def test_utf_8_that_was_cut_within_a_character(text: str) -> None:
    last = max(place for place, character in enumerate(text) if ord(character) > 127)
    whole, cut = text[:last], text[last].encode()
    for size in range(1, len(cut)):
        assert decoded(whole.encode() + cut[:size]) == whole + "\ufffd"


@pytest.mark.parametrize("text", [GERMAN, RUSSIAN, JAPANESE], ids=["german", "russian", "japanese"])
def test_utf_8_with_a_damaged_byte(text: str) -> None:
    assert decoded((text + "caf").encode() + b"\xe9 open\n" + text.encode()) == f"{text}caf\ufffd open\n{text}"


@pytest.mark.parametrize(
    ("said", "encoding", "text"),
    [
        ("shift_jis", "cp932", "①髙橋"),
        ("gb2312", "gbk", "朱镕基总理"),
        ("gbk", "gb18030", "朱镕基总理㐀"),
        ("euc-kr", "cp949", "똠방각하"),
        ("big5", "big5hkscs", "碁 x"),
        ("iso-8859-1", "cp1252", "“Grüße” – 20 €"),
        ("iso-8859-9", "cp1254", "“Çağ”"),
        ("us-ascii", "cp1252", "Grüße €"),
        ("us-ascii", "utf-8", "Grüße"),
        ("windows-1252", "utf-8", "He said “hello”"),
        ("utf-16", "utf-8", "Grüße"),
        ("", "utf-8", "Grüße"),
        ("x-none", "cp1252", "Åsa åker till Malmö på lördag."),
        ("", "cp1252", "Não há pão, só maçãs."),
        ("utf-8", "latin-1", "Grüße aus Köln"),
        ("iso-2022-jp", "iso-2022-jp", JAPANESE.strip()),
        ("utf-7", "utf-7", "Grüße"),
        ("utf-16-le", "utf-16-le", "plain words"),
        ("unicode_escape", "utf-8", r"C:\new"),
        ("iso-8859-8-i", "iso8859-8", "שלום חבר"),
        ("windows-874", "cp874", "สวัสดีครับ"),
        ("iso-8859-11", "cp874", "“สวัสดีครับ”"),
        ("x-cp1257", "cp1257", "Ķirši “ūdenī”"),
        ("x-cp1258", "cp1258", "Đưa đá"),
        ("iso88594", "iso8859-4", "Ķirši ūdenī"),
        ("X-Mac-Cyrillic", "mac_cyrillic", "Привет всем"),
        ("x-sjis", "cp932", "①髙橋"),
        ("x-gbk", "gb18030", "朱镕基总理㐀"),
    ],
)
def test_what_a_page_says_is_believed_where_it_is_possible(said: str, encoding: str, text: str) -> None:
    assert decoded_as(text.encode(encoding), said) == text
    if said and not encoding.startswith("utf-16"):
        page = f'<html><head><meta charset="{said}"></head><body><p>{text}</p><p>end</p></body></html>'
        assert read_html(page.encode(encoding)).sections[0].text == f"{text}\n\nend"


@pytest.mark.parametrize("said", ["utf-8", "iso-8859-1", ""])
def test_a_stray_nul_byte_costs_nothing_on_a_page(said: str) -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        assert decoded_as(mark + b"The code\0 is 4711.", said) == "The code is 4711."


def test_damages_behind_a_mark() -> None:
    assert decoded(b"\xef\xbb\xbfcaf\xe9 M\xc3\xbcller") == "caf\ufffd Müller"


def test_a_byte_that_is_none_costs_one_character() -> None:
    assert decoded_as(b"caf\xe9 \x81 tea", "windows-1252") == "café \ufffd tea"
    assert decoded_as("Köln, Grüße ".encode() + b"\xff tea", "utf-8") == "Köln, Grüße \ufffd tea"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("suffix", [".txt", ".py", ".md"])
def test_line_ends_of_other_systems(suffix: str, end: str) -> None:
    content = "---\ntitle: Tea\n---\n# One\ntwo\n".replace("\n", end).encode()
    found = read_content(File(suffix, content, "", 0, 0), IsolatedReader())
    assert found.sections[0].text == "---\ntitle: Tea\n---\n# One\ntwo\n"
    assert found.title == ("Tea" if suffix == ".md" else "")


@pytest.mark.parametrize(
    ("suffix", "content", "text"),
    [
        (".eml", MAIL.replace("\n", "\r\n").encode(), MAIL.rstrip()),
        (".ipynb", NOTEBOOK, "# Load\nfirst\nthen"),
    ],
    ids=[".eml", ".ipynb"],
)
def test_line_ends_within_other_formats(suffix: str, content: bytes, text: str) -> None:
    with closing(IsolatedReader()) as reader:
        assert read_content(File(suffix, content, "", 0, 0), reader).sections[0].text == text
