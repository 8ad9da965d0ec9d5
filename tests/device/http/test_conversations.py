"""Conversion of messages to a conversation, and the prompt that comes out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.engine.model.prompt import text_query
from device.http.errors import ApiError
from device.http.prompts import read_conversation
from device.http.schema import ChatMessage
from tests.device.http.asking import ask_chat, chat, completion, turn


class TestConversation:
    def test_one_question(self) -> None:
        request = chat(turn("user", " Who? "))
        assert (request.question, request.prompt) == ("Who?", "\nQuestion: Who?\nAnswer:")

    def test_braces_in_a_question_are_text(self) -> None:
        request = chat(turn("user", "{question} {0} {"))
        assert request.prompt == "\nQuestion: {question} {0} {\nAnswer:"

    def test_so_are_other_braces_of_the_query_format(self) -> None:
        message = ChatMessage(role="user", content="a")
        assert text_query(read_conversation([message]), '{"q": {question}}{}').text == '{"q": a}{}'

    def test_system_and_developer_messages_come_first(self) -> None:
        request = chat(turn("user", "a"), turn("assistant", "b"), turn("developer", "D"), turn("user", "c"))
        assert request.prompt == "\nD\nQuestion: a\nAnswer: b\nQuestion: c\nAnswer:"
        assert request.question == "c"

    def test_an_opening_line_of_the_assistant_is_kept(self) -> None:
        assert chat(turn("assistant", "Hi!"), turn("user", "a")).prompt == "\nHi!\nQuestion: a\nAnswer:"

    def test_consecutive_user_messages_are_one_question(self) -> None:
        request = chat(turn("user", "a"), turn("user", "b"))
        assert (request.question, request.prompt) == ("a\nb", "\nQuestion: a\nb\nAnswer:")

    def test_a_last_turn_of_the_assistant_is_gone_on_from(self) -> None:
        request = chat(turn("user", "a"), turn("assistant", "It is"))
        assert (request.question, request.prompt) == ("a", "\nQuestion: a\nAnswer: It is")
        assert chat(turn("user", "a"), turn("assistant", "")).prompt == "\nQuestion: a\nAnswer:"

    def test_what_clients_send_back_with_a_turn_is_taken(self) -> None:
        answer = turn("assistant", "b") | {"refusal": None, "annotations": [], "tool_calls": []}
        asked = ask_chat(turn("user", "a"), answer, turn("user", "c") | {"name": "Ada"})
        assert not asked.notes
        (note,) = ask_chat(turn("user", "a") | {"weight": 2}).notes
        assert "'messages.weight'" in note

    def test_text_parts_are_joined(self) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert chat(turn("user", parts)).question == "a\nb"

    @pytest.mark.parametrize("longest", ["user", "assistant"])
    def test_a_long_one_is_not_taken_for_a_long_question(self, longest: str) -> None:
        turns = [turn(role, "x" * (2**18 if role == longest else 1)) for role in ("user", "assistant")]
        with pytest.raises(ApiError, match="The conversation is longer than 262144 bytes: begin a new one"):
            chat(*turns, turn("user", "a"))
        with pytest.raises(ApiError, match="The question is longer than 16384 bytes"):
            chat(turn("user", "x" * 17_000))

    def test_the_two_questions_before_count_in_the_search(self) -> None:
        turns = [turn(role, f"{role} {n}") for n in range(4) for role in ("user", "assistant")]
        asked = chat(turn("system", "Be brief."), *turns, turn("user", "And then?"))
        assert (asked.question, asked.earlier) == ("And then?", "user 2\nuser 3")
        assert chat(turn("user", "First?")).earlier == ""
        assert chat(turn("user", "ü" * 5000), turn("assistant", "a"), turn("user", "b")).earlier == "ü" * 2048

    def test_the_turns_before_the_question_are_measured(self) -> None:
        """Instructions and what tools say to the question are no earlier turns."""
        instructions, question = turn("system", "Be brief."), turn("user", "And then?")
        alone = chat(instructions, question)
        followed = chat(instructions, turn("user", "Wo ist Überlingen?"), turn("assistant", "Am See."), question)
        assert alone.history == 0
        assert followed.history == len(followed.prompt.encode()) - len(alone.prompt.encode()) > 19 + 7
        assert completion(prompt="Wo? Am See. And then?").history == 0

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [turn("system", "x")],
            [turn("assistant", "y")],
            [turn("user", "")],
            [turn("user", " \n\t")],
            [turn("user", [])],
            [turn("tool", "x")],
            [turn("user", [{"type": "image_url", "image_url": {"url": "x"}}])],
            [turn("user", [{"type": "text", "text": 5}])],
            [turn("user", [{"type": "text"}])],
            [turn("user", 5)],
            [turn("assistant", "x") | {"tool_calls": [{"id": "1"}]}, turn("user", "x")],
            [turn("assistant", "x") | {"tool_calls": {}}, turn("user", "x")],
            ["x"],
        ],
    )
    def test_no_question_is_refused(self, messages: list[Any]) -> None:
        with pytest.raises(ApiError) as error:
            chat(*messages)
        assert error.value.status == 400
        assert error.value.param is not None
        assert error.value.param.startswith("messages")

    @given(
        st.lists(st.tuples(st.text("ab ", min_size=1), st.text("cd ")), max_size=4).filter(
            lambda turns: all(asked.strip() for asked, _ in turns)
        ),
        st.text("xy", min_size=1),
    )
    def test_every_turn_is_in_the_prompt_in_order(self, turns: list[tuple[str, str]], question: str) -> None:
        messages = [
            message
            for asked, answered in turns
            for message in (
                ChatMessage(role="user", content=asked),
                ChatMessage(role="assistant", content=answered),
            )
        ]
        conversation = read_conversation([*messages, ChatMessage(role="user", content=question)])
        assert conversation.turns[-1].text == question
        earlier = "".join(f"[{asked.strip()}] {answered.strip()}" for asked, answered in turns)
        assert text_query(conversation, "[{question}]").text == f"{earlier}[{question}]"
