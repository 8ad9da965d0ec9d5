"""Search by words and by both, in the real database."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from common.library import keywords
from common.library.chunks import Chunker
from common.library.database import connect
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import LibraryDamaged
from common.library.keywords import fused
from common.library.library import Library, SearchKind
from common.library.store import DATABASE
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

HEADS = {  # of documents that a number tells apart, and hardly anything else
    f"pep-{number:04}.txt": f"PEP: {number}\nTitle: {title}\nStatus: {status}\nType: Standards Track"
    for number, title, status in [
        (8, "Style guide", "Active"),
        (20, "Zen", "Active"),
        (257, "Docstrings", "Active"),
        (484, "Type hints", "Final"),
        (557, "Data classes", "Final"),
        (572, "Assignment expressions", "Final"),
        (604, "Union types", "Final"),
        (634, "Pattern matching", "Final"),
        (703, "Optional lock", "Accepted"),
        (3107, "Annotations", "Final"),
    ]
}


def opened(folder: Path, chunker: Chunker, kind: SearchKind) -> Library:
    return Library(folder, ToyEmbedder(), chunker=chunker, kind=kind)


def paths(library: Library, query: str, k: int = 3) -> list[str]:
    return [hit.path for hit in library.search(query, k)]


def check_keywords(library: Library) -> None:
    """FTS5's own comparison of its index with the texts that it is of; raises when they differ."""
    with closing(connect(library.folder / DATABASE)) as connection:
        connection.execute("INSERT INTO keywords (keywords, rank) VALUES ('integrity-check', 1)")


@pytest.fixture
def heads(tmp_path: Path, write: Write, documents: Path, chunker: Chunker) -> Path:
    """Folder of a library of the heads."""
    for name, text in HEADS.items():
        write(name, text)
    with opened(tmp_path / "library", chunker, "dense") as library:
        library.add(documents)
    return tmp_path / "library"


