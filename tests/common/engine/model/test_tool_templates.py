"""Tools by chat templates: what the template alone would give, which calls are known, and texts that stay texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.configuration.settings import INSTRUCTION
from common.engine.model.prompt import PLAIN_TOOLS, Call, ChatFormat, Conversation, TextFormat, Turn
from common.engine.model.tokenizer import Tokenizer
from tests.common.engine.model.test_chat_format import ALTERNATING, CHATML, HEADERS, SPECIALS, row_of
from tests.common.engine.model.tiny_models import byte_level_tokenizer

NAMES = [*SPECIALS, "[TOOL_CALLS]", "[TOOLS]"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]  # tokens that are not special
# As Qwen has it: tools end the system turn, calls are tagged, and what they return is the user's.
TAGGED = (
    "{%- if tools %}{{- '<|im_start|>system\n' + messages[0].content + '\n# Tools\n' }}{%- for tool in tools %}"
    "{{- tool | tojson + '\n' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- else %}"
    "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role == 'tool' %}"
    "{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}"
    "{%- elif message.tool_calls %}{{- '<|im_start|>assistant' }}"
    "{%- if message.content %}{{- '\n' + message.content }}{%- endif %}{%- for call in message.tool_calls %}"
    '{{- \'\n<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}"
    "{%- elif not (loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
# As Mistral has it: tools before the last question, calls listed behind a token, ids of nine characters.
LISTED = (
    "{{- '<|begin|>' }}{%- set last = (messages | selectattr('role', 'equalto', 'user') | list | length) %}"
    "{%- set seen = namespace(users=0) %}{%- for message in messages %}{%- if message.role == 'tool' %}"
    "{{- '[RESULT] ' + message.tool_call_id + ' ' + message.content }}"
    "{%- elif message.tool_calls is defined and message.tool_calls %}{{- '[TOOL_CALLS] [' }}"
    "{%- for call in message.tool_calls %}{%- if call.id | length != 9 %}{{- raise_exception('nine') }}{%- endif %}"
    "{{- (call.function | tojson)[:-1] + ', \"id\": \"' + call.id + '\"}' }}"
    "{{- ', ' if not loop.last else ']' }}{%- endfor %}{{- '<|eot|>' }}{%- elif message.role == 'assistant' %}"
    "{{- message.content + '<|eot|>' }}{%- else %}{%- if message.role == 'user' %}"
    "{%- set seen.users = seen.users + 1 %}{%- if tools and seen.users == last %}"
    "{{- '[TOOLS]' + (tools | tojson) + '[/TOOLS]' }}{%- endif %}{%- endif %}"
    "{{- '[INST]' + message.content + '[/INST]' }}{%- endif %}{%- endfor %}"
)
# As Llama 3 has it: a line of the system turn that is there for tools only, tools in the first question, bare calls.
BARE = (
    "{{- '<|begin|><|header|>system<|end_header|>\n\n' }}{%- if tools %}{{- 'Environment: ipython\n' }}{%- endif %}"
    "{{- 'Today is Monday\n\n' + messages[0].content + '<|eot|>' }}{%- for message in messages[1:] %}"
    "{%- if 'tool_calls' in message %}{{- '<|header|>assistant<|end_header|>\n\n' }}"
    '{{- \'{"name": "\' + message.tool_calls[0].function.name + \'", "parameters": \' }}'
    "{{- message.tool_calls[0].function.arguments | tojson + '}<|eot|>' }}{%- elif message.role == 'tool' %}"
    "{{- '<|header|>ipython<|end_header|>\n\n' + (message.content | tojson) + '<|eot|>' }}{%- else %}"
    "{{- '<|header|>' + message.role + '<|end_header|>\n\n' }}"
    "{%- if loop.first and tools %}{{- 'Answer with a call.\n' + (tools | tojson) + '\n' }}{%- endif %}"
    "{{- message.content + '<|eot|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|header|>assistant<|end_header|>\n\n' }}{%- endif %}"
)
# As Hermes 2 has it: tools are a system turn of their own, in front.
IN_FRONT = "{%- if tools %}{{- '<|im_start|>system\nTools: ' + (tools | tojson) + '<|im_end|>\n' }}{%- endif %}" + (
    TAGGED.split("{%- endif %}", 1)[1].replace(
        "{%- elif not (loop.first and message.role == 'system') %}", "{%- else %}"
    )
)
XML = CHATML.replace("{% for", "{% if tools %}{{ tools | tojson }}{% endif %}{% for", 1).replace(
    "message['content']", "(message['content'] ~ (message.tool_calls[0].function.name if message.tool_calls))"
)

WEATHER = {
    "name": "weather",
    "description": 'Says "how" it is',
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALLED = Call(3, "weather", '{"city": "Rome"}')
TURNS = (
    Turn("user", "Is it wet in Rome?"),
    Turn("assistant", "", (CALLED,)),
    Turn("tool", '{"rain": "no"}', (CALLED,)),
    Turn("assistant", "It is dry."),
    Turn("user", "And now?"),
)
CONVERSATION = Conversation(TURNS, ("Be kind.",), tools=(json.dumps(WEATHER),))


def tokenizer(template: str | None) -> Tokenizer:
    pretrained = byte_level_tokenizer()
    pretrained.add_special_tokens({"additional_special_tokens": NAMES})
    pretrained.add_tokens(MARKERS)
    pretrained.chat_template = template
    return Tokenizer(pretrained)


TEMPLATES = {"tagged": TAGGED, "listed": LISTED, "bare": BARE, "in front": IN_FRONT}
TOKENIZERS = {name: tokenizer(template) for name, template in TEMPLATES.items()}
FORMATS = {name: ChatFormat(each, INSTRUCTION) for name, each in TOKENIZERS.items()}


def row(name: str, document: str, conversation: Conversation) -> list[int]:
    return row_of(FORMATS[name], TOKENIZERS[name], document, conversation)


def shown(name: str, tokens: Sequence[int]) -> str:
    """The tokens as text, control tokens by name."""
    names = {number: text for text, number in TOKENIZERS[name].control_ids.items()}
    text, run = "", list[int]()
    for token in [*tokens, *names][: len(tokens) + 1]:
        if token in names:
            text, run = text + TOKENIZERS[name].decode(run) + names[token], []
        else:
            run.append(token)
    return text.removesuffix(names[[*tokens, *names][len(tokens)]])


def messages(document: str) -> list[dict[str, Any]]:
    call = {"id": "000000003", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    return [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Is it wet in Rome?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": '{"rain": "no"}', "name": "weather", "tool_call_id": "000000003"},
        {"role": "assistant", "content": "It is dry."},
        {"role": "user", "content": f"{document}\n\n{INSTRUCTION}\n\nAnd now?"},
    ]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_row_is_what_the_template_gives(name: str) -> None:
    document, tools = "Rome is a city.", [{"type": "function", "function": WEATHER}]
    expected = TOKENIZERS[name].render_chat(messages(document), tools)
    assert shown(name, row(name, document, CONVERSATION)) == expected
    without = TOKENIZERS[name].render_chat(messages(document))
    assert shown(name, row(name, document, Conversation(TURNS, ("Be kind.",)))) == without


def test_how_calls_look_is_read_off_the_template() -> None:
    marker = TOKENIZERS["listed"].special_ids["[TOOL_CALLS]"]
    shapes = {name: format_.tools.shape for name, format_ in FORMATS.items()}
    assert shapes["tagged"] == shapes["in front"]
    assert (shapes["tagged"].opening, shapes["tagged"].trigger) == (("<tool_call>\n",), "<tool_call>")
    assert (shapes["listed"].opening, shapes["listed"].between) == ((marker, " ["), (", ",))
    assert (shapes["bare"].opening, shapes["bare"].arguments, shapes["bare"].between) == ((), "parameters", None)
    assert all(format_.tools.trained for format_ in FORMATS.values())


def test_calls_of_another_kind_are_not_guessed() -> None:
    form = ChatFormat(tokenizer(XML))
    with pytest.raises(ValueError, match="does not know"):
        _ = form.tools


@pytest.mark.parametrize("template", [CHATML, HEADERS, ALTERNATING, None], ids=["chatml", "headers", "turns", "none"])
def test_a_model_that_knows_no_tools_is_told_in_plain_words(template: str | None) -> None:
    plain = tokenizer(template)
    form = TextFormat(plain) if template is None else ChatFormat(plain, INSTRUCTION)
    assert form.tools is PLAIN_TOOLS and not form.tools.trained
    text = form.query(CONVERSATION).text
    assert json.dumps(WEATHER) in text
    for part in ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>', '{"rain": "no"}'):
        assert part in text
    assert text.index("Be kind.") < text.index(json.dumps(WEATHER)) < text.index("Is it wet") < text.index("And now?")


@pytest.mark.parametrize("name", TEMPLATES)
@given(
    st.lists(
        st.sampled_from([*NAMES, *MARKERS, "<|im_", "start|>", "\ue000", "1", "\ue001", "\ue002", '"', "\n"]),
        max_size=8,
    )
)
def test_nothing_of_tools_becomes_a_control_token(name: str, pieces: list[str]) -> None:
    words = "".join(pieces) or "x"
    special = set(TOKENIZERS[name].control_ids.values())

    def controls(text: str) -> list[int]:
        call = Call(0, "weather", json.dumps({text: [text]}))
        turns = (Turn("user", "a"), Turn("assistant", text, (call,)), Turn("tool", text, (call,)), Turn("user", "b"))
        told = WEATHER | {"description": text, "parameters": {"properties": {text: {"enum": [text]}}}}
        return [token for token in row(name, "x", Conversation(turns, tools=(json.dumps(told),))) if token in special]

    assert controls(words) == controls("x")


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_of_tools_are_kept(name: str) -> None:
    text = "<|im_end|> or <|eot|>"
    told = json.dumps(WEATHER | {"description": text})
    query = FORMATS[name].query(Conversation((Turn("user", "a"),), tools=(told,)))
    assert text in query.text
    assert "\ue002" not in query.text
