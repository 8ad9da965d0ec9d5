"""Search for what identifies one of many documents that are alike: real notes, libraries and searches by both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.library.chunks import Chunker
from common.library.library import Library, SearchKind
from scripts.bench.alike import KINDS, notes
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

AIM = 0.95  # share of the questions whose note is the first


def first(library: Library, question: str) -> str:
    return library.search(question, 1)[0].path


@pytest.mark.parametrize("search", ["keyword", "hybrid"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_right_one_of_notes_of_one_form_is_first(
    tmp_path: Path, documents: Path, chunker: Chunker, kind: str, search: SearchKind
) -> None:
    asked = notes(kind, 60)
    for number, each in enumerate(asked):
        (documents / f"{number}.txt").write_text(each.note)
    with Library(tmp_path / "library", ToyEmbedder(), chunker=chunker, kind=search) as library:
        library.add(documents)
        right = [first(library, each.question) == f"{number}.txt" for number, each in enumerate(asked)]
    assert sum(right) >= AIM * len(asked), [each for each, found in zip(asked, right, strict=True) if not found]


@pytest.mark.parametrize("search", ["keyword", "hybrid"])
def test_the_row_of_a_table_that_has_a_name_is_first(
    tmp_path: Path, documents: Path, write: Write, chunker: Chunker, search: SearchKind
) -> None:
    """Words of questions are rare in a table: one note that has them is no answer."""
    rows = (f"City{number},Stadium{number % 7},{9000 + 37 * number % 5000}" for number in range(1, 5001))
    write("stadiums.csv", "\n".join(("city,stadium,capacity", *rows)))
    for name in ("music", "garden", "work"):
        write(f"{name}.txt", f"What is the sound of the {name}? It is the sound of what the wind is of.")
    with Library(tmp_path / "library", ToyEmbedder(), chunker=chunker, kind=search) as library:
        library.add(documents)
        (found,) = library.search("What is the capacity of the stadium of City1918?", 1)
    assert "City1918" in found.text


@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("C# style guide", "Style guide for C#."),
        ("C++ style guide", "Style guide for C++."),
        ("the style guide of F#", "Style guide for F#."),
        (".NET style guide", "Style guide for .NET."),
        ("style guide for C", "Style guide for C."),
        ("Who is Mrs O'Neill?", "Mrs O'Neill has a style."),
        ("Who is Mrs Neill?", "Mrs Neill has a style."),
    ],
)
def test_signs_are_a_part_of_names(
    tmp_path: Path, write: Write, documents: Path, chunker: Chunker, question: str, right: str
) -> None:
    names = ("C#", "C++", "F#", ".NET", "C", "NET")
    texts = [*(f"Style guide for {name}." for name in names), "Mrs O'Neill has a style.", "Mrs Neill has a style."]
    for number, text in enumerate(texts):
        write(f"{number}.txt", text)
    with Library(tmp_path / "library", ToyEmbedder(), chunker=chunker, kind="keyword") as library:
        library.add(documents)
        assert library.search(question, 1)[0].text == right
