"""Calls of tools bind what may follow: a call, several, or text, and nothing between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from common.processors.calls import (
    MOST_TOOLS,
    Calls,
    CallShape,
    ProcessorOptions,
    Tool,
    call_grammar,
    decode_options,
    encode_options,
)
from common.processors.grammar import Grammar
from tests.common.processors.schemas import CAR, HOSTILE
from tests.common.processors.test_grammar import EOS, TOKENIZER, TOKENS, walk
from tests.support.call_shapes import BARE, TAGS, listed

MARKER = 7  # the id of a token that stands before calls
LISTED = listed(MARKER)
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
TOOLS = (Tool(name="weather", parameters=CITY), Tool(name="buy.car", parameters=CAR))
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
OBJECT = '{"name": "weather", "arguments": {"city": "Oslo"}}'


def compiled(shape: CallShape = TAGS, answer: str | None = None, **fields: Any) -> Grammar:
    calls = Calls(shape=shape, **{"tools": TOOLS} | fields)
    return TOKENS.compile(call_grammar(calls, answer), EOS)


def fits(grammar: Grammar, text: str | list[int]) -> bool:
    """Whether the text is an answer, to its end."""
    path = TOKENIZER.encode(text) if isinstance(text, str) else text
    steps = [*path, EOS[0]]
    return all(bool(grammar.allowed(path[:at])[token]) for at, token in enumerate(steps))


def begins(grammar: Grammar, text: str) -> bool:
    """Whether an answer may begin with the text."""
    path = TOKENIZER.encode(text)
    return all(bool(grammar.allowed(path[:at])[token]) for at, token in enumerate(path))


class TestMust:
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("shape", [TAGS, BARE, LISTED], ids=["tags", "bare", "listed"])
    def test_whatever_is_drawn_is_a_call_with_arguments_as_the_schema_says(self, shape: CallShape, seed: int) -> None:
        path = walk(compiled(shape, must=True), seed)
        text = TOKENIZER.decode([token for token in path if token != MARKER])
        call = json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert list(call) == ["name", shape.arguments]
        if call["name"] == "weather":
            assert call[shape.arguments] in ({"city": "Rome"}, {"city": "Oslo"})
        else:
            assert call["name"] == "buy.car" and call[shape.arguments].keys() == {"name", "electric", "doors"}

    def test_nothing_else_is_an_answer(self) -> None:
        grammar = compiled(must=True)
        assert fits(grammar, CALL)
        for text in ("", "Rome", f" {CALL}", f"{CALL}\n{CALL}", f"{CALL} and more", CALL.replace("Rome", "Bonn")):
            assert not fits(grammar, text)

    def test_several_as_many_as_may_be(self) -> None:
        grammar = compiled(must=True, most=3)
        assert [fits(grammar, "\n".join([CALL] * count)) for count in range(5)] == [False, True, True, True, False]

    def test_a_list_behind_a_token(self) -> None:
        grammar = compiled(LISTED, must=True, most=2)
        assert fits(grammar, [MARKER, *TOKENIZER.encode(f" [{OBJECT}, {OBJECT}]")])
        assert not fits(grammar, f" [{OBJECT}]")


class TestMay:
    def test_text_or_a_call_behind_text(self) -> None:
        grammar = compiled(most=2)
        for text in ("", "It rains.\nIn < Rome >", CALL, f"Let me see.\n{CALL}", f"{CALL}\n{CALL}", '{"a": 1}'):
            assert fits(grammar, text), text
        for text in ("I use <tool_call> now", f"{CALL} so", "<tool_call>\nRome"):
            assert not begins(grammar, text)

    def test_text_or_a_list_behind_a_token(self) -> None:
        grammar = compiled(LISTED)
        assert fits(grammar, "It rains.")
        assert fits(grammar, [*TOKENIZER.encode("So"), MARKER, *TOKENIZER.encode(f" [{OBJECT}]")])
        assert not fits(grammar, [MARKER, *TOKENIZER.encode("It rains.")])

    def test_calls_without_a_mark_begin_the_answer(self) -> None:
        grammar = compiled(BARE)
        for text in ("", "It rains {so}.", "\n It", OBJECT.replace("arguments", "parameters")):
            assert fits(grammar, text), text
        assert not begins(grammar, '{"city": "Rome"}')
        assert not begins(grammar, '\n {"city"')

    def test_another_answer_has_its_own_format(self) -> None:
        grammar = compiled(answer='{"type": "integer"}')
        assert fits(grammar, "17") and fits(grammar, CALL)
        assert not begins(grammar, "It")
        listed = compiled(LISTED, answer=json.dumps(CITY | {"additionalProperties": False}))
        assert fits(listed, '{"city": "Rome"}') and fits(listed, [MARKER, *TOKENIZER.encode(f" [{OBJECT}]")])
        with pytest.raises(ValueError, match="can't be distinguished"):
            compiled(BARE, answer='{"type": "integer"}')
        assert fits(compiled(BARE, must=True, answer='{"type": "integer"}'), OBJECT.replace("arguments", "parameters"))


class TestArguments:
    def call(self, parameters: dict[str, Any], text: str) -> bool:
        grammar = compiled(BARE, must=True, tools=(Tool(name="f", parameters=parameters),))
        return fits(grammar, f'{{"name": "f", "parameters": {text}}}')

    def test_there_are_no_members_beyond_those_that_are_named(self) -> None:
        members = {"properties": {"a": {"type": "integer"}}}
        assert self.call(members, '{"a": 1}') and self.call(members, "{}") and self.call({}, "{}")
        assert not self.call(members, '{"b": 1}') and not self.call({}, '{"b": 1}')
        assert self.call(members | {"additionalProperties": True}, '{"b": 1}')
        assert self.call({"$ref": "#/$defs/x", "$defs": {"x": CITY}}, '{"city": "Rome"}')

    def test_a_schema_does_not_choose_its_spaces(self) -> None:
        assert not self.call(CITY | {"x-guidance": {"whitespace_flexible": True}}, '{ "city":"Rome" }')

    # The one that takes all the time it may has it in the same place: see `test_grammar`.
    @pytest.mark.parametrize("name", sorted(HOSTILE.keys() - {"an intersection"}))
    def test_what_can_not_be_followed_is_one_sentence(self, name: str) -> None:
        with pytest.raises(ValueError) as refused:
            compiled(tools=(Tool(name="f", parameters=HOSTILE[name]),)).allowed([])
        assert 0 < len(str(refused.value)) < 300 and "\n" not in str(refused.value)


class TestTravelling:
    def test_the_other_side_reads_the_same(self) -> None:
        for shape in (TAGS, LISTED, BARE):
            calls = Calls(shape=shape, tools=TOOLS, must=True, most=4)
            read = decode_options(encode_options(ProcessorOptions(calls=calls))).calls
            assert read == calls and read is not None
            # The order of members is the order in which they are written.
            assert call_grammar(read, None) == call_grammar(calls, None)

    @pytest.mark.parametrize(
        "fields",
        [
            {"tools": ()},
            {"tools": TOOLS * 2},
            {"tools": tuple(Tool(name=f"f{n}", parameters={}) for n in range(MOST_TOOLS + 1))},
            {"most": 0},
            {"most": 9},
            {"must": 1},
        ],
        ids=["none", "same names", "too many", "no call", "too many calls", "type"],
    )
    def test_limits(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            Calls.model_validate({"shape": TAGS, "tools": TOOLS} | fields)

    @pytest.mark.parametrize("name", ["", "a b", 'a"', "a" * 65, "ä", "a\n"])
    def test_names(self, name: str) -> None:
        with pytest.raises(ValidationError):
            Tool(name=name, parameters={})

    def test_tokens_that_there_are_not(self) -> None:
        with pytest.raises(ValueError):
            compiled(CallShape(opening=(2**40,), arguments="arguments", closing=()), must=True)
        with pytest.raises(ValueError):
            compiled(CallShape(opening=(TOKENIZER.size,), arguments="arguments", closing=()), must=True).allowed([])
