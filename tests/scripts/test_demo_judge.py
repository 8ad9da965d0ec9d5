"""The demonstration's judge: as a person would, neither by the spelling nor by half of the answer."""

from __future__ import annotations

import re

import pytest

from scripts.daemons import ROOT
from scripts.demo.__main__ import TEXTS
from scripts.demo.judge import Facts, read_questions, words

BROMPTON = "How many gears does my Brompton have, and who designed the Brompton?"
BICYCLE = Facts(
    (("six gears", "six-speed", "six speeds"), ("Andrew Ritchie",)), true=("1975",), false=("Alex Moulton",)
)
VIOLA = "When is the viola lesson, and how many strings does a viola have?"
LESSON = Facts((("Tuesdays at four", "Tuesday at four", "Tuesdays at four o'clock"), ("four strings", "four-stringed")))
CAMERA = "When was the M6 bought, and which film does it take?"
FILM = Facts((("1984", "in 1984"), ("35 mm", "35mm")))


@pytest.mark.parametrize(
    "answer",
    [
        "The Brompton has six gears, and Andrew Ritchie designed it.",
        "The Brompton has 6 gears, and the Brompton was designed by Andrew Ritchie in 1975.",
        "A SIX-SPEED bicycle, by andrew ritchie!",
        "Your Brompton has six gears; one of its designers, who lives in London, is Andrew Ritchie.",
        "Andrew\nRitchie made it, and it has the six gears. It is not heavy.",
    ],
)
def test_what_a_person_calls_right_is_right(answer: str) -> None:
    assert BICYCLE.are_in(answer, BROMPTON)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "The Brompton has six gears.",
        "The Brompton has six gears, and the design of the Brompton is a classic example of a bicycle with gears.",
        "The Brompton has 2 gears, one for each wheel, and Andrew Ritchie designed the Brompton.",
        "The Brompton has sixteen gears, and Andrew Ritchie designed it.",
        "The Brompton has twenty-six gears, and Andrew Ritchie designed it.",
        "The Brompton has 26 gears, and Andrew Ritchie designed it.",
        "The Brompton has six gears, or seven gears, and Andrew Ritchie designed it.",
        "The Brompton has six gears, and Andrew Ritchie designed it in 1981.",
        "The Brompton does not have six gears, and Andrew Ritchie designed it.",
        "The Brompton doesn't have the six gears, and Andrew Ritchie designed it.",
        "The Brompton has six gears, and Andrew Ritchie and Alex Moulton designed it.",
        "The Brompton has six wheels and many gears, and Andrew designed Ritchie.",
    ],
)
def test_what_a_person_calls_wrong_is_wrong(answer: str) -> None:
    assert not BICYCLE.are_in(answer, BROMPTON)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("The viola lesson is on Tuesdays at four, and the viola is a stringed instrument with 4 strings.", True),
        ("The viola lesson is on Tuesdays at four, and the viola has four strings.", True),
        ("The lesson is on Tuesday at 4:00, and a viola is four-stringed.", True),
        ("The viola lesson is on Tuesdays at five, and the viola has four strings.", False),
        ("The viola has four strings, tuned to C, G, D and A.", False),
        ("The viola lesson is on Tuesdays at four, and the viola has strings.", False),
    ],
)
def test_numbers_in_words_and_in_digits_are_the_same(answer: str, right: bool) -> None:
    assert LESSON.are_in(answer, VIOLA) is right


def test_the_answers_that_the_readme_shows() -> None:
    shown = " ".join((ROOT / "README.md").read_text().split())
    judged = 0
    for question in read_questions(TEXTS / "questions.json"):
        _, found, rest = shown.partition(f"{question.text} device alone ")
        for answer, verdict in re.findall(r"(?:alone |together |^)([A-Z][^:]*?\.) \[(right|wrong)\] ", rest)[
            : 3 * bool(found)
        ]:
            assert question.is_right(answer) is (verdict == "right"), answer
            judged += 1
    assert judged == 3


def test_a_number_of_the_question_contradicts_nothing() -> None:
    assert FILM.are_in("The M6 was bought in 1984 and takes 35 mm film.", CAMERA)
    assert not FILM.are_in("The M7 was bought in 1984 and takes 35 mm film.", CAMERA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the Twenty-one an apple, a", "21 apple"),
        ("forty seven and two hundred and five", "47 and 205"),
        ("one and two", "1 and 2"),
        ("1,200 people, a hundred cars", "1200 people 100 cars"),
        ("nineteen", "19"),
        ("six seven", "6 7"),
        ("three hundred twelve", "312"),
        ("x \N{SUBSCRIPT ONE} y", "x \N{SUBSCRIPT ONE} y"),
        ("twenty twelve", "20 12"),
        ("16:00 or 16:30", "16 or 16 30"),
        ("it isn't, it isn\N{RIGHT SINGLE QUOTATION MARK}t", "it is not it is not"),
        ("Bront\N{LATIN SMALL LETTER E WITH DIAERESIS} once", "bront\N{LATIN SMALL LETTER E WITH DIAERESIS} once"),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert words(text) == expected.split()
