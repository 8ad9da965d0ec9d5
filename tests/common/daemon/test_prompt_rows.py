"""Rows made from documents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from common.answer.report import Record
from common.answer.request import RequestError
from common.daemon.model_runtime import Document, ModelRuntime, PromptRows, cut_document, one_row, rows
from common.engine.model.prompt import TextFormat
from common.library.chunks import MOST_CHARACTERS_PER_TOKEN
from tests.common.engine.model.test_tokenizer import DEMO_TOKENIZER

BEGIN = (1,)
QUERY = (90, 91)
NEAR, MIDDLE, FAR = (
    Document(title, (*BEGIN, *tokens), similarity, title)
    for title, tokens, similarity in (("near", (10, 11), 0.9), ("middle", (20, 21, 22), 0.5), ("far", (30,), 0.1))
)


class TestOneRow:
    def test_the_most_similar_comes_last(self) -> None:
        found = one_row(QUERY, [FAR, NEAR], [MIDDLE], BEGIN, room=100)
        assert found.prompt.documents == ((*BEGIN, 30, 20, 21, 22, 10, 11),)
        assert (found.titles, found.fetched_titles) == (("far", "near"), ("middle",))
        assert found.tokens == 9
        assert found.prompt.fetched == 0

    def test_the_least_similar_are_cut(self) -> None:
        found = one_row(QUERY, [FAR, NEAR], [MIDDLE], BEGIN, room=5)
        assert found.prompt.documents == ((*BEGIN, 20, 21, 10, 11),)
        assert (found.titles, found.fetched_titles, found.texts) == (("near",), ("middle",), ("near", "middle"))

    def test_without_a_begin_token(self) -> None:
        documents = [Document("a", (1, 5), 0.2, "a"), Document("b", (6,), 0.3, "b")]
        assert one_row(QUERY, documents, [], (), room=9).prompt.documents == ((1, 5, 6),)

    def test_with_a_beginning_of_several_tokens(self) -> None:
        documents = [
            Document("a", (1, 2, 5), 0.2, "a"),
            Document("b", (1, 2, 6), 0.3, "b"),
            Document("c", (1, 7), 0.1, "c"),
        ]
        assert one_row(QUERY, documents, [], (1, 2), room=9).prompt.documents == ((1, 2, 1, 7, 5, 6),)

    def test_nothing_fits_or_nothing_is_there(self) -> None:
        for own, room in (([NEAR], 1), ([], 100)):
            prompt = one_row(QUERY, own, [], BEGIN, room).prompt
            assert (prompt.documents, prompt.absent) == ((BEGIN,), True)


class TestRows:
    def test_fetched_ones_come_last_and_are_told_apart(self) -> None:
        found = rows(QUERY, [NEAR], [MIDDLE, FAR], BEGIN)
        assert found.prompt.documents == (NEAR.tokens, MIDDLE.tokens, FAR.tokens)
        assert found.prompt.fetched == 2
        assert (found.titles, found.fetched_titles) == (("near",), ("middle", "far"))

    def test_alone_they_are_all_there_is(self) -> None:
        """No row stands for the documents that the device has not: it has no weight."""
        found = rows(QUERY, [], [MIDDLE], BEGIN)
        assert (found.prompt.documents, found.prompt.fetched, found.prompt.absent) == ((MIDDLE.tokens,), 0, False)

    def test_without_any(self) -> None:
        prompt = rows(QUERY, [], [], BEGIN).prompt
        assert (prompt.documents, prompt.absent) == ((BEGIN,), True)


class TestWhatHadNoRoom:
    """Documents of which the model has read a part, or nothing: the report says so."""

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            (rows(QUERY, [NEAR], [MIDDLE], BEGIN), None),
            (
                rows(QUERY, [cut_document(NEAR, 2)], [cut_document(MIDDLE, 4), cut_document(FAR, 1)], BEGIN),
                "2 of 3 documents",
            ),
            (one_row(QUERY, [FAR, NEAR], [MIDDLE], BEGIN, room=7), None),
            (one_row(QUERY, [FAR, NEAR], [MIDDLE], BEGIN, room=5), "2 of 3 documents"),
            (one_row(QUERY, [FAR, cut_document(NEAR, 2)], [MIDDLE], BEGIN, room=7), "1 of 3 documents"),
            (one_row(QUERY, [NEAR], [], BEGIN, room=1), "1 of 1 documents"),
            (one_row(QUERY, [], [], BEGIN, room=0), None),
        ],
    )
    def test_is_noted(self, found: PromptRows, said: str | None) -> None:
        record = Record(0.0, 1, 2)
        found.note(record)
        assert len(record.notes) == (said is not None)
        assert said is None or f"of the model's context: {said} were cut or left out" in record.notes[0]


class CountingFormat(TextFormat):
    """Counts the characters that it makes tokens of."""

    def __init__(self) -> None:
        super().__init__(DEMO_TOKENIZER, "<doc>{document}</doc>")
        self.characters = 0

    def document_tokens(self, text: str, budget: int | None = None) -> list[int]:
        self.characters += len(text)
        return super().document_tokens(text, budget)


class TestDocument:
    """A passage in the document format."""

    @pytest.fixture
    def form(self) -> CountingFormat:
        return CountingFormat()

    @pytest.fixture
    def model(self, form: CountingFormat) -> ModelRuntime:
        nothing: Any = SimpleNamespace(max_context=64)
        return ModelRuntime(nothing, nothing, nothing, form, nothing)

    def test_is_what_the_format_makes_of_it(self, model: ModelRuntime, form: CountingFormat) -> None:
        text = "The kettle is red, and the tea is from Assam. " * 3
        whole = len(form.document_tokens(text))
        for room in range(len(form.document_tokens("")), whole + 2):
            assert model.document("title", text, 0.5, room).tokens == tuple(form.document_tokens(text, room))

    def test_no_more_of_a_long_text_is_encoded_than_has_room(self, model: ModelRuntime, form: CountingFormat) -> None:
        """The cloud may send a megabyte, and other answers' searches wait for the thread that encodes it."""
        found = model.document("title", "kettle " * 150_000, 0.5, 100)
        assert (len(found.tokens), found.cut) == (100, True)
        assert form.characters <= 100 * MOST_CHARACTERS_PER_TOKEN

    def test_is_encoded_once(self, model: ModelRuntime, form: CountingFormat) -> None:
        text = "kettle " * 150
        assert model.document("title", text, 0.5, 100).cut
        assert form.characters == len(text)

    def test_is_cut_to_the_room(self, model: ModelRuntime) -> None:
        whole = model.document("title", "text " * 40, 0.5).tokens
        cut = model.document("title", "text " * 40, 0.5, 20).tokens
        assert (len(cut), cut[:3], cut[-2:]) == (20, whole[:3], whole[-2:])

    def test_knows_that_it_was(self, model: ModelRuntime) -> None:
        whole = len(model.document("title", "text " * 5, 0.5).tokens)
        told = [model.document("title", "text " * 5, 0.5, room).cut for room in (None, whole + 1, whole, whole - 1)]
        assert told == [False, False, False, True]

    @pytest.mark.parametrize("room", [-3, 0, 1])
    def test_a_question_that_leaves_no_room_for_one_is_too_long(self, model: ModelRuntime, room: int) -> None:
        with pytest.raises(RequestError, match="The question is too long: the model's context has 64 tokens") as told:
            model.document("title", "text", 0.5, room)
        assert told.value.field == "prompt"
