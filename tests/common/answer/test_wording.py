"""Words of answers and documents, as they are compared."""

from __future__ import annotations

import time
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.answer.languages import GRAMMAR_WORDS
from common.answer.wording import (
    MOST_MARKS,
    atoms,
    folded,
    grammar_of,
    in_normal_form,
    mark_named_texts,
    pieces_of,
    words,
)


class TestWords:
    def test_tokens_up_to_the_next_space_are_one(self) -> None:
        assert words(["The", " al", "lot", "ment", "\n", "is", " ", "4", "7", "."]) == [
            [0],
            [1, 2, 3],
            [4],
            [5],
            [6],
            [7, 8, 9],
        ]

    def test_half_a_character_belongs_to_none(self) -> None:
        assert words(["a", "", "b", "", " c", ""]) == [[0, 2], [4]]

    @pytest.mark.parametrize("text", ["猫は食べる", "แมวกิน", "ဟုတ်ကဲ့", "𠀋𠀌"])
    def test_without_spaces_each_token_is_one(self, text: str) -> None:
        assert words(list(text)) == [[place] for place in range(len(text))]
        assert words(["in ", text[:1], text[1:], " now"]) == [[0], [1], [2], [3]]

    @given(st.lists(st.text(max_size=3), max_size=12))
    def test_every_token_with_text_is_in_one(self, pieces: list[str]) -> None:
        assert [place for word in words(pieces) for place in word] == [
            place for place, piece in enumerate(pieces) if piece
        ]


class TestAtoms:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("**Six-gear**,", ["6", "gear"]),
            ("STRASSE", ["strasse"]),
            ("Straße", ["strasse"]),
            (" \uff19\uff10", ["90"]),
            ("1.6 12:30 6.", ["1.6", "12:30", "6"]),
            ("twelve one", ["12", "one"]),
            ("6\ufe0f\u20e3", ["6"]),
            ("餌を60g", ["餌", "を", "60g"]),
            ("cafe\u0301", ["caf\u00e9"]),
            ("शहर", ["शहर"]),
            (" – .", []),
        ],
    )
    def test_case_forms_and_signs_do_not_matter(self, text: str, found: list[str]) -> None:
        assert atoms(text) == found

    @given(st.text(max_size=30))
    def test_pieces_are_words_in_their_order(self, text: str) -> None:
        pieces = [text[slice(*span)] for span in pieces_of(text)]
        assert "".join(pieces) == "".join(text.split())
        assert all(piece and not any(map(str.isspace, piece)) for piece in pieces)


OTHERS = ("The choir sings on Thursday.", "The cat is called Pixel.", "Bread rests for a day.")


@pytest.mark.parametrize(
    ("question", "text", "names"),
    [
        ("What happened on 2026-03-14?", "2026-03-14: the boiler was serviced.", True),
        ("What happened on 2026-03-14?", "2026-03-15: it rained.", False),
        ("Which toner is TN-2410?", "It takes TN-2410.", True),
        ("Which toner is TN-2410?", "2410 pages, and a TN", False),
        ("How large is City1918?", "CITY1918 | 40,000", True),
        ("Who won in 2024?", "It was sold in 2024.", False),
        ("Who is my landlord?", "The landlord is Mr Okafor.", True),
        ("Who is my landlord?", "The owner is Mr Okafor.", False),
        ("What is it called?", "It is called the Nook.", False),
        ("When does it open?", "When it rains.", False),
        ("Hi!", "Hi there", False),
        ("", "", False),
    ],
)
def test_a_question_names_one_thing(question: str, text: str, names: bool) -> None:
    assert mark_named_texts(question, [text, *OTHERS]) == [names, False, False, False]


def test_a_word_that_most_texts_have_names_none_of_them() -> None:
    texts = ["My tax office is in Bern.", "The tax is due.", "No tax on books.", "A taxi."]
    assert mark_named_texts("What is my tax number?", texts) == [False] * 4
    assert mark_named_texts("taxi", texts) == [False, False, False, True]
    assert mark_named_texts("tax office", texts) == [True, False, False, False]