class TestByWords:
    def test_a_number_finds_its_document(self, heads: Path, chunker: Chunker) -> None:
        with opened(heads, chunker, "keyword") as library:
            assert paths(library, "What is the status of PEP 572?")[0] == "pep-0572.txt"
            assert paths(library, "What is the status of PEP 8?")[0] == "pep-0008.txt"
            assert paths(library, "ANNOTÁTIONS")[0] == "pep-3107.txt"

    @pytest.mark.parametrize("at_once", [64, 1])
    def test_equals_come_in_an_order_that_is_not_that_of_adding(
        self,
        tmp_path: Path,
        write: Write,
        documents: Path,
        chunker: Chunker,
        monkeypatch: pytest.MonkeyPatch,
        at_once: int,
    ) -> None:
        monkeypatch.setattr(keywords, "_EQUALS", at_once)
        names = [f"{letter}.txt" for letter in "kbqdtahp"]
        found = []
        for number, order in enumerate((names, names[::-1], sorted(names))):
            with opened(tmp_path / f"library{number}", chunker, "keyword") as library:
                for name in order:
                    write(name, f"The {name[0]} lesson.")
                    library.add(documents)
                found.append(paths(library, "When is the lesson?", 4))
                rest = library.search("When is the lesson?", 3, only=found[0][1:])
                assert [hit.path for hit in rest] == found[0][1:]
            for name in names:
                (documents / name).unlink()
        assert len(found[0]) == 4 and found[0] == found[1] == found[2]

    def test_titles_count(self, tmp_path: Path, write: Write, documents: Path, chunker: Chunker) -> None:
        write("kettle.txt", "It whistles.")
        write("bicycle.txt", "It squeaks.")
        with opened(tmp_path / "library", chunker, "keyword") as library:
            library.add(documents)
            assert paths(library, "my kettle") == ["kettle.txt"]
            (documents / "kettle.txt").rename(documents / "teapot.txt")
            assert library.add(documents).moved == 1
            assert paths(library, "kettle") == []
            assert paths(library, "teapot") == ["teapot.txt"]
            check_keywords(library)

    @pytest.mark.parametrize("query", ["zebra", '"', "' OR 1", "a* NEAR(b) -c:d", "…", "text:Zen AND", "\0"])
    def test_a_question_is_words_and_no_expression(self, heads: Path, chunker: Chunker, query: str) -> None:
        with opened(heads, chunker, "keyword") as library:
            assert set(paths(library, query)) <= set(HEADS)
        with opened(heads, chunker, "hybrid") as library:
            assert len(paths(library, query)) == 3

    def test_words_of_most_documents_are_looked_up_when_there_are_no_others(
        self, heads: Path, chunker: Chunker
    ) -> None:
        with opened(heads, chunker, "keyword") as library:
            assert len(paths(library, "PEP status", 99)) == len(HEADS)
            assert len(paths(library, "PEP status of zebras", 99)) == len(HEADS)
            assert paths(library, "PEP status of zen", 99) == ["pep-0020.txt"]

    def test_common_words_of_a_large_library_are_not_looked_up(
        self, heads: Path, chunker: Chunker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ranking takes time for each chunk that holds one."""
        monkeypatch.setattr(keywords, "_RANKED", 1)
        monkeypatch.setattr(keywords, "_COMMON", 2)
        with opened(heads, chunker, "keyword") as library:
            assert library.count > 4
            assert paths(library, "PEP status", 99) == []
            assert paths(library, "PEP status of zen", 99) == ["pep-0020.txt"]
            assert library.search("PEP zen", 99, only=["pep-0572.txt"]) == []
            assert paths(library, "zen annotations", 99) == ["pep-0020.txt"]
            monkeypatch.setattr(keywords, "_RANKED", 2)
            assert set(paths(library, "zen type annotations", 99)) == {"pep-0020.txt", "pep-3107.txt"}
        with opened(heads, chunker, "hybrid") as library:
            assert len(paths(library, "PEP status", 3)) == 3

    def test_phrases_of_common_words_are_looked_up_in_a_small_library(
        self, tmp_path: Path, write: Write, documents: Path, chunker: Chunker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To find one takes time for each chunk that has its words."""
        for number, text in enumerate(("7 9", "9 7", "9 0 7", "7 0 9")):
            write(f"{number}.txt", text)
        with opened(tmp_path / "library", chunker, "keyword") as library:
            library.add(documents)
            assert paths(library, "7-9", 9) == ["0.txt"]
            monkeypatch.setattr(keywords, "_RANKED", 1)
            monkeypatch.setattr(keywords, "_COMMON", 1)
            assert paths(library, "7-9", 9) == []
            write("4.txt", "8 9")
            library.add(documents)
            assert paths(library, "8-9", 9) == ["4.txt"]


LANGUAGES = {  # a note, and words that a question about it may have
    "arabic": ("سجل أحمد في مؤسسة القراءة", ["أحمد", "مؤسسة", "القراءة", "احمد"]),
    "chinese": ("北京大学在海淀区", ["北京", "大学", "海淀"]),
    "czech": ("Žluťoučký kůň", ["žluťoučký", "kůň", "kun"]),
    "french": ("Le café est près du théâtre", ["café", "cafe", "CAFÉ", "théâtre"]),
    "full width": ("会議はＲＯＯＭ１０１", ["会議はｒｏｏｍ１０１", "会議", "room101", "ROOM 101"]),
    "german": ("Herr Müller wohnt in der Straße", ["Müller", "muller", "MÜLLER", "Straße"]),
    "greek": ("Στην Αθήνα έχει οδός Ερμού", ["Αθήνα", "ΟΔΌΣ", "οδός", "Ερμού", "Αθηνα"]),
    "hebrew": ("שָׁלוֹם רב", ["שָׁלוֹם", "שלום"]),
    "hindi": ("मेरा नाम हिन्दी", ["हिन्दी", "नाम"]),
    "japanese": ("ガラス の ビン", ["ガラス", "ビン"]),
    "korean": ("서울은 대한민국의 수도", ["서울은", "수도"]),
    "names": ("snake_case = CO₂ + x²", ["snake_case", "CO₂", "x²", "CO2"]),
    "russian": ("Андрей купил зелёный чайник в мае", ["Андрей", "зелёный", "ЧАЙНИК", "зеленый"]),
    "thai": ("สถานีรถไฟ", ["รถไฟ", "สถานี"]),
    "turkish": ("İstanbul güzel şehir", ["İstanbul", "istanbul", "güzel", "şehir"]),
    "ukrainian": ("Київ має їжака", ["Київ", "їжака", "КИЇВ"]),
    "vietnamese": ("Đường phố Việt Nam", ["đường", "phố", "Việt", "duong"]),
}


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory, chunker: Chunker) -> Iterator[Library]:
    """A library of one note for each language, and as many others without any of its words."""
    folder = tmp_path_factory.mktemp("languages")
    (folder / "notes").mkdir()
    for language, (note, _) in LANGUAGES.items():
        (folder / "notes" / f"{language}.txt").write_text(note)
        (folder / "notes" / f"beside {language}.txt").write_text(f"nothing of the kind, {language[::-1]}")
    with opened(folder / "library", chunker, "keyword") as library:
        library.add(folder / "notes")
        yield library


