"""Cuts documents into chunks of limited tokens, at natural boundaries of the text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from semantic_text_splitter import MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

from common.library.errors import EmbedderError
from common.library.places import LONGEST_TITLE
from common.library.readers.content import Content, headings

DEFAULT_TOKENS = 128

# A tokenizer with an "unknown" token counts an unbroken run of any length as one token (WordPiece gives up on words
# over 100 characters). Ordinary text has 3 to 6 characters per token.
MOST_CHARACTERS_PER_TOKEN = 16

# The Markdown parser takes time quadratic in the depth of quotes and lists. Nobody nests this deep by hand.
_TOO_DEEP = re.compile(r"^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)])){24}|^[ \t]{64}[ \t]*[-*+>\d]", re.MULTILINE)
_LONGEST_LINE = 8192  # characters that a splitter sees at once; a paragraph has hundreds to thousands
_LONG_LINE = re.compile(rf"(?<![^\n])[^\n]{{{_LONGEST_LINE + 1},}}")
_LONGEST_PLACE = 50  # characters; with a title the wire allows 1,024 bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document; `start` and `end` count characters in its joined sections."""

    start: int
    end: int
    text: str
    place: str = ""  # start in the document, e.g. «page 3»; empty where there is only one place


class Chunker:
    """Cuts documents into chunks of at most `tokens` tokens, without overlap.

    `tokenizer_file` is the embedding or language model's `tokenizer.json`. Special tokens are not counted.
    """

    def __init__(self, tokenizer_file: Path, tokens: int = DEFAULT_TOKENS) -> None:
        if tokens < 1:
            raise ValueError(f"a chunk has at least 1 token, got {tokens}")
        try:
            content = tokenizer_file.read_bytes()
            tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:  # tokenizers raises bare Exception for a file it can't parse
            raise EmbedderError(f"the tokenizer {tokenizer_file} can't be read: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._most_characters = tokens * MOST_CHARACTERS_PER_TOKEN
        self.identity = f"{tokens}:{hashlib.sha256(content).hexdigest()[:16]}"

    def chunks_of(self, content: Content) -> list[Chunk]:
        """Chunks of a document in order; none spans two sections."""
        chunks: list[Chunk] = []
        start = 0
        for section in content.sections:
            pieces = self.split(section.text, markdown=section.unit == "heading")
            places = section.places([piece.start for piece in pieces])
            chunks += [
                Chunk(start + piece.start, start + piece.end, piece.text, place[:_LONGEST_PLACE])
                for piece, place in zip(pieces, places, strict=True)
            ]
            start += len(section.text)
        return chunks if len(chunks) > 1 else [replace(chunk, place="") for chunk in chunks]

    def split(self, text: str, markdown: bool = False) -> list[Chunk]:
        """Chunks of `text` in order: one if it fits, none if blank."""
        splitter = self._markdown if markdown and not _TOO_DEEP.search(text) else self._plain
        parts = self._parts(text)
        found = [(start + at, piece) for start, part in parts for at, piece in splitter.chunk_indices(part)]
        pieces = []
        for start, piece in found:
            if len(piece) <= self._most_characters:
                pieces.append((start, piece))
                continue
            # The tail may be short enough to count its tokens fully, so parts are split by tokens again.
            for offset, part in self._characters.chunk_indices(piece):
                pieces += [(start + offset + at, cut) for at, cut in self._plain.chunk_indices(part)]
        return [Chunk(start, start + len(piece), piece) for start, piece in pieces if piece.strip()]

    # Each splitter copies the tokenizer in 50 ms, and most users of a library cut nothing.

    @cached_property
    def _plain(self) -> TextSplitter:
        return TextSplitter.from_huggingface_tokenizer(self._tokenizer, self._tokens)

    @cached_property
    def _markdown(self) -> MarkdownSplitter:
        return MarkdownSplitter.from_huggingface_tokenizer(self._tokenizer, self._tokens)

    @cached_property
    def _characters(self) -> TextSplitter:
        return TextSplitter(self._most_characters)

    def _parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Cuts runs too long for a chunk, and long lines; yields starts and parts.

        The splitters look at the whole run or line again for every piece.
        """
        for start, part in self._cut_runs(text):
            done = 0
            for line in _LONG_LINE.finditer(part):
                while line.end() - max(done, line.start()) > _LONGEST_LINE:
                    first = max(done, line.start())
                    space = part.rfind(" ", first + 1, first + _LONGEST_LINE)
                    end = space if space > first else first + _LONGEST_LINE
                    yield start + done, part[done:end]
                    done = end
            if done < len(part):
                yield start + done, part[done:]

    def _cut_runs(self, text: str) -> Iterator[tuple[int, str]]:
        start = 0
        for run in re.finditer(rf"(?<!\S)\S{{{self._most_characters + 1},}}", text):
            for end in (*range(run.start(), run.end(), self._most_characters), run.end()):
                if end > start:
                    yield start, text[start:end]
                    start = end
        if start < len(text):
            yield start, text[start:]


def title_of(path: Path, content: Content) -> str:
    """The document's title, else its first heading, else the file's name without suffix."""
    texts = (section.text for section in content.sections if section.unit == "heading")
    found = (heading for text in texts for _, heading in headings(text) if heading)
    return (content.title or next(found, "") or path.stem)[:LONGEST_TITLE]
