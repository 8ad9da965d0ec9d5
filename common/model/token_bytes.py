"""The bytes behind every token id, for the two families of decoders that language models use."""

from __future__ import annotations

import codecs
import re
from typing import Any

from common.model.errors import ModelError

_WORD_START = "▁"  # sentencepiece writes a space so
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """Table `token id -> bytes`, and whether the text's first space is not part of it.

    Two families: byte-level BPE (GPT-2, OPT, Qwen, Llama 3), whose tokens are bytes written as printable
    characters, and sentencepiece-like ones (Llama 2, Mistral, Gemma), whose tokens are text with U+2581 for a
    space and `<0xNN>` for a single byte. With bytes in hand, decoding needs no look at earlier tokens.
    """

    def __init__(self, description: dict[str, Any], vocabulary: dict[str, int], size: int) -> None:
        """Read the parsed tokenizer.json. Raises `ModelError` for a decoder of neither family."""
        parts = _decoder_parts(description["decoder"])
        kinds = {part["type"] for part in parts}
        added = {entry["id"]: entry["content"] for entry in description["added_tokens"]}
        if kinds == {"ByteLevel"}:
            letters = _byte_letters()
            self.strip = False
        elif kinds and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
            letters = None
            self.strip = any(_drops_first_space(part) for part in parts)
        else:
            found = ", ".join(sorted(kinds)) or "none"
            raise ModelError(f"tokenizer decoder not supported (found: {found}); byte-level BPE and sentencepiece are")
        self._table = [b""] * size
        for token, token_id in vocabulary.items():
            if token_id in added:
                self._table[token_id] = added[token_id].encode()
            elif letters is not None:
                self._table[token_id] = _byte_level(token, letters)
            else:
                self._table[token_id] = _sentencepiece(token)

    def __getitem__(self, token: int) -> bytes:
        return self._table[token]

    def text_decoder(self) -> TextDecoder:
        """A fresh decoder for the bytes of one text."""
        return TextDecoder(self.strip)


class TextDecoder:
    """UTF-8 decoding in pieces; invalid bytes become U+FFFD."""

    def __init__(self, strip_first_space: bool) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = strip_first_space

    def push(self, data: bytes) -> str:
        """Characters that are complete."""
        return self._first(self._utf8.decode(data))

    def finish(self) -> str:
        """U+FFFD if a character is incomplete."""
        return self._first(self._utf8.decode(b"", True))

    def _first(self, text: str) -> str:
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text


def _decoder_parts(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _drops_first_space(part: dict[str, Any]) -> bool:
    if part["type"] == "Strip":
        return bool(part["content"] == " " and part["start"] > 0)
    return bool(part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")


def _byte_letters() -> dict[int, int]:
    """Translation from the characters that byte-level BPE writes to the bytes' values.

    It writes a printable byte as itself and the others as characters from U+0100 on; the unprintable
    characters themselves therefore stand for no byte, and are sent where Latin-1 can't encode them.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [value for value in range(256) if value not in printable]
    substitutes = {0x100 + index: value for index, value in enumerate(others)}
    return dict.fromkeys(others, ord(_WORD_START)) | substitutes


def _byte_level(token: str, letters: dict[int, int]) -> bytes:
    try:
        return token.translate(letters).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _sentencepiece(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    if match:
        return bytes([int(match[1], 16)])
    return token.replace(_WORD_START, " ").encode()
