"""Citations: words of an answer that are said to be a document's."""

from __future__ import annotations

import math

import pytest

from device.citations import Citation, Part, Sentence, Told, citations, parts, sentences

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
        assert parts([[0.0, 0.0]] * 4, PIECES) == [Part(None, 1.0, "The cat sat")]

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


class TestCitations:
    def test_quotes_are_by_document_in_the_order_of_the_answer(self) -> None:
        rows = [[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]
        assert citations(rows, PIECES, [(0, 1)] * 4) == [Citation(1, ("The", "sat")), Citation(0, ("cat",))]

    def test_a_word_that_its_document_lacks_is_not_cited(self) -> None:
        rows = [[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]
        assert citations(rows, PIECES, [(0,), (1,), (1,), (1,)]) == [Citation(1, ("sat",))]
        assert citations(rows, PIECES, []) == []

    def test_quotes_begin_and_end_with_words_that_stand_there(self) -> None:
        pieces = ["So", " it", " is", " a", " fine", " cat", " indeed", "."]
        standing = [(), (0,), (0,), (), (), (0,), (), ()]
        rows = [[0.9]] * 2 + [[0.7]] + [[0.9]] * 5
        assert citations(rows, pieces, standing) == [Citation(0, ("it is a fine cat",))]
        rows[1] = [0.7]
        assert citations(rows, pieces, standing) == [Citation(0, ("cat",))], "hardly likelier is no end of a quote"

    def test_no_quote_goes_over_a_number_that_its_document_lacks(self) -> None:
        pieces = ["on", " the", " 1", "2", "th", " of", " May"]
        rows, standing = [[0.9]] * 7, [(0,), (0,), (), (), (), (0,), (0,)]
        assert citations(rows, pieces, standing) == [Citation(0, ("on the", "of May"))]
        assert citations(rows, pieces, [(0,)] * 7) == [Citation(0, ("on the 12th of May",))]

    def test_what_is_hardly_likelier_is_not_cited(self) -> None:
        rows = [[0.55, 0.0], [0.55, 0.0], [0.55, 0.0], [0.0, 0.9]]
        assert citations(rows, PIECES, [(0, 1)] * 4) == [Citation(1, ("sat",))]

    def test_an_answer_that_no_document_made_likelier_has_none(self) -> None:
        assert citations([[0.1, 0.2]] * 4, PIECES, [(0, 1)] * 4) == []

    def test_nothing_is_known_of_one_row_with_all_documents(self) -> None:
        assert citations([], PIECES, []) is None


class TestSentences:
    PIECES = ("It", " has", " six", " gears", ".", " They", " work", ".")

    def test_the_documents_that_made_a_difference_are_told_with_how_much(self) -> None:
        rows = [[0.0, 0.0]] * 2 + [[0.6, 0.3], [0.0, 0.1]] + [[0.0, 0.0]] * 4
        first, second = sentences(rows, self.PIECES)
        nats = -math.log(0.1)  # of " six", two thirds of it the first document's
        assert first == Sentence("It has six gears.", (Told(0, round(nats * 2 / 3, 2)),)), "the second has .87"
        assert second == Sentence("They work.", ())

    def test_small_differences_add_up(self) -> None:
        rows = [[0.3, 0.0]] * 8
        assert [len(each.documents) for each in sentences(rows, self.PIECES)] == [1, 1]
        assert [len(each.documents) for each in sentences([[0.1, 0.0]] * 8, self.PIECES)] == [0, 0]

    def test_a_certain_token_tells_a_finite_number(self) -> None:
        (sentence,) = sentences([[1.0, 0.0]], ["Yes"])
        assert sentence.documents == (Told(0, round(-math.log(1e-4), 2)),)

    def test_lines_are_sentences_and_half_characters_belong_to_theirs(self) -> None:
        found = sentences([[0.0]] * 6, ["One", "\n\n", "", "two", " 3.5", " four"])
        assert [each.text for each in found] == ["One", "two 3.5 four"]

    def test_none_recorded(self) -> None:
        assert sentences([], self.PIECES) == []
