"""Documents by title and path, and all of their chunks."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common.library.chunks import Chunker
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import UnknownDocument
from common.library.library import Library
from common.library.naming import document_named
from common.library.store import FileRecord
from tests.common.library.toy_embedder import ToyEmbedder

SENTENCES = [
    f"Sentence number {number} of the story tells of harbour {number % 7} and its ferry." for number in range(30)
]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("naming") / "documents"


@pytest.fixture(scope="module")
def library(documents: Path, embedder: SentenceTransformerEmbedder, chunker: Chunker) -> Iterator[Library]:
    other = documents.parent / "others" / "documents"
    for path, text in {
        documents / "story.txt": "\n\n".join(SENTENCES),
        documents / "keys.md": "# Spare key\n\nThe spare key is under the flower pot.",
        documents / "a/notes.md": "# Notes\n\nOf the first half.",
        documents / "b/notes.md": "# Notes\n\nOf the second half.",
        other / "a/notes.md": "# Elsewhere\n\nOf another folder.",
        other / "lone.txt": "Added by itself.",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with Library(documents.parent / "library", embedder, chunker=chunker) as library:
        library.add(documents)
        library.add(other / "a")
        library.add(other / "lone.txt")
        yield library


def test_all_chunks_in_the_documents_order(library: Library, embedder: SentenceTransformerEmbedder) -> None:
    question = "Which ferry goes to harbour 3?"
    hits = library.passages("story", question)
    assert len(hits) > 10
    assert " ".join(" ".join(hit.text.split()) for hit in hits) == " ".join(SENTENCES)
    vectors = embedder.encode([question, *(hit.text for hit in hits)]).astype(np.float64)
    assert [hit.similarity for hit in hits] == pytest.approx(list(vectors[1:] @ vectors[0]), abs=1e-6)


@pytest.mark.parametrize("name", ["Spare key", "keys.md", "documents/keys.md"])
def test_by_title_and_path(library: Library, name: str) -> None:
    assert {hit.title for hit in library.passages(name, "?")} == {"Spare key"}


def test_by_the_path_on_the_disk(library: Library, documents: Path) -> None:
    assert library.passages(str(documents / "b" / "notes.md"), "?")[0].text.endswith("second half.")


@pytest.mark.parametrize("name", ["lone", "lone.txt"])
def test_one_that_was_added_by_itself(library: Library, name: str) -> None:
    assert library.passages(name, "?")[0].text == "Added by itself."


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Notes", "several documents with this name: give the path of one, "),
        ("a/notes.md", "several documents with this name: give the path of one, "),
        ("Spare kye", "no document of this name: did you mean 'Spare key'?"),
        ("KEYS.MD", "no document of this name: did you mean 'keys.md'"),
        ("qqqq", "no document of this name: `dragon library list` shows a device's documents"),
        ("", "no document of this name"),
        ("x" * 4000, "no document of this name"),
    ],
)
def test_one_sentence_where_it_is_not_clear(library: Library, name: str, said: str) -> None:
    with pytest.raises(UnknownDocument) as caught:
        library.passages(name, "?")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not name or f"{name!r}" not in str(caught.value), "what was sent"


@pytest.mark.parametrize("name", ["Notes", "notes.md", "documents/a/notes.md"])
def test_the_paths_that_it_names_are_clear(library: Library, name: str) -> None:
    with pytest.raises(UnknownDocument) as caught:
        library.passages(name, "?")
    paths = str(caught.value).partition("give the path of one, ")[2].rstrip(".").split(" or ")
    assert len(paths) == (3 if name == "notes.md" else 2)
    assert all(library.passages(path.strip("'"), "?") for path in paths)


def test_an_empty_library(tmp_path: Path, embedder: SentenceTransformerEmbedder) -> None:
    with Library(tmp_path / "empty", embedder) as library, pytest.raises(UnknownDocument):
        library.passages("story", "?")


@pytest.mark.timeout(60)
def test_names_that_differ_in_how_an_accent_is_written_alone(tmp_path: Path, toy: ToyEmbedder) -> None:
    """As of files that macOS and Linux have written; each is named as it is on the disk."""
    names = [unicodedata.normalize(form, "café.txt") for form in ("NFC", "NFD")]
    for name in names:
        (tmp_path / "documents").mkdir(exist_ok=True)
        (tmp_path / "documents" / name).write_text(ascii(name))
    with Library(tmp_path / "library", toy) as library:
        library.add(tmp_path / "documents")
        with pytest.raises(UnknownDocument) as caught:
            library.passages("café", "?")
        assert all(repr(name) in str(caught.value) for name in names)
        assert [library.passages(name, "?")[0].text for name in names] == list(map(ascii, names))


@pytest.mark.timeout(60)
def test_many_of_one_title_are_told_at_once() -> None:
    files = [
        FileRecord(number, f"/documents/{number}/README.md", "/documents", "README", "", 1, 1, "", 1)
        for number in range(2000)
    ]
    began = time.process_time()
    with pytest.raises(UnknownDocument, match=r"'0/README.md' or .* or one of 1996 more"):
        document_named(files, "README")
    assert time.process_time() - began < 2, "of one core"
