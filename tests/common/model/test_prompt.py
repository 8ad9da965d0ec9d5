from __future__ import annotations

import pytest

from common.model.prompt import PromptFormat
from common.model.tokenizer import Tokenizer
from tests.common.model.tiny_models import DEMO, byte_level_tokenizer, sentencepiece_tokenizer

DEMO_TOKENIZER = Tokenizer.load(str(DEMO / "tokenizer"))


class TestRows:
    def test_a_row_reads_as_one_text(self) -> None:
        prompt = PromptFormat()
        document = prompt.document_tokens(DEMO_TOKENIZER, "Mona likes tea.")
        query = prompt.query_tokens(DEMO_TOKENIZER, "What does Mona like?")
        assert document[0] == DEMO_TOKENIZER.begin
        text = " Mona likes tea.\nQuestion: What does Mona like?\nAnswer:"
        assert DEMO_TOKENIZER.decode(document + query) == text

    def test_braces_in_documents_and_questions_are_text(self) -> None:
        prompt = PromptFormat()
        tokens = prompt.document_tokens(DEMO_TOKENIZER, "{question} {document} {0.x}")
        assert DEMO_TOKENIZER.decode(tokens) == " {question} {document} {0.x}"
        assert prompt.query_text("{document}?") == "\nQuestion: {document}?\nAnswer:"

    def test_long_documents_are_cut_to_the_budget(self) -> None:
        prompt = PromptFormat()
        whole = prompt.document_tokens(DEMO_TOKENIZER, "Mona likes tea. " * 20)
        assert prompt.document_tokens(DEMO_TOKENIZER, "Mona likes tea. " * 20, 12) == whole[:12]
        assert prompt.document_tokens(DEMO_TOKENIZER, "Mona likes tea. " * 20, 5_000) == whole

    def test_the_end_of_the_template_survives_the_cut(self) -> None:
        prompt = PromptFormat(document="<doc>{document}</doc>")
        tokens = prompt.document_tokens(DEMO_TOKENIZER, "Mona likes tea. " * 20, 20)
        assert len(tokens) == 20
        assert DEMO_TOKENIZER.decode(tokens).endswith("</doc>")
        with pytest.raises(ValueError, match="budget"):
            prompt.document_tokens(DEMO_TOKENIZER, "Mona", 2)

    def test_begin_token_of_the_tokenizer(self) -> None:
        sentencepiece = Tokenizer(sentencepiece_tokenizer())
        assert PromptFormat().document_tokens(sentencepiece, "the")[0] == 1
        nothing = byte_level_tokenizer()
        nothing.eos_token = None
        tokenizer = Tokenizer(nothing)
        assert PromptFormat().document_tokens(tokenizer, "a") == tokenizer.encode(" a")

    @pytest.mark.parametrize("template", ["no place", "{document} and {document}"])
    def test_templates_without_their_place(self, template: str) -> None:
        with pytest.raises(ValueError, match="exactly once"):
            PromptFormat(document=template)
        with pytest.raises(ValueError, match="exactly once"):
            PromptFormat(query=template)
