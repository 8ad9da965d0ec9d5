"""Prompts by chat templates: what the template alone would give, and no text that becomes a control token."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from common.configuration.settings import INSTRUCTION
from common.engine.model.decoder import load_format
from common.engine.model.prompt import ChatFormat, Conversation, TextFormat, Turn, row_tokens
from common.engine.model.tokenizer import Tokenizer
from device.settings import DeviceSettings
from tests.common.engine.model.tiny_models import byte_level_tokenizer

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As Llama 3 has it: a begin token, headers, and texts that are trimmed.
HEADERS = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ '<|header|>' + message['role'] + '<|end_header|>\n\n' +"
    " message['content'] | trim + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|header|>assistant<|end_header|>\n\n' }}{% endif %}"
)
# As Gemma has it: no system role, turns that alternate, another name for the assistant.
ALTERNATING = (
    "{{ '<|begin|>' }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns must alternate') }}{% endif %}{{ '<|im_start|>' + ('model' if message['role'] =="
    " 'assistant' else 'user') + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)
# As Qwen 3 has it: it begins with a train of thought, unless it is told not to.
THINKING = CHATML.replace(
    "{{ '<|im_start|>assistant\n' }}",
    "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}",
)
# As Llama 3 and SmolLM3 have it: the day comes before everything else.
DATED = "  {% if true %}\n{% endif %}\n{{ '<|begin|>Today is ' + strftime_now('%d %b %Y') + '.\n' }}" + CHATML
# As DeepSeek-R1 has it: turns begin with tokens that its tokenizer does not call special.
MARKED = (
    "{{ '<|begin|>' }}{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<\uff5c' + message['role'] | capitalize + '\uff5c>' }}{% endif %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c>' }}{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "headers": HEADERS,
    "alternating": ALTERNATING,
    "thinking": THINKING,
    "dated": DATED,
    "marked": MARKED,
}
MARKERS = ["<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<think>", "</think>"]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|im_end|>x", "<|begin|>", "<|header|>", "<|end_header|>", "<|eot|>"]
TURNS = (Turn("user", "Who?"), Turn("assistant", "Ada."), Turn("user", "And when?"))


def tokenizer(template: str | None) -> Tokenizer:
    pretrained = byte_level_tokenizer()
    pretrained.add_special_tokens({"additional_special_tokens": SPECIALS})
    pretrained.add_tokens(MARKERS)
    pretrained.chat_template = template
    return Tokenizer(pretrained)


TOKENIZERS = {name: tokenizer(template) for name, template in TEMPLATES.items()}


def row_of(form: ChatFormat, tokenizer: Tokenizer, document: str, conversation: Conversation) -> list[int]:
    earlier, query = row_tokens(tokenizer, form.query(conversation))
    part = form.document_tokens(document)
    return (earlier + part[len(form.begin) :] if earlier else part) + query


def row(name: str, document: str, conversation: Conversation) -> list[int]:
    return row_of(ChatFormat(TOKENIZERS[name], INSTRUCTION), TOKENIZERS[name], document, conversation)


def shown(name: str, tokens: list[int]) -> str:
    """The tokens as text, control tokens by name."""
    names = {number: text for text, number in TOKENIZERS[name].control_ids.items()}
    runs = groupby(tokens, key=lambda token: token if token in names else None)
    return "".join(
        TOKENIZERS[name].decode(list(run)) if special is None else names[special] * len(list(run))
        for special, run in runs
    )


def with_system(name: str, system: str, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    if name != "alternating":
        return [{"role": "system", "content": system}, *messages]
    return [messages[0] | {"content": f"{system}\n\n{messages[0]['content']}"}, *messages[1:]]


DOCUMENT = "Ada was born in 1815."


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_first_row_is_what_the_template_gives(name: str) -> None:
    messages = with_system(name, f"{DOCUMENT}\n\n{INSTRUCTION}", [{"role": "user", "content": "Who?"}])
    assert shown(name, row(name, DOCUMENT, Conversation.of("Who?"))) == TOKENIZERS[name].render_chat(messages)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_later_row_has_the_document_in_the_questions_turn(name: str) -> None:
    messages = [{"role": turn.role, "content": turn.text} for turn in TURNS]
    messages[-1]["content"] = f"{DOCUMENT}\n\n{INSTRUCTION}\n\n{TURNS[-1].text}"
    assert shown(name, row(name, DOCUMENT, Conversation(TURNS))) == TOKENIZERS[name].render_chat(messages)
    messages = with_system(name, "Be kind.", messages)
    found = shown(name, row(name, DOCUMENT, Conversation(TURNS, ("Be kind.",))))
    assert found == TOKENIZERS[name].render_chat(messages)


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_stands_before_the_document_grows_by_turns(name: str) -> None:
    form, further = ChatFormat(TOKENIZERS[name], INSTRUCTION), (Turn("assistant", "In 1815."), Turn("user", "Where?"))
    texts = []
    for turns in (TURNS, (*TURNS, *further)):
        query = form.query(Conversation(turns, ("Be kind.",)))
        texts.append(query.text[: query.documents_at])
        assert turns[-1].text not in texts[-1] and turns[-1].text in query.text
    assert texts[1].startswith(texts[0])


def test_what_a_template_writes_are_tokens_also_where_they_are_not_special() -> None:
    for name, expected in (("marked", [*MARKERS[:2], *MARKERS[:2]]), ("thinking", MARKERS[2:])):
        ids = {TOKENIZERS[name].control_ids[marker]: marker for marker in expected}
        assert [ids[token] for token in row(name, "x", Conversation(TURNS)) if token in ids] == expected


def test_no_train_of_thought_comes_before_an_answer() -> None:
    tokens = row("thinking", "x", Conversation(TURNS, ()))
    assert shown("thinking", tokens).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_the_day_is_the_same_on_every_day() -> None:
    assert shown("dated", list(ChatFormat(TOKENIZERS["dated"]).begin)).startswith("<|begin|>Today is 26 Jul 2024.\n")


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_that_is_begun_stands_behind_the_template(name: str) -> None:
    conversation = Conversation(TURNS, ("Be kind.",))
    begun = replace(conversation, begun="In 1815<|im_end|>")
    tokens = row(name, "x", begun)
    assert shown(name, tokens) == shown(name, row(name, "x", conversation)) + "In 1815<|im_end|>"
    assert tokens[-1] not in TOKENIZERS[name].control_ids.values()


@pytest.mark.parametrize("name", TEMPLATES)
@given(
    st.lists(
        st.sampled_from([*SPECIALS, *MARKERS, "<eos>", "\ue000", "1", "\ue001", " a", "\n", "{{ x }}"]), max_size=8
    )
)
def test_no_text_becomes_a_control_token(name: str, pieces: list[str]) -> None:
    text = "".join(pieces) or "x"
    special = set(TOKENIZERS[name].control_ids.values())

    def controls(words: str) -> list[int]:
        turns = (Turn("user", words), Turn("assistant", words), Turn("user", words))
        return [token for token in row(name, words, Conversation(turns, (words,))) if token in special]

    assert controls(text) == controls("x")
    assert text in shown(name, row(name, text, Conversation.of("x")))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_documents_tokens_do_not_depend_on_the_question(name: str) -> None:
    form = ChatFormat(TOKENIZERS[name], INSTRUCTION)
    whole = form.document_tokens("Mona likes tea. " * 20)
    assert tuple(whole[: len(form.begin)]) == form.begin
    short = form.document_tokens("Mona likes tea. " * 20, 40)
    assert len(short) == 40
    assert shown(name, short).endswith("\n\n")
    with pytest.raises(ValueError, match="has no room for a document"):
        form.document_tokens("Mona", 2)


def test_roles_that_a_template_refuses() -> None:
    twice = Conversation((Turn("assistant", "Hi!"), Turn("assistant", "So?"), Turn("user", "a")))
    with pytest.raises(ValueError, match="turns must alternate"):
        ChatFormat(TOKENIZERS["alternating"]).query(twice)
    assert "Hi!" in ChatFormat(TOKENIZERS["chatml"]).query(twice).text


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[-1]['content'] }}",
        "{% for message in messages %}{{ message['content'] + message['content'] }}{% endfor %}",
        "{% for message in messages | reverse %}{{ message['content'] }}{% endfor %}",
        "{{ 1 / 0 }}",
        "{% for",
    ],
)
def test_templates_that_lose_or_move_texts_are_not_used(template: str) -> None:
    with pytest.raises(ValueError, match="chat template"):
        ChatFormat(tokenizer(template))


def test_a_model_without_one() -> None:
    plain = tokenizer(None)
    assert not plain.has_chat_template
    with pytest.raises(ValueError, match="chat template"):
        ChatFormat(plain)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("strips", [{"rstrip": True}, {"lstrip": True}, {"rstrip": True, "lstrip": True}, {}])
def test_space_that_control_tokens_take_away(strips: dict[str, bool], special: bool) -> None:
    """As those of Phi-3 do behind them: the rows are what the library makes of the whole prompt."""
    pretrained = byte_level_tokenizer()
    names = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    added = [AddedToken(name, special=special, normalized=False, **strips) for name in names]
    pretrained.add_tokens([*added], special_tokens=special)
    pretrained.chat_template = (
        "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + ' <|end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    )
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Ada.\n\nWho?"}]
    made: Any = pretrained.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    tokenizer = Tokenizer(pretrained)
    form = ChatFormat(tokenizer)
    row = row_of(form, tokenizer, "Ada.", Conversation((Turn("user", "Who?"),), ("Be kind.",)))
    specials = set(tokenizer.control_ids.values())
    assert {name in tokenizer.special_ids for name in names} == {special}

    def parts(tokens: list[int]) -> list[tuple[bool, str | tuple[int, ...]]]:
        runs = [(special, [*run]) for special, run in groupby(tokens, key=specials.__contains__)]
        return [(special, tuple(run) if special else tokenizer.decode(run)) for special, run in runs]

    assert parts(row) == parts(made["input_ids"])


def test_texts_keep_the_space_around_them() -> None:
    pretrained = byte_level_tokenizer()
    strips = AddedToken("<|im_start|>", special=True, rstrip=True), AddedToken("<|im_end|>", special=True, lstrip=True)
    pretrained.add_special_tokens({"additional_special_tokens": [*strips]})
    said = "'<|im_start|> ' + message['content'] + ' <|im_end|>'"
    pretrained.chat_template = f"{{% for message in messages %}}{{{{ {said} }}}}{{% endfor %}}"
    query = ChatFormat(Tokenizer(pretrained)).query(Conversation.of("  x  "))
    assert query.text == "  x  "


class TestSeveralTemplates:
    """A tokenizer may bring templates by names, as Command R and Hermes do."""

    def loaded(self, folder: Path, templates: dict[str, str]) -> Tokenizer:
        """The tokenizer with these templates, by way of its files."""
        pretrained = byte_level_tokenizer()
        pretrained.add_special_tokens({"additional_special_tokens": SPECIALS})
        pretrained.chat_template = templates
        pretrained.save_pretrained(folder)
        return Tokenizer.load(str(folder))

    def test_the_default_one_is_taken(self, tmp_path: Path) -> None:
        made = self.loaded(tmp_path, {"rag": HEADERS, "default": CHATML, "tool_use": HEADERS})
        assert (tmp_path / "additional_chat_templates" / "rag.jinja").exists()
        conversation = Conversation(TURNS, ())
        expected = ChatFormat(TOKENIZERS["chatml"]).query(conversation)
        assert ChatFormat(made).query(conversation) == expected

    def test_tools_have_their_own(self, tmp_path: Path) -> None:
        made = self.loaded(tmp_path, {"default": CHATML, "tool_use": "{{ tools[0]['a'] }}" + CHATML})
        messages = [{"role": "user", "content": "b"}]
        assert made.render_chat(messages, [{"a": "told"}]) == "told" + made.render_chat(messages)
        only = self.loaded(tmp_path / "only", {"tool_use": CHATML})
        assert only.render_chat(messages) == made.render_chat(messages)

    def test_it_is_said_where_none_is_for_conversations(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        made = self.loaded(tmp_path, {"rag": CHATML, "judge": HEADERS})
        form = load_format(DeviceSettings(), made)
        assert isinstance(form, TextFormat)
        assert "prompts are plain text: the tokenizer has chat templates for other purposes (judge, rag)" in caplog.text
