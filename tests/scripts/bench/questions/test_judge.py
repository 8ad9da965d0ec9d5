"""Answers of the suite `questions` are judged as a person would."""

from __future__ import annotations

import pytest

from scripts.bench.questions.judge import abstains, right


class TestRight:
    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("The teacher is called Margit.", "Margit"),
            ("MARGIT", "Margit"),
            ("It has 4 gears.", "four"),
            ("It has four gears.", "4"),
            ("It has twenty-one gears.", "21"),
            ("two hundred and forty degrees", "240"),
            ("in two thousand and four", "2004"),
            ("80,000 names", "80000"),
            ("80000 names", "80,000"),
            ("80 thousand names", "80,000"),
            ("1\N{NO-BREAK SPACE}000\N{NO-BREAK SPACE}000 lines", "1,000,000"),
            ("one million lines", "1,000,000"),
            ("It weighs 60g.", "60 grams|60 g"),
            ("On October 7th, 2025.", "7 October 2025"),
            ("on 2025-10-07", "7 October 2025"),
            ("07-Oct-2025", "7 October 2025"),
            ("on the 7th of October 2025", "October 7, 2025"),
            ("Feb 15th, 2014", "15 February"),
            ("on Sept. 3", "3 September"),
            ("for six weeks", "six week"),
            ("a biscuit tin on the shelf", "the biscuit tins"),
            ("the library's batteries", "library battery"),
            ("the walrus operator", "walrus"),
            ("set `PYTHONNOUSERSITE`.", "PYTHONNOUSERSITE"),
            ("It is __qualname__.", "__qualname__"),
            ("the data-yanked attribute", "data-yanked"),
            ("version 1.1.1.", "1.1.1"),
            ("Not 5 but 7", "7"),
            ("not only 5 but 7", "5"),
            ("It is five, not seven.", "five"),
            ("It was not set to 5 but to 7.", "7"),
            ("PEP 20 has 20 aphorisms.", "20"),
            ("20, says PEP 20.", "20"),
            ("It is PEP 20.", "PEP 20"),
            ("It is not only set to 7.", "7"),
            ("It\N{RIGHT SINGLE QUOTATION MARK}s Margit\N{RIGHT SINGLE QUOTATION MARK}s", "Margit"),
        ],
    )
    def test_other_spellings_of_the_answer_count(self, text: str, accepted: str) -> None:
        assert right(text, [accepted.split("|")])

    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("It has 40 gears.", "4"),
            ("It has 4.5 gears.", "4"),
            ("forty-four", "4"),
            ("Python 3.12", "3.1"),
            ("version 1.1.10", "1.1.1"),
            ("one hundred and four", "4"),
            ("7,000 names", "7"),
            ("on 17 October", "7 October"),
            ("on 7 November", "7 October"),
            ("7 October 2024", "7 October 2025"),
            ("in October", "7 October"),
            ("Margitta", "Margit"),
            ("the glasses", "glass door"),
            ("Not 5 but 7", "5"),
            ("It isn't 5.", "5"),
            ("It is not called Pixel.", "Pixel"),
            ("not Dr Farkas", "Farkas"),
            ("Anna rather than Ruth", "Ruth"),
            ("The pressure was not set to 1.7 bar.", "1.7"),
            ("She is never taught by Madame Oriol.", "Oriol"),
            ("It has many aphorisms (PEP 20).", "20"),
            ("PEP-20 has 21 aphorisms.", "20"),
            ("", "5"),
        ],
    )
    def test_what_is_like_the_answer_does_not(self, text: str, accepted: str) -> None:
        assert not right(text, [[accepted]])

    def test_every_part_is_needed(self) -> None:
        parts = (("Ruth Okonjo", "Ruth"), ("walrus",))
        assert right("It is the walrus operator, as Ruth decided.", parts)
        assert not right("Ruth decided it.", parts)
        assert not right("It is the walrus operator.", parts)

    def test_a_wrong_alternative_spoils_it(self) -> None:
        assert not right("It is 5 or 7.", [["5"]], ["7"])
        assert right("It is 5, not 7.", [["5"]], ["7"])


class TestAbstains:
    @pytest.mark.parametrize(
        "text",
        [
            "I don't know.",
            "I don\N{RIGHT SINGLE QUOTATION MARK}t know the dentist's number.",
            "I do not have any information about the dentist.",
            "I'm not sure what the number is.",
            "I cannot find the dentist's telephone number in the text.",
            "I'm unable to answer this.",
            "The text does not mention the dentist's number.",
            "The text above doesn't explicitly state who repaired it.",
            "The provided text doesn't provide the telephone number of the dentist.",
            "The documents do not contain any information about that.",
            "The number is not mentioned in the text.",
            "The price of the bicycle is not specified.",
            "It is not clear who repaired the projector.",
            "There is no information about the projector's repair.",
            "No document says this.",
            "The year cannot be determined from the text.",
            "Not mentioned.",
            "Unknown",
            "Insufficient information.",
            "The dentist is Doctor Farkas, but the text does not say her number.",
            "I don't know, but you can ask your dentist.",
            "The text does not mention it. It is a private matter.",
            "I don't know. However, it is not stated anywhere.",
        ],
    )
    def test_that_it_does_not_know(self, text: str) -> None:
        assert abstains(text)

    @pytest.mark.parametrize(
        "text",
        [
            "I don't know ... but it's 14",
            "I don't know, but it is 14.",
            "I do not know. It is 14.",
            "I don't know, probably 14.",
            "I'm not sure, but I think the number is 14.",
            "The text does not say who repaired it, but it was Anselm.",
            "The text does not say it, but Anselm repaired it.",
            "The text doesn't mention the year. It was in 1998.",
            "It is 14. The text does not say more.",
            "14",
            "It is not 14 but 15.",
            "The variable is not available on Windows.",
            "The parser does not have a keyword for it.",
            "Not only Ruth but also Anselm knows.",
            "Nobody has time before autumn.",
            "The PEP does not provide a new keyword.",
            "The operator is not known to the parser before version 3.8.",
            "The argument must not be given twice.",
            "",
        ],
    )
    def test_that_it_does(self, text: str) -> None:
        assert not abstains(text)
