"""Decodes files without a stated encoding.

UTF-8 is recognised even with some damaged bytes. Other encodings are guessed: a note of forty bytes fits many, and the
most common one wins. Pages and mails state their encoding and are read as browsers and mail programs do.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Final
from unicodedata import category

from common.library.readers.content import Unreadable
from common.library.readers.latin import central_european

# Longer marks first, since shorter ones are their prefixes.
_MARKED: Final = {
    **dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    **dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
    codecs.BOM_UTF8: "utf-8-sig",
}
# Encodings of old programs, likeliest first. Latin-1 is cp1252 without the quotation marks.
_NARROW: Final = (
    *("cp1252", "cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "cp949", "big5", "cp1250", "cp1253"),
    *("cp1255", "cp1256"),
)
# Supersets that programs use in place of the stated encoding: files contain their extra characters.
_WIDER: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "iso8859-11": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
# Names known to browsers but not to Python.
_ALSO_CALLED: Final = {
    "cp1252": "iso88591 x-cp1252",
    "cp1250": "x-cp1250",
    "cp1251": "x-cp1251",
    "cp1253": "x-cp1253",
    "cp1254": "iso88599 x-cp1254",
    "cp1255": "x-cp1255",
    "cp1256": "x-cp1256",
    "cp1257": "x-cp1257",
    "cp1258": "x-cp1258",
    "cp874": "windows-874 dos-874 iso885911",
    "cp932": "x-sjis windows-31j",
    "cp949": "windows-949 iso-ir-149 cseuckr csksc56011987 ksc_5601 ks_c_5601-1989",
    "big5hkscs": "cn-big5 x-x-big5",
    "euc_jp": "x-euc-jp cseucpkdfmtjapanese",
    "gb18030": "x-gbk csgb2312 gb_2312 gb_2312-80",
    "iso8859-2": "iso88592",
    "iso8859-3": "iso88593",
    "iso8859-4": "iso88594",
    "iso8859-5": "iso88595",
    "iso8859-6": "iso88596 iso-8859-6-e iso-8859-6-i csiso88596e csiso88596i",
    "iso8859-7": "iso88597 sun_eu_greek",
    "iso8859-8": "iso88598 iso-8859-8-e iso-8859-8-i csiso88598e csiso88598i logical visual",
    "iso8859-10": "iso885910",
    "iso8859-13": "iso885913",
    "iso8859-14": "iso885914",
    "iso8859-15": "iso885915 csisolatin9",
    "koi8-r": "koi koi8",
    "koi8-u": "koi8-ru",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "mac-roman": "x-mac-roman mac csmacintosh",
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
}
_CALLED: Final = {name: encoding for encoding, names in _ALSO_CALLED.items() for name in names.split()}
_NAMED: Final = ("cp", "iso", "koi8", "mac", "ascii", "gb", "hz", "big5", "shift", "euc", "johab", "tis", "utf-7")
_OF_ASCII_BYTES: Final = ("iso2022", "hz", "utf-7")  # prefixes of encodings with bytes that are also valid UTF-8
_STRAY: Final = 16  # bytes per NUL, at least, in text other than UTF-16
_WHOLE: Final = 4  # non-ASCII characters per invalid byte in damaged UTF-8
_ALONE: Final = 1.5  # average run of bytes beyond ASCII
_SHORT: Final = 32  # too few characters to measure a text's disorder
_FEWEST: Final = 5  # least number of characters to recognise text of several alphabets
_ONE_ALPHABET: Final = 2  # different upper bytes of a short text: ASCII's, and one of its letters or signs
_NO_TEXT: Final = frozenset({"Cn", "Co"})  # unassigned, private
_AS_GOOD: Final = 0.05  # difference in disorder that is not significant
_CLEARLY: Final = 0.1  # difference in likeness to a language that is
_SAMPLE: Final = 2**16  # bytes used for guessing
_CONTROLS: Final = "\x00-\x08\x0e-\x1a\x1c-\x1f\x7f"
_CONTROL_BYTES: Final = re.compile(f"[{_CONTROLS}]".encode())
_CONTROL_CHARACTERS: Final = re.compile(f"[{_CONTROLS}\x80-\x9f\ufffd-\uffff]")
_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]+")
_NOT_LATIN: Final = re.compile(rb"[\x80-\x9f]")  # Latin-1 has nothing there
_BIG5_CHARACTER: Final = re.compile(rb"[\xa1-\xc6][\x40-\x7e\xa1-\xfe]")
_BIG5: Final = re.compile(rb"(?:[\x00-\x7f]|" + _BIG5_CHARACTER.pattern + rb")+")
_ENDS_IN_ASCII: Final = 0.25  # of characters
_WITH_NUL: Final = "it is not text: it contains NUL bytes"
_ALWAYS_CHARACTERS: Final = (b"\n", b" ", b",", b".")  # never part of another character


def decoded(content: bytes) -> str:
    """Text of a plain text file. Raises `Unreadable`."""
    return text_and_remarks(content)[0]


def text_and_remarks(content: bytes) -> tuple[str, tuple[str, ...]]:
    """Text of a plain text file, with a remark if its encoding was guessed.

    Raises `Unreadable`.
    """
    marked = _marked(content)
    if marked is not None:
        if "\0" in marked:
            raise Unreadable(_WITH_NUL)
        return marked, ()
    if b"\0" in content:
        return _wide(content), ()
    try:
        return content.decode(), ()
    except UnicodeDecodeError:
        damaged = _damaged(content)
    if damaged:
        return damaged, ()
    text, encoding = _narrow(content)
    return text, (f"its encoding was guessed: {encoding}; --encoding sets another one",)


def in_utf8(content: bytes, encoding: str) -> bytes:
    """Recodes a file from a named encoding, unless a byte order mark contradicts.

    Raises `Unreadable`.
    """
    return content if _marked(content) is not None else content.decode(encoding, "replace").encode()


def is_of_text(encoding: str) -> bool:
    """Whether an encoding of this name is for text."""
    try:
        return codecs.lookup(encoding).name.startswith((*_NAMED, "utf"))
    except (LookupError, ValueError):
        return False


def decoded_as(content: bytes, said: str) -> str:
    """Text of a file with a stated encoding: maybe empty, unknown or wrong.

    Raises `Unreadable`.
    """
    marked = _marked(content)
    if marked is not None:
        return marked.replace("\0", "")  # invisible
    if content.count(0) * _STRAY > len(content):
        return decoded(content)
    content = content.replace(b"\0", b"")
    try:
        name = codecs.lookup(_CALLED.get(said.strip().lower(), said)).name
    except (LookupError, ValueError):  # ValueError: a NUL in the name
        return decoded(content)
    if not name.startswith(_OF_ASCII_BYTES):
        try:
            return content.decode()
        except UnicodeDecodeError:
            pass
    if name.startswith("utf-8"):
        return _damaged(content, whole=1) or decoded(content)
    if not name.startswith(_NAMED):  # not a text encoding
        return decoded(content)
    return content.decode(_WIDER.get(name, name), "replace")


def _marked(content: bytes) -> str | None:
    return next((_decoded(content, encoding) for mark, encoding in _MARKED.items() if content.startswith(mark)), None)


def _decoded(content: bytes, encoding: str) -> str:
    try:
        # The mark proves UTF-8; damage after it affects single characters.
        return content.decode(encoding, "replace" if encoding == "utf-8-sig" else "strict")
    except UnicodeDecodeError as error:
        name = encoding.removesuffix("-sig").upper()
        raise Unreadable(f"it is not {name} text: byte {error.start} can't be decoded") from error


def _damaged(content: bytes, whole: int = _WHOLE) -> str | None:
    """Text of UTF-8 with a cut end or some invalid bytes; else None."""
    text = content.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = len(text) - len(text.encode("ascii", "ignore")) - bad
    cut = bad == 1 and text.endswith("\ufffd")
    return text if good >= (1 if cut else whole * bad) and not _CONTROL_BYTES.search(content) else None


def _wide(content: bytes) -> str:
    """Decodes UTF-16 without a mark: blanks and line breaks have a NUL upper byte."""
    first, last = content[::2], content[1::2]
    encoding, upper = ("utf-16-le", last) if last.count(0) > first.count(0) else ("utf-16-be", first)
    if len(content) % 2 == 0:
        text = content.decode(encoding, "replace")
        if not _CONTROL_CHARACTERS.search(text) and _is_likely(content[:_SAMPLE], encoding, upper, text[:_SAMPLE]):
            return text
    raise Unreadable(_WITH_NUL)


def _is_likely(sample: bytes, encoding: str, upper: bytes, text: str) -> bool:
    if any(category(character) in _NO_TEXT for character in text):
        return False
    if len(upper) < _SHORT and len(set(upper)) <= _ONE_ALPHABET:
        return True
    return len(upper) >= _FEWEST and _likeliest(sample, (encoding.replace("-", "_"),)) is not None


def _narrow(content: bytes) -> tuple[str, str]:
    if _CONTROL_BYTES.search(content):
        raise Unreadable("it is not text: it contains control characters, and is not UTF-8")
    sample = _sample(content)
    found = _latin(sample) or _likeliest(sample, _NARROW)
    if found == "cp932" and _is_big5(sample):
        found = "big5"
    if found is None:
        raise Unreadable("it is not text, or its encoding is not known: save it as UTF-8")
    return content.decode(found, "replace"), found  # the sample was right; a damaged byte later costs one character


def _is_big5(sample: bytes) -> bool:
    """Whether bytes of half-width kana are frequent characters of Big5 instead.

    About half of these end with an ASCII byte, unlike a row of kana.
    """
    if _BIG5.fullmatch(sample) is None:
        return False
    characters: list[bytes] = _BIG5_CHARACTER.findall(sample)
    return sum(character[1] < 0x80 for character in characters) >= _ENDS_IN_ASCII * len(characters)


def _sample(content: bytes) -> bytes:
    """Keeps lines with bytes beyond ASCII: encodings differ in these."""
    lines, size = list[bytes](), 0
    for line in content.splitlines(keepends=True):
        if line.isascii():
            continue
        lines.append(line)
        size += len(line)
        if size > _SAMPLE:
            break
    sample = b"".join(lines)
    if len(sample) <= _SAMPLE:
        return sample
    return sample[: max(sample.rfind(each, 0, _SAMPLE) for each in _ALWAYS_CHARACTERS)]


def _latin(sample: bytes) -> str | None:
    """Encoding of a text with isolated letters beyond ASCII, such as accents.

    None for text in other alphabets, and for bytes that are no letters in Latin-1.
    """
    runs = _BEYOND_ASCII.findall(sample)
    if sum(map(len, runs)) >= _ALONE * len(runs):
        return None
    return central_european(sample) or (None if _NOT_LATIN.search(sample) else "cp1252")


def _likeliest(sample: bytes, among: Sequence[str]) -> str | None:
    from charset_normalizer import from_bytes  # hardly any document needs it

    matches = from_bytes(sample, cp_isolation=list(among))
    fitting = [(encoding, match) for match in matches for encoding in match.could_be_from_charset if encoding in among]
    if not fitting:
        return None
    least = min(match.chaos for _, match in fitting) + _AS_GOOD
    ordered = [(encoding, match) for encoding, match in fitting if match.chaos <= least]
    most = max(match.coherence for _, match in ordered) - _CLEARLY
    return min((encoding for encoding, match in ordered if match.coherence >= most), key=among.index)
