from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from common.library.chunks import MOST_CHARACTERS_PER_TOKEN, Chunker, title_of
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import EmbedderError
from common.library.readers.content import Content
from common.library.readers.formats import TEXT

TOKENIZER = SentenceTransformerEmbedder().tokenizer_file
CHUNKER = Chunker(TOKENIZER, 16)
COUNTER = Tokenizer.from_file(str(TOKENIZER))
COUNTER.no_truncation()
COUNTER.no_padding()

PROSE = st.lists(
    st.sampled_from(["the", "river", "Élan", "naïve", "雨", "🙂", "\n", "\n\n", ". ", "# head", "- item", "x" * 300]),
    max_size=60,
).map(" ".join)


def content(name: str, text: str) -> Content:
    return TEXT[Path(name).suffix.lower()](text.encode())


class TestSplit:
    @settings(max_examples=60)
    @given(PROSE | st.text(max_size=400), st.booleans())
    def test_chunks_are_small_pieces_of_the_text_and_lose_none_of_it(self, text: str, markdown: bool) -> None:
        chunks = CHUNKER.split(text, markdown)
        position = 0
        for chunk in chunks:
            assert text[chunk.start : chunk.end] == chunk.text
            assert chunk.text.strip()
            assert len(COUNTER.encode(chunk.text, add_special_tokens=False).ids) <= 16
            assert not text[position : chunk.start].strip()
            position = chunk.end
        assert not text[position:].strip()

    @pytest.mark.parametrize("markdown", [True, False])
    def test_a_short_document_is_one_chunk(self, markdown: bool) -> None:
        text = "# Keys\n\nThe spare key.\n\n- under the pot\n\n\nBlue.\n"
        assert [chunk.text for chunk in Chunker(TOKENIZER).split(text, markdown)] == [text.strip()]

    def test_a_run_that_the_tokenizer_calls_one_unknown_token_is_cut(self) -> None:
        chunks = CHUNKER.split("x" * 5000)
        assert "".join(chunk.text for chunk in chunks) == "x" * 5000
        assert max(len(chunk.text) for chunk in chunks) <= 16 * MOST_CHARACTERS_PER_TOKEN

    def test_a_broken_tokenizer_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        path.write_text("{}")
        with pytest.raises(EmbedderError, match=r"tokenizer\.json can't be read"):
            Chunker(path)


class TestTitle:
    @pytest.mark.parametrize(
        ("name", "text", "title"),
        [
            ("a.md", "intro\n\n## The bike ##\n# Other\n", "The bike"),
            ("a.md", "#hashtag\nno heading", "a"),
            ("notes 2024.md", "", "notes 2024"),
            ("plain.txt", "# a comment", "plain"),
            ("a.MD", "# Loud", "Loud"),
        ],
    )
    def test_is_the_first_heading_or_the_name(self, name: str, text: str, title: str) -> None:
        assert title_of(Path(name), content(name, text)) == title

    def test_fits_the_wire(self) -> None:
        assert len(title_of(Path("a.md"), content("a.md", "# " + "語" * 5000)).encode()) <= 1024


class TestTextsMadeToTakeLong:
    """Texts that took minutes or more at this size; the longest document that is read is twenty times as long."""

    LONG = 300_000  # characters
    SECONDS = 8.0

    @pytest.mark.parametrize(
        "beginning",
        ["_", ">", "> ", "- ", "1. "],
    )
    @pytest.mark.parametrize("markdown", [True, False])
    def test_are_cut_in_time(self, chunker: Chunker, beginning: str, markdown: bool) -> None:
        text = (beginning * self.LONG)[: self.LONG // 10] + "\n\nThe end.\n"
        began = time.process_time()
        chunks = chunker.split(text, markdown)
        assert time.process_time() - began < self.SECONDS
        assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
        assert "".join(chunk.text for chunk in chunks).replace(" ", "").count("_") == text.count("_")
        assert chunks[-1].text.endswith("The end.")

    @pytest.mark.parametrize("line", ["# a" + " #" * LONG + "x", "#" + " " * LONG + "x", "# " * LONG, "#\t" * LONG])
    def test_have_a_title_in_time(self, line: str) -> None:
        began = time.process_time()
        title = title_of(Path("note.md"), content("note.md", line))
        assert time.process_time() - began < self.SECONDS / 10
        assert 0 < len(title) <= 200