def test_words_of_grammar_name_nothing_in_any_language() -> None:
    texts = ["Welches Brot haben wir?", "Der Laden ist zu.", "Die Uhr geht.", "Das Tor."]
    assert mark_named_texts("Welches Tor wird zuerst geöffnet?", texts) == [False] * 4
    assert mark_named_texts("Welches Brot wird zuerst gebacken?", texts) == [True, False, False, False]


class TestGrammar:
    @pytest.mark.parametrize("language", GRAMMAR_WORDS)
    def test_a_language_is_told_by_its_words(self, language: str) -> None:
        own = {folded(word) for word in GRAMMAR_WORDS[language].split()}
        assert own <= grammar_of(own)

    @pytest.mark.parametrize(
        ("question", "rest"),
        [
            ("where is the car", ["car"]),
            ("car insurance", ["car", "insurance"]),
            ("wo war der hund", ["hund"]),
            ("war", ["war"]),
            ("que hora", ["hora"]),
            ("vitamin c", ["vitamin", "c"]),
            ("hvem er kongen", ["kongen"]),
        ],
    )
    def test_other_words_are_of_none(self, question: str, rest: list[str]) -> None:
        assert [word for word in question.split() if word not in grammar_of(question.split())] == rest


class TestFolded:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("The KETTLE-1", "the kettle-1"),
            ("\uff21\uff22\uff23\uff11", "abc1"),
            ("\u0130stanbul D\u0131\u015f Stra\u00dfe \u0141\u00f3d\u017a", "istanbul dis strasse lodz"),
            ("\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
            ("\u0623\u0645\u064e", "\u0627\u0645"),
            ("\u0439\u0451", "\u0438\u0435"),
            ("\u0967\u0968", "12"),
            ("co\u00adop\u200b", "coop"),
        ],
    )
    def test_case_width_and_accents_go(self, text: str, expected: str) -> None:
        assert folded(text) == expected

    @pytest.mark.parametrize("text", ["हिन्दी", "ガラス", "ที่ไหน", "한국"])
    def test_what_makes_another_letter_stays(self, text: str) -> None:
        assert folded(text) == text

    @given(st.text(max_size=8))
    def test_forms_of_unicode_are_alike(self, text: str) -> None:
        assert folded(unicodedata.normalize("NFD", text)) == folded(unicodedata.normalize("NFC", text)) == folded(text)


ABOVE, BELOW, DOUBLE, VOICED = "\u0301", "\u0323", "\u0f73", "\uff9e"  # the last two are made of marks, and are none
FORMS: tuple[Literal["NFC", "NFKC"], ...] = ("NFC", "NFKC")


@pytest.mark.parametrize("form", FORMS)
class TestNormalForm:
    @given(text=st.text(f"ae\u00e9\ufb01\u0915 {ABOVE}{BELOW}{DOUBLE}{VOICED}\u093c\u20dd", max_size=MOST_MARKS))
    def test_is_that_of_unicode(self, form: Literal["NFC", "NFKC"], text: str) -> None:
        assert in_normal_form(form, text) == unicodedata.normalize(form, text)

    def test_a_letter_has_no_more_marks_than_any_language_puts_on_one(self, form: Literal["NFC", "NFKC"]) -> None:
        assert in_normal_form(form, f"x{ABOVE * 31} x{ABOVE * 30}") == f"x{ABOVE * 30} x{ABOVE * 30}"

    @pytest.mark.parametrize(
        "marks",
        [
            ABOVE * 20_000 + BELOW * 20_000,
            (ABOVE + BELOW) * 20_000,
            (DOUBLE + BELOW) * 20_000,
            (VOICED + BELOW) * 20_000,
        ],
        ids=["apart", "in turns", "made of two", "half as wide"],
    )
    def test_takes_no_time(self, form: Literal["NFC", "NFKC"], marks: str) -> None:
        """Python orders the marks of a letter by insertion, and answers stand still for as long."""
        began = time.process_time()
        in_normal_form(form, f"a{marks}" * 5)
        assert time.process_time() - began < 1.5
