"""Citations: words of an answer that are said to be a document's."""

from __future__ import annotations

import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.answer.citations import (
    LONGEST_QUOTE,
    MOST_ATOMS,
    AttributedText,
    Citation,
    Influence,
    Quote,
    Sentence,
    citations,
    cited_sources,
    parts,
    sentences,
)
from common.answer.wording import atoms, pieces_of

PIECES = ["The", " cat", "", " sat"]


class TestParts:
    def test_consecutive_tokens_of_one_source_are_one_part(self) -> None:
        found = parts([[0.6, 0.4], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7]], PIECES)
        assert [(part.source, part.text) for part in found] == [(0, "The cat"), (1, " sat")]
        assert [part.share for part in found] == pytest.approx([0.7, 0.7])

    def test_half_a_character_is_no_part_of_its_own(self) -> None:
        found = parts([[0.6, 0.4], [0.8, 0.2], [0.1, 0.9], [0.6, 0.4]], PIECES)
        assert [part.text for part in found] == ["The cat sat"]

    def test_no_document_is_not_the_first_document(self) -> None:
        assert parts([[0.0, 0.0]] * 4, PIECES) == [AttributedText(None, 1.0, "The cat sat")]

    def test_what_no_document_made_likelier_is_no_document_s(self) -> None:
        found = parts([[0.2, 0.1], [0.6, 0.1], [0.6, 0.1], [0.1, 0.2]], PIECES)
        assert [(part.source, part.text) for part in found] == [(None, "The"), (0, " cat"), (None, " sat")]

    def test_parts_end_at_words(self) -> None:
        """The name is one word, most of which one document says."""
        found = parts([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.1, 0.9]], [" Rit", "chie", ",", " was"])
        assert [(part.source, part.text) for part in found] == [(0, " Ritchie,"), (1, " was")]

    def test_a_word_is_the_documents_that_began_it(self) -> None:
        """Behind its first token the model would have gone on by itself."""
        found = parts([[0.99, 0.0], [0.2, 0.0], [0.05, 0.0]], [" cell", "ar", ","])
        assert [(part.source, part.text) for part in found] == [(0, " cellar,")]
        assert found[0].share > 0.99

    def test_every_piece_appears_once_in_order(self) -> None:
        found = parts([[0.6, 0.4], [0.1, 0.9]] * 2, PIECES)
        assert "".join(part.text for part in found) == "".join(PIECES)

    def test_none_recorded(self) -> None:
        assert parts([], PIECES) == []


NOTE = (
    "Rental notes.\nThe landlord is Mr Teodor Vance of Larch Street Properties. The rent of 90 euros is due on 3 March"
    " 2026.\nMy Brompton is green. It has six gears and a new spoke, and was bought in Ghent in 2014."
)


def tokens_of(text: str) -> list[str]:
    """A token for each word, with the space before it."""
    return re.findall(r"\s*\S+", text)


def quoted(answer: str, passage: str = NOTE, share: float = 0.9) -> list[tuple[str, list[str], tuple[str, ...]]]:
    """Of each quote of `passage` the text, the answer's words in it, and the words that differ."""
    pieces = tokens_of(answer)
    (citation,) = citations([[share]] * len(pieces), pieces, [passage]) or [Citation(0, ())]
    return [
        (quote.text, ["".join(pieces[first:end]).strip() for first, end in quote.tokens], quote.differs)
        for quote in citation.quotes
    ]


