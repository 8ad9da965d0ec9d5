"""Terms of texts and of questions: what stands in the index, and that one finds the other."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.library.terms import SIGNS, indexed, sought

# ruff: noqa: RUF001

WORDS = (
    *("The", "C#", "C++", ".NET", "O'Neill", "l'homme", "KX-88123", "2026-03-14", "14.3.26", "March", "1,234.50"),
    *("10.0.0.1", "v2.1", "北京大学", "の", "茶", "ガラス", "が", "ไทย", "हिन्दी", "שָׁלוֹם", "אב", "3月", "''", ".", "--"),
    *("#x", "a+b", "_", "\x00", "ＡＢＣ－１", "٣", "½", "🎂", "\u0301", "\ud7ff", '"'),
)
# Texts that have words, numbers, signs and scripts of all kinds beside each other.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.text(max_size=8),
    ),
    max_size=8,
).flatmap(lambda parts: st.sampled_from([" ".join(parts), "".join(parts)]))


def matching(texts: Sequence[str], asked: str) -> list[str]:
    """The texts that have one of what is sought, by FTS5 itself."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, tokenize=\"ascii tokenchars '{SIGNS}'\")")
        connection.executemany("INSERT INTO t VALUES (?)", [(indexed(text),) for text in texts])
        wanted = " OR ".join(sought(asked))
        rows = connection.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY rowid", (wanted,)) if wanted else ()
        return [texts[number - 1] for (number,) in rows]


class TestIndexed:
    @pytest.mark.parametrize(
        ("text", "terms"),
        [
            ("The Kettle, whistling", "the kettle whistling"),
            ("KX-88123 or KX88123", "kx 88123 or kx88123 kx.88123"),
            ("at 10.0.0.12:80", "at 10 0 0 12 80 10.0.0.12.80"),
            ("v2.10.3", "v 2 10 3 2.10.3"),
            ("C#, C++ (.NET)", "c c net c# c++ .net"),
            ("1,234.50 or 1.234,50 or 1'234.50", "1234 50 or 1234 50 or 1234 50 1234.50"),
            ("Marta's and O\u2019Neill's", "marta and o neill"),
            ("ＡＢＣ－１２３４", "abc 1234 abc.1234"),
            ("café ΑΘΉΝΑ ёж שָׁלוֹם مُؤسسة Łódź", "cafe αθηνα еж שלום موسسة lodz"),
            ("हिन्दी ガラス", "हिन्दी ガラ ラス ス"),
            ("٣٫٥ ３", "3 5 3"),
        ],
    )
    def test_words_are_folded_and_what_identifies_is_one_term(self, text: str, terms: str) -> None:
        assert indexed(text) == terms

    @pytest.mark.parametrize(
        "text",
        [
            *("2026-03-14", "2026/3/14", "14.3.26", "14.03.2026", "14/03/2026", "3/14/2026", "20260314_notes.txt"),
            *("14 March 2026", "14th of March, 2026", "March 14, 2026", "14. März 2026", "14 de marzo de 2026"),
            *("le 14 mars 2026", "2026. március 14.", "14. maaliskuuta 2026", "14 березня 2026", "14 Μαρτίου 2026"),
            *("2026年3月14日", "2026년 3월 14일", "2026-03-14T08:30:00Z", "14 MAR 2026", "१४ मार्च २०२६"),
        ],
    )
    def test_a_date_is_one_term_however_it_is_written(self, text: str) -> None:
        found = indexed(f"On {text} it rained").split()
        assert found.count("2026-03-14") == found.count("2026-03") == found.count("--03-14") == 1

    @pytest.mark.parametrize(
        "text", ["10.1.2.26", "2026-13-14", "32.1.2026", "0000-01-01", "March", "may 99", "1.2.3.4.5"]
    )
    def test_what_is_no_date_has_none(self, text: str) -> None:
        assert not [term for term in indexed(text).split() if "-" in term]

    @given(TEXTS)
    def test_terms_have_no_signs_but_those_that_the_index_keeps(self, text: str) -> None:
        for term in indexed(text).split():
            assert all(sign in SIGNS or not sign.isascii() or sign.isalnum() for sign in term)
            assert term == term.lower()


class TestSought:
    @pytest.mark.parametrize(
        ("question", "terms"),
        [
            (
                "What is the capacity of the stadium of City1918?",
                ["capacity", "stadium", "city1918", "city 1918", "city.1918"],
            ),
            ("Was kostet das Brot?", ["kostet", "brot"]),
            ("Wo wohnt Marta?", ["wohnt", "marta"]),
            ("Où est la gare ?", ["gare"]),
            ("¿Cuál es el precio?", ["precio"]),
            ("Где живёт Анна?", ["живет", "анна"]),
            ("Kde bydlí Jana?", ["bydli", "jana"]),
            ("איפה המפתח?", ["המפתח"]),
            ("car insurance", ["car", "insurance"]),
            ("Vitamin C", ["vitamin", "c"]),
            ("The Who", ["the", "who"]),
            ("What isn't l'eau?", ["eau", "l eau"]),
            ("Room 101", ["room", "101", "room 101", "room.101"]),
            ("C# style", ["c", "style", "c#"]),
            ("北京大学的校长是谁？", ["北京", "京大", "大学", "校长", "北京 京大", "京大 大学", "学的 的校"]),
            ("会議はどこですか", ["会議"]),
            ("", []),
        ],
    )
    def test_words_of_grammar_are_left_out(self, question: str, terms: list[str]) -> None:
        assert sorted(sought(question)) == sorted(f'"{term}"' for term in terms)

    def test_what_identifies_is_of_no_long_question_cut_off(self) -> None:
        page = " ".join(f"word{number}" for number in range(400))
        assert '"2026-03-14"' in sought(f"{page} 14 March 2026")[:3]

    def test_a_character_alone_begins_a_pair(self) -> None:
        assert sought("茶は?") == ['"茶"*']
        assert matching(["紅茶", "茶碗", "水"], "茶は?") == ["紅茶", "茶碗"]

    @given(TEXTS)
    def test_a_text_finds_itself(self, text: str) -> None:
        assert matching([text], text) == ([text] if indexed(text) else [])


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("部品番号　ＡＢＣ－１２３４　は棚　Ｚ９　にあります。", "ABC-1234"),
        ("部品番号　ＡＢＣ－１２３４　は棚　Ｚ９　にあります。", "Z9"),
        ("部品番号 ABC-1234", "ＡＢＣ１２３４はどこですか"),
        ("part ABC1234", "abc-1234"),
        ("part ABC 1234", "ABC1234"),
        ("released v2.1", "version 2.1"),
        ("met on 14.3.26", "14 March 2026"),
        ("am 14. März 2026", "2026-03-14"),
        ("12.345,60 EUR", "12,345.60"),
        ("東京都の人口", "人口は?"),
        ("สวัสดีครับ", "สวัสดี"),
        ("ﺳﻼﻡ", "سلام"),
    ],
)
def test_other_forms_find_each_other(note: str, question: str) -> None:
    others = ["another note", "別の件", "9 8 7"]
    assert matching([note, *others], question) == [note]