class TestLanguages:
    @pytest.mark.parametrize("language", LANGUAGES)
    @pytest.mark.parametrize("form", ["NFC", "NFD"])
    def test_a_word_finds_its_note(self, notes: Library, language: str, form: Literal["NFC", "NFD"]) -> None:
        """However its accents are written in the question."""
        words = LANGUAGES[language][1]
        found = {word: paths(notes, unicodedata.normalize(form, f"{word}?")) for word in words}
        assert found == {word: [f"{language}.txt"] for word in words}

    def test_a_name_of_a_file_with_decomposed_letters(
        self, tmp_path: Path, write: Write, documents: Path, chunker: Chunker
    ) -> None:
        """As macOS writes them."""
        write(unicodedata.normalize("NFD", "Андрей.txt"), "a note")
        write("other.txt", "another note")
        with opened(tmp_path / "library", chunker, "keyword") as library:
            library.add(documents)
            assert [hit.title for hit in library.search("Андрей", 3)] == ["Андрей"]


class TestLongQuestions:
    def test_the_rarest_words_count_wherever_they_are(self, heads: Path, chunker: Chunker) -> None:
        unknown = " ".join(f"word{number}" for number in range(150))
        with opened(heads, chunker, "keyword") as library:
            assert paths(library, f"{unknown} status of zen") == ["pep-0020.txt"]

    def test_of_more_than_are_searched_for_the_common_ones_are_left_out(
        self, heads: Path, chunker: Chunker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keywords, "_MOST_WORDS", 2)
        monkeypatch.setattr(keywords, "_COMMON", 1)  # no word is too common
        with opened(heads, chunker, "keyword") as library:
            assert set(paths(library, "PEP status type zen annotations", 99)) == {"pep-0020.txt", "pep-3107.txt"}


class TestBoth:
    def test_finds_what_either_finds(
        self, tmp_path: Path, write: Write, documents: Path, embedder: SentenceTransformerEmbedder
    ) -> None:
        for name, text in HEADS.items():
            write(name, text)
        write("keys.md", "The spare key is under the blue flower pot on the balcony.")
        with Library(tmp_path / "library", embedder, kind="hybrid") as library:
            library.add(documents)
            assert paths(library, "PEP 604", 1) == ["pep-0604.txt"]
            assert paths(library, "Where do I hide what opens the door?", 1) == ["keys.md"]

    def test_words_as_like_as_the_best_come_before_near_vectors(self) -> None:
        assert fused([1, 2, 3], {3: 1.0}) == [3, 1, 2]
        assert fused([1, 2], {2: 1.0, 1: 0.9}) == [2, 1]
        assert fused([1, 2], {2: 1.0, 1: 0.99}) == [1, 2]
        assert fused([2, *range(3, 99), 1], {1: 1.0, 2: 0.5}) == [1, *range(2, 99)]
        assert fused([], {4: 1.0, 5: 1.0}) == [4, 5]
        assert fused([], {}) == []


class TestUpkeep:
    def test_what_was_added_is_found_and_what_was_removed_is_not(
        self, heads: Path, chunker: Chunker, write: Write, documents: Path
    ) -> None:
        with opened(heads, chunker, "keyword") as library:
            write("pep-0572.txt", "PEP: 572\nWithdrawn and burnt")
            (documents / "pep-0020.txt").unlink()
            write("new.txt", "xylophone")
            library.add(documents)
            assert paths(library, "assignment expressions zen") == []
            assert paths(library, "burnt") == ["pep-0572.txt"]
            assert paths(library, "xylophone") == ["new.txt"]
            check_keywords(library)
            library.remove([documents / "new.txt"])
            assert paths(library, "xylophone") == []
            check_keywords(library)

    def test_a_damaged_index_is_told(self, heads: Path, chunker: Chunker) -> None:
        with closing(sqlite3.connect(heads / DATABASE)) as connection:
            connection.execute("UPDATE keywords_data SET block = x'00ff00ff00ff' WHERE id > 10")
            connection.commit()
        with pytest.raises(LibraryDamaged, match="the index of words differs from what was written"):
            opened(heads, chunker, "hybrid")