class TestCitations:
    def test_a_quote_is_the_passages_sentence_with_the_words_that_stand_there(self) -> None:
        assert quoted("It has six gears.") == [
            ("It has six gears and a new spoke, and was bought in Ghent in 2014.", ["It has six gears."], ())
        ]

    def test_a_name_that_differs_by_a_letter_is_not_marked_but_told(self) -> None:
        assert quoted("Mr. Teodore Vance, who is the owner of Larch Street Properties") == [
            (
                "The landlord is Mr Teodor Vance of Larch Street Properties.",
                ["Mr.", "Vance,", "of Larch Street Properties"],
                ("Teodor",),
            )
        ]

    def test_a_number_that_differs_by_a_digit_is_not_marked_but_told(self) -> None:
        assert quoted("It is due on 3 March 2027.") == [
            ("The rent of 90 euros is due on 3 March 2026.", ["is due on 3 March"], ("2026",))
        ]

    def test_an_invented_name_is_not_a_word_of_the_passage(self) -> None:
        """The passage has a spoke, and no company of that name."""
        assert quoted("A British company, Bike & Spoke, made it.") == []

    def test_words_that_any_text_has_are_no_reason_to_quote_it(self) -> None:
        assert quoted("It was of the in on.") == []
        assert quoted("That is the colour of it: blue.") == []

    def test_words_of_two_sentences_are_two_quotes_in_the_order_of_the_answer(self) -> None:
        found = quoted("Bought in Ghent by Teodor Vance")
        assert [(text[:8], marked) for text, marked, _ in found] == [
            ("It has s", ["Bought in Ghent"]),
            ("The land", ["Teodor Vance"]),
        ]

    def test_numbers_may_be_spelled_out(self) -> None:
        assert [marked for _, marked, _ in quoted("6 gears")] == [["6 gears"]]

    def test_the_nearest_of_several_places_is_quoted(self) -> None:
        passage = "Box 4 has nails. Box 5 has screws. Box 6 has nails and glue."
        assert [text for text, _, _ in quoted("Glue and nails", passage)] == ["Box 6 has nails and glue."]

    def test_what_is_hardly_likelier_is_not_cited(self) -> None:
        assert quoted("The rent of 90 euros", share=0.7) == []

    def test_a_quote_begins_and_ends_with_likelier_words(self) -> None:
        pieces, rows = tokens_of("The rent of 90 euros is due"), [[0.5], [0.9], [0.2], [0.9], [0.55], [0.55], [0.55]]
        rows[2] = [0.55]
        (citation,) = citations(rows, pieces, [NOTE]) or []
        assert [quote.tokens for quote in citation.quotes] == [((1, 4),)]

    def test_a_heading_goes_on_with_its_text(self) -> None:
        passage = "# Dentist\n\nDr Novak, on Tuesday.\n\nBring the card."
        assert [text for text, _, _ in quoted("My dentist", passage)] == ["# Dentist\n\nDr Novak, on Tuesday."]

    def test_possessives_are_words_of_their_name(self) -> None:
        assert [marked for _, marked, _ in quoted("Vance's house")] == [["Vance's"]]

    def test_sentences_that_are_long_are_cut_between_words(self) -> None:
        passage = "word " * 200 + "Ghent " + "word " * 200
        ((text, marked, _),) = quoted("in Ghent", passage)
        assert marked == ["Ghent"]
        assert len(text) <= LONGEST_QUOTE
        assert set(text.split()) == {"word", "Ghent"}

    def test_without_spaces(self) -> None:
        passage = "私の猫は毎日60グラムの餌を食べます。犬はいません。"
        pieces = ["猫", "は", "60", "グラム"]
        (citation,) = citations([[0.9]] * 4, pieces, [passage]) or []
        assert [quote.text for quote in citation.quotes] == ["私の猫は毎日60グラムの餌を食べます。"]

    def test_several_documents_in_the_order_of_the_answer(self) -> None:
        rows = [[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]
        found = citations(rows, PIECES, ["A cat.", "They sat."])
        assert found == [Citation(0, (Quote("A cat.", ((1, 2),)),)), Citation(1, (Quote("They sat.", ((3, 4),)),))]

    def test_a_text_that_is_not_known_is_not_quoted(self) -> None:
        rows = [[0.9, 0.0]] * 4
        assert citations(rows, PIECES, [None, "The cat sat."]) == []
        assert citations(rows, PIECES, []) == []

    def test_an_answer_that_no_document_made_likelier_has_none(self) -> None:
        assert citations([[0.1, 0.2]] * 4, PIECES, ["The cat sat."] * 2) == []

    def test_nothing_is_known_of_one_row_with_all_documents(self) -> None:
        assert citations([], PIECES, []) is None

    @given(st.data())
    def test_every_quote_is_in_its_passage_and_has_the_marked_words(self, data: st.DataObject) -> None:
        """Whatever the answer and the passage are."""
        vocabulary = [
            "Vance",
            "vance",
            "Vence",
            "the",
            "90",
            "91",
            "1990",
            "1991",
            "猫",
            "は",
            "x-ray",
            "é",
            "–",
            "end.",
        ]
        passage_words = data.draw(st.lists(st.sampled_from(vocabulary), min_size=1, max_size=40))
        passage = "".join(word + data.draw(st.sampled_from([" ", "\n", "  "])) for word in passage_words)
        pieces = [f" {word}" for word in data.draw(st.lists(st.sampled_from(vocabulary), max_size=30))]
        rows = [[data.draw(st.sampled_from([0.0, 0.6, 0.8, 1.0]))] for _ in pieces]
        for citation in citations(rows, pieces, [passage]) or []:
            for quote in citation.quotes:
                assert quote.text
                assert quote.text in passage
                stand = [atom for start, end in pieces_of(quote.text) for atom in atoms(quote.text[start:end])]
                for first, end in quote.tokens:
                    assert all(set(atoms(piece)) <= set(stand) for piece in pieces[first:end])
                assert all(word in quote.text for word in quote.differs)
        marked = self._marked(rows, pieces, passage)
        assert len(set(marked)) == len(marked)

    @staticmethod
    def _marked(rows: list[list[float]], pieces: list[str], passage: str) -> list[int]:
        """The tokens that are marked, each as often as it is."""
        return [
            token
            for citation in citations(rows, pieces, [passage]) or []
            for quote in citation.quotes
            for first, end in quote.tokens
            for token in range(first, end)
        ]

    def test_hostile_texts_take_no_time(self) -> None:
        """A cloud's text may repeat a word thousands of times, and so may an answer."""
        began = time.process_time()
        citations([[0.9]] * 4096, [" Ab1"] * 4096, ["Ab1 " * 2 * MOST_ATOMS])
        near = [f" Abcdefgh{number}" for number in range(512)]
        citations([[0.9]] * 512, near, ["".join(f"Abcdefgi{number} " for number in range(MOST_ATOMS))])
        assert time.process_time() - began < 20.0


def test_sources_that_may_be_cited() -> None:
    """As `citations` finds them, without their texts."""
    rows = [[0.9, 0.0, 0.1], [0.1, 0.8, 0.0], [0.1, 0.8, 0.0], [0.5, 0.0, 0.5]]
    assert cited_sources(rows, PIECES) == {0, 1}, "the last word is two documents' alike"
    assert cited_sources([], PIECES) == set()


class TestSentences:
    PIECES = ("It", " has", " six", " gears", ".", " They", " work", ".")

    def test_the_documents_that_made_a_difference_are_told_with_how_much(self) -> None:
        rows = [[0.0, 0.0]] * 2 + [[0.6, 0.3], [0.0, 0.1]] + [[0.0, 0.0]] * 4
        first, second = sentences(rows, self.PIECES)
        nats = -math.log(0.1)  # of " six", two thirds of it the first document's
        assert first == Sentence("It has six gears.", (Influence(0, round(nats * 2 / 3, 2)),)), "the second has .87"
        assert second == Sentence("They work.", ())

    def test_small_differences_add_up(self) -> None:
        rows = [[0.3, 0.0]] * 8
        assert [len(each.documents) for each in sentences(rows, self.PIECES)] == [1, 1]
        assert [len(each.documents) for each in sentences([[0.1, 0.0]] * 8, self.PIECES)] == [0, 0]

    def test_a_certain_token_tells_a_finite_number(self) -> None:
        (sentence,) = sentences([[1.0, 0.0]], ["Yes"])
        assert sentence.documents == (Influence(0, round(-math.log(1e-4), 2)),)

    def test_lines_are_sentences_and_half_characters_belong_to_theirs(self) -> None:
        found = sentences([[0.0]] * 6, ["One", "\n\n", "", "two", " 3.5", " four"])
        assert [each.text for each in found] == ["One", "two 3.5 four"]

    def test_none_recorded(self) -> None:
        assert sentences([], self.PIECES) == []
