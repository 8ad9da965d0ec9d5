"""Words of an answer that stand in documents."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.answer.wording import LEAST, MOST_MARKS, in_normal_form, standing, words

TEXTS = (
    "The allotment is number 47 in Weidenweg. The rent of 90 euros is due in March.",
    "Die Straße wurde 1999 fertig; der Druck soll 1.6 bar sein.",
    "私の猫は毎日60グラムの餌を食べます。",
)


def found(pieces: Sequence[str], text: int = 0) -> list[bool]:
    """Whether the words of the pieces stand in one of the texts, all of which make them likelier."""
    shares = [[0.3] * len(TEXTS)] * len(pieces)
    return [text in each for each in standing(pieces, shares, [read(each) for each in TEXTS])]


def read(text: str) -> Callable[[], str]:
    return lambda: text


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


class TestStanding:
    def test_whole_words_stand_there(self) -> None:
        assert found([" The", " rent", " allot", " ment"]) == [True, True, False, False]
        assert found([" 4", "7", " 4", " 7", " 470"]) == [True, True, False, False, False]

    def test_case_punctuation_and_signs_do_not_matter(self) -> None:
        assert found(["**the", "**", " RENT", "!", " (Weidenweg)", " \uff19\uff10"]) == [True] * 6
        assert found([" STRASSE"], text=1) == [True]

    def test_parts_of_a_number_are_no_number(self) -> None:
        assert found([" 1.6", " 1", " 6", " 6.1"], text=1) == [True, False, False, False]

    def test_small_numbers_may_be_spelled_out(self) -> None:
        shares, texts = [[0.9]] * 5, [read("It has six gears and 12 spokes, and one bell.")]
        assert standing([" 6", " Six", " twelve", " 1", " one"], shares, texts) == [(0,), (0,), (0,), (), (0,)]

    def test_all_parts_of_a_word_have_to(self) -> None:
        assert found([" rent-due", " rent-free"]) == [True, False]

    @pytest.mark.parametrize(
        ("text", "there", "invented"),
        [
            ("नाव सुबह सात बजे जाती है, और देर मत करना। दुकान शहर में है, चाय और रोटी साथ लाना।", "जाती है।", "दिल्ली"),
            ("הַסִּירָה יוֹצֵאת בְּשֶׁבַע בַּבֹּקֶר", "יוֹצֵאת", "בַּסִּירָה"),
            ("Le cafe\u0301 x\u0301 est ferme\u0301", "FERM\u00c9", "x"),
        ],
    )
    def test_vowel_signs_and_accents_belong_to_the_word(self, text: str, there: str, invented: str) -> None:
        """Of its letters alone many a word would stand in any long document."""
        pieces = [there, f" {invented}"]
        shares = [[0.9]] * len(pieces)
        assert standing(pieces, shares, [read(text)]) == [(0,), ()]

    def test_a_sign_that_makes_a_picture_of_a_number_does_not(self) -> None:
        assert standing(["6\ufe0f\u20e3"], [[0.9]], [read("six gears")]) == [(0,)]

    def test_signs_alone_stand_nowhere(self) -> None:
        assert found([" –", "\n", " ."]) == [False] * 3

    def test_words_without_spaces_between_them(self) -> None:
        assert found(["猫", "は", "犬", "60", "グラム"], text=2) == [True, True, False, True, True]
        assert found(["6", "餌を", "グラ"], text=2) == [False, True, True]

    def test_a_document_without_a_share_is_not_read(self) -> None:
        def never() -> str:
            raise AssertionError

        shares = [[0.9, LEAST - 0.01, 0.0], [0.0, LEAST - 0.01, 0.0], [0.0, 0.0, 0.9]]
        assert standing([" al", "lotment", " 猫"], shares, [read(TEXTS[0]), never, read(TEXTS[2])]) == [
            (0,),
            (0,),
            (2,),
        ]

    def test_documents_are_read_once(self) -> None:
        asked: list[str] = []

        def once() -> str:
            asked.append("read")
            return "a b"

        assert standing([" a", " b"], [[0.9]] * 2, [once]) == [(0,), (0,)]
        assert asked == ["read"]

    def test_tokens_of_which_nothing_is_known(self) -> None:
        assert standing([" rent", " rent"], [[0.9]], [read(TEXTS[0])]) == [(0,), ()]
        assert standing([" rent"], [()], [read(TEXTS[0])]) == [()]
        assert standing([" rent"], [[0.9, 0.1]], []) == [()], "the last share is no document's"


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
