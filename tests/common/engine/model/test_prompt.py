from __future__ import annotations

import pytest

from common.engine.model.prompt import Conversation, TextFormat, Turn, query_tokens, text_query
from common.engine.model.tokenizer import Tokenizer
from proto.messages import Control
from tests.common.engine.model.tiny_models import DEMO, byte_level_tokenizer, sentencepiece_tokenizer

DEMO_TOKENIZER = Tokenizer.load(str(DEMO / "tokenizer"))


class TestRows:
    def test_a_row_reads_as_one_text(self) -> None:
        prompt = TextFormat(DEMO_TOKENIZER)
        document = prompt.document_tokens("Mona likes tea.")
        query = DEMO_TOKENIZER.encode(prompt.query(Conversation.of("What does Mona like?")).text)
        assert document[0] == DEMO_TOKENIZER.begin
        text = " Mona likes tea.\nQuestion: What does Mona like?\nAnswer:"
        assert DEMO_TOKENIZER.decode(document + query) == text

    def test_braces_in_documents_and_questions_are_text(self) -> None:
        prompt = TextFormat(DEMO_TOKENIZER)
        tokens = prompt.document_tokens("{question} {document} {0.x}")
        assert DEMO_TOKENIZER.decode(tokens) == " {question} {document} {0.x}"
        assert prompt.query(Conversation.of("{document}?")).text == "\nQuestion: {document}?\nAnswer:"

    def test_long_documents_are_cut_to_the_budget(self) -> None:
        prompt = TextFormat(DEMO_TOKENIZER)
        whole = prompt.document_tokens("Mona likes tea. " * 20)
        assert prompt.document_tokens("Mona likes tea. " * 20, 12) == whole[:12]
        assert prompt.document_tokens("Mona likes tea. " * 20, 5_000) == whole

    def test_the_end_of_the_template_survives_the_cut(self) -> None:
        prompt = TextFormat(DEMO_TOKENIZER, document="<doc>{document}</doc>")
        tokens = prompt.document_tokens("Mona likes tea. " * 20, 20)
        assert len(tokens) == 20
        assert DEMO_TOKENIZER.decode(tokens).endswith("</doc>")
        with pytest.raises(ValueError, match="budget"):
            prompt.document_tokens("Mona", 2)

    def test_begin_token_of_the_tokenizer(self) -> None:
        sentencepiece = Tokenizer(sentencepiece_tokenizer())
        assert TextFormat(sentencepiece).document_tokens("the")[0] == 1
        nothing = byte_level_tokenizer()
        nothing.eos_token = None
        tokenizer = Tokenizer(nothing)
        assert TextFormat(tokenizer).document_tokens("a") == tokenizer.encode(" a")

    @pytest.mark.parametrize("template", ["no place", "{document} and {document}"])
    def test_templates_without_their_place(self, template: str) -> None:
        with pytest.raises(ValueError, match="exactly once"):
            TextFormat(DEMO_TOKENIZER, document=template)
        with pytest.raises(ValueError, match="exactly once"):
            TextFormat(DEMO_TOKENIZER, query=template)


class TestQuery:
    def test_history_and_instructions(self) -> None:
        turns = (Turn("assistant", "Hi!"), Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"))
        assert text_query(Conversation(turns, ("Be brief.",)), "[{question}]").text == "\nBe brief.\nHi![a] b[c]"

    def test_an_answer_that_is_begun_is_gone_on_from(self) -> None:
        assert text_query(Conversation((Turn("user", "a"),), begun="It is"), "[{question}]").text == "[a] It is"

    def test_control_tokens_stand_where_they_are_placed(self) -> None:
        controls = [Control(0, 7), Control(2, 8), Control(2, 9), Control(5, 6)]
        tokens = query_tokens(DEMO_TOKENIZER, "ab cd", controls)
        ab, cd = DEMO_TOKENIZER.encode("ab"), DEMO_TOKENIZER.encode(" cd")
        assert tokens == [7, *ab, 8, 9, *cd, 6]
        assert query_tokens(DEMO_TOKENIZER, "ab cd", []) == DEMO_TOKENIZER.encode("ab cd")

    @pytest.mark.parametrize("places", [[3, 2], [6]])
    def test_control_tokens_out_of_place(self, places: list[int]) -> None:
        with pytest.raises(ValueError, match="order"):
            query_tokens(DEMO_TOKENIZER, "ab cd", [Control(place, 1) for place in places])
